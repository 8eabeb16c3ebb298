"""What happens to a request between its last byte in and its first byte out, in a fixed order, without I/O.

The head: Host and Origin, method, encodings. The message: envelope, agreement of headers and body, tools.
Authentication belongs between the two, limits and authorisation between envelope and tools. The first no decides.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from fairway.api.runconfig import Route
from fairway.api.toolview import ToolView
from fairway.mcp.protocol import (
    MODERN_ONLY_CODES,
    MODERN_VERSIONS,
    NAME_PARAM,
    Era,
    ErrorCode,
    Header,
    Meta,
    Method,
    decode_header_value,
    encode_header_value,
    era_of,
    http_status,
)
from fairway.mcp.protocol import unknown_tool as unknown_tool_message
from fairway.proxy import edge
from fairway.proxy.answers import Refusal
from fairway.proxy.envelope import Envelope, Unreadable, read
from fairway.proxy.request import Request

METHODS: Final = frozenset({b"POST", b"GET", b"DELETE", b"OPTIONS", b"HEAD"})
LABELS: Final = {str(method): str(method) for method in Method}
"""Methods that metrics name; whatever else clients send is counted as one."""
_ASKS: Final = frozenset(method for method in LABELS if not method.startswith("notifications/"))
"""Methods that ask for an answer, which is what an id is for."""
_MAX_VERDICTS: Final = 1024


@dataclass(slots=True)
class Policy:
    """One route's settings, ready for use. Never changed: a reload makes a new one."""

    route: Route
    loopback: bool
    view: ToolView | None = field(init=False)
    """None when all tools pass as they are."""
    max_body: int = field(init=False)
    connect_seconds: float = field(init=False)
    call_seconds: float = field(init=False)
    _verdicts: dict[tuple[bytes | None, bytes | None], edge.Allowed | edge.Denied] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        view = self.route.tools.view()
        self.view = None if view.passes_everything else view
        self.max_body = self.route.limits.max_body
        self.connect_seconds = self.route.timeouts.connect
        self.call_seconds = self.route.timeouts.call

    def edge(self, request: Request) -> edge.Allowed | edge.Denied:
        headers = request.headers
        key = (headers.get(b"host"), headers.get(b"origin"))
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = edge.judge(
                host=request.text(b"host") or "", origin=request.text(b"origin"), loopback=self.loopback
            )
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict


def check_head(request: Request, policy: Policy) -> Refusal | None:
    """What can be decided before the body is there."""
    if request.method not in METHODS:
        return Refusal(405, "the MCP endpoint takes POST, GET and DELETE", headers=b"Allow: POST, GET, DELETE\r\n")
    verdict = policy.edge(request)
    if verdict.__class__ is edge.Denied:
        return Refusal(403, verdict.reason)
    if verdict.keep_origin and b"origin" in request.headers:  # type: ignore[union-attr]
        request.lines.append(b"Origin: %b\r\n" % request.headers[b"origin"])
    if b"content-encoding" in request.headers and request.headers[b"content-encoding"] != b"identity":
        return Refusal(415, "requests must not be compressed", headers=b"Accept-Encoding: identity\r\n")
    return None


def check_message(request: Request, policy: Policy) -> Refusal | None:
    """What can be decided once the body is there; it may change what is passed on."""
    if request.method != b"POST":
        return _check_bodyless(request, policy)
    try:
        envelope = read(request.body)
    except Unreadable as error:
        return Refusal(400, error.message, error.code)
    method = envelope.method
    request.request_id = bytes(envelope.id)
    request.label = LABELS.get(method, "other") if method else "response"
    refusal = _check_agreement(request, envelope)
    if refusal is not None:
        return refusal
    session_id = request.headers.get(b"mcp-session-id")
    if session_id is not None and era_of(request.text(b"mcp-protocol-version")) is Era.SESSION:
        request.session_id = session_id
    if method == "tools/call":
        if policy.view is not None:
            return _check_call(request, envelope, policy.view)
    elif method == "tools/list":
        if policy.view is not None:
            request.rewrite = True
            request.drop_lines(b"accept-encoding")
    elif method == "initialize":
        request.opens_session = True
    elif method == "subscriptions/listen":
        request.endless = True
    return None


def _check_bodyless(request: Request, policy: Policy) -> Refusal | None:
    request.label = request.method.decode()
    if request.body:
        return Refusal(400, f"a {request.label} request has no body")
    if request.method in (b"GET", b"DELETE") and request.text(b"mcp-protocol-version") in MODERN_VERSIONS:
        return Refusal(405, "this revision of MCP has only POST", headers=b"Allow: POST\r\n")
    request.session_id = request.headers.get(b"mcp-session-id", b"")
    if request.method == b"GET":
        request.endless = True
        if policy.view is not None:
            # a stream that is resumed may bring the answer to an earlier tools/list
            request.rewrite = True
            request.drop_lines(b"accept-encoding")
    return None


def _check_call(request: Request, envelope: Envelope, view: ToolView) -> Refusal | None:
    name = envelope.name()
    if name is None:
        return _refuse(request, envelope, ErrorCode.INVALID_PARAMS, "tools/call needs params.name, a string")
    backend = view.backend(name)
    if backend is None:
        return _refuse(request, envelope, ErrorCode.INVALID_PARAMS, unknown_tool_message(name))
    if backend != name:
        request.body = envelope.with_param("name", backend)
        if b"mcp-name" in request.headers:
            request.drop_lines(b"mcp-name")
            request.lines.append(b"Mcp-Name: %b\r\n" % encode_header_value(backend).encode())
    return None


def _check_agreement(request: Request, envelope: Envelope) -> Refusal | None:
    """Headers and body must say the same, since this proxy or the next may act on the one and the server on the other.

    The order of the checks is that of the specification. A revision that is not known here is the server's to judge,
    as far as the request does not contradict itself.
    """
    if request.repeated:
        for header in (b"mcp-protocol-version", b"mcp-method", b"mcp-name"):
            if header in request.repeated:
                return Refusal(400, f"the header {header.decode()} is there twice", ErrorCode.HEADER_MISMATCH)
    method = envelope.method
    version = request.text(b"mcp-protocol-version")
    stated = _stated(envelope)
    if stated is None and era_of(version) is Era.SESSION:
        if method in _ASKS and not len(envelope.id):
            return Refusal(400, f"{method} needs an id", ErrorCode.INVALID_REQUEST)
        return None
    known = version in MODERN_VERSIONS
    if not method:
        return Refusal(400, "clients of this revision send no responses", ErrorCode.INVALID_REQUEST) if known else None
    if not len(envelope.id):
        if method in _ASKS:
            return Refusal(400, f"{method} needs an id", ErrorCode.INVALID_REQUEST)
        return None  # what notifications carry is not specified
    if known and (stated is None or not isinstance(stated.capabilities, dict)):
        wanted = f"params._meta needs {Meta.PROTOCOL_VERSION} and {Meta.CLIENT_CAPABILITIES}"
        return _refuse(request, envelope, ErrorCode.INVALID_PARAMS, wanted)
    if stated is not None and stated.version != version:
        return _mismatch(request, envelope, Header.PROTOCOL_VERSION, "the version in params._meta")
    said = request.text(b"mcp-method")
    if said != method and (known or said is not None):
        return _mismatch(request, envelope, Header.METHOD, "the body's method")
    key = NAME_PARAM.get(method)
    if key is not None and envelope.params is not None and key in envelope.params:
        said = request.text(b"mcp-name")
        named = envelope.name(key)
        if (known or said is not None) and (said is None or named is None or decode_header_value(said) != named):
            return _mismatch(request, envelope, Header.NAME, f"the body's {key}")
    return None


class _Stated(msgspec.Struct):
    """What a request of the modern era says of itself in its body."""

    version: Any = msgspec.field(default=msgspec.UNSET, name=Meta.PROTOCOL_VERSION.value)
    capabilities: Any = msgspec.field(default=msgspec.UNSET, name=Meta.CLIENT_CAPABILITIES.value)


_decode_stated: Final = msgspec.json.Decoder(_Stated).decode


def _stated(envelope: Envelope) -> _Stated | None:
    raw = None if envelope.params is None else envelope.params.get("_meta")
    if raw is None:
        return None
    try:
        stated = _decode_stated(raw)
    except (ValueError, RecursionError):
        return None
    return None if stated.version is msgspec.UNSET else stated


def _mismatch(request: Request, envelope: Envelope, header: Header, what: str) -> Refusal:
    if header.lower().encode() not in request.headers:
        return _refuse(request, envelope, ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} is missing")
    return _refuse(request, envelope, ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} is not {what}")


def _refuse(request: Request, envelope: Envelope, code: ErrorCode, message: str) -> Refusal:
    """As a server of the request's era would answer."""
    era = era_of(request.text(b"mcp-protocol-version"))
    status = 400 if code in MODERN_ONLY_CODES else http_status(code, era)
    if not len(envelope.id) and status == 200:
        status = 400  # a notification gets no answer that could say what is wrong
    return Refusal(status, message, code)
