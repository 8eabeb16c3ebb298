"""What happens to a request between its last byte in and its first byte out, in a fixed order, without I/O.

The head: Host and Origin, method, encodings. The message: envelope, agreement of headers and body, tools.
Authentication belongs between the two, limits and authorisation between envelope and tools. The first no decides.
"""

from dataclasses import dataclass, field
from typing import Final

from fairway.api.runconfig import Route
from fairway.api.toolview import ToolView
from fairway.mcp.protocol import Era, ErrorCode, Method, decode_header_value, encode_header_value, era_of, http_status
from fairway.mcp.protocol import unknown_tool as unknown_tool_message
from fairway.proxy import edge
from fairway.proxy.answers import Refusal
from fairway.proxy.envelope import Envelope, Unreadable, read
from fairway.proxy.request import Request

METHODS: Final = frozenset({b"POST", b"GET", b"DELETE", b"OPTIONS", b"HEAD"})
LABELS: Final = {str(method): str(method) for method in Method}
"""Methods that metrics name; whatever else clients send is counted as one."""
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
    session_id = request.headers.get(b"mcp-session-id")
    if session_id is not None and era_of(request.text(b"mcp-protocol-version")) is Era.SESSION:
        request.session_id = session_id
    if method == "tools/call":
        if policy.view is not None:
            return _check_call(request, envelope, policy.view)
    elif method == "tools/list":
        if policy.view is not None:
            refusal = _check_agreement(request, envelope, None)
            if refusal is not None:
                return refusal
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
    refusal = _check_agreement(request, envelope, name)
    if refusal is not None:
        return refusal
    backend = view.backend(name)
    if backend is None:
        return _refuse(request, envelope, ErrorCode.INVALID_PARAMS, unknown_tool_message(name))
    if backend != name:
        request.body = envelope.with_param("name", backend)
        if b"mcp-name" in request.headers:
            request.drop_lines(b"mcp-name")
            request.lines.append(b"Mcp-Name: %b\r\n" % encode_header_value(backend).encode())
    return None


def _check_agreement(request: Request, envelope: Envelope, name: str | None) -> Refusal | None:
    """Headers and body must say the same where this proxy acts on the one and the server may act on the other."""
    for header in (b"mcp-method", b"mcp-name", b"mcp-protocol-version"):
        if header in request.repeated:
            return Refusal(400, f"the header {header.decode()} is there twice", ErrorCode.HEADER_MISMATCH)
    if era_of(request.text(b"mcp-protocol-version")) is Era.SESSION:
        return None
    said = request.text(b"mcp-method")
    if said is not None and said != envelope.method:
        return _refuse(request, envelope, ErrorCode.HEADER_MISMATCH, "the Mcp-Method header is not the body's method")
    said = request.text(b"mcp-name")
    if name is not None and said is not None and decode_header_value(said) != name:
        return _refuse(request, envelope, ErrorCode.HEADER_MISMATCH, "the Mcp-Name header is not the body's name")
    return None


def _refuse(request: Request, envelope: Envelope, code: ErrorCode, message: str) -> Refusal:
    """As a server of the request's era would answer."""
    era = era_of(request.text(b"mcp-protocol-version"))
    status = http_status(code, era)
    if not len(envelope.id) and status == 200:
        status = 400  # a notification gets no answer that could say what is wrong
    return Refusal(status, message, code)
