"""Headers and body of a request must say the same, since this proxy or the next may act on the one and the server on
the other; and what is refused in the server's place is refused as a server of the request's era would.
"""

from typing import Final

import msgspec

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
    era_of,
    http_status,
)
from fairway.proxy.answers import Refusal
from fairway.proxy.envelope import Envelope, text_of
from fairway.proxy.request import Request

_ASKS: Final = frozenset(str(method) for method in Method if not method.startswith("notifications/"))
"""Methods that ask for an answer, which is what an id is for."""


def check_agreement(request: Request, envelope: Envelope, name: str | None) -> Refusal | None:
    """`name` is what the body says that it acts on, if that has been read.

    The order of the checks is that of the specification. A revision that is not known here is the server's to
    judge, as far as the request does not contradict itself.
    """
    if request.repeated:
        for header in (b"mcp-protocol-version", b"mcp-method", b"mcp-name"):
            if header in request.repeated:
                return Refusal(400, f"the header {header.decode()} is there twice", ErrorCode.HEADER_MISMATCH)
    method = envelope.method
    version = request.text(b"mcp-protocol-version")
    stated = _stated(envelope)
    if stated is None and era_of(version) is Era.SESSION:
        for unknown in (b"mcp-method", b"mcp-name"):
            if unknown in request.headers:
                request.drop_lines(unknown)  # this era has none, so that nobody has compared them with the body
        return check_id(envelope)
    known = version in MODERN_VERSIONS
    if not method:
        return Refusal(400, "clients of this revision send no responses", ErrorCode.INVALID_REQUEST) if known else None
    if not len(envelope.id):
        return check_id(envelope)  # what notifications carry is not specified
    if known and (stated is None or bytes(memoryview(stated.capabilities)[:1]) != b"{"):
        wanted = f"params._meta needs {Meta.PROTOCOL_VERSION} and {Meta.CLIENT_CAPABILITIES}"
        return refuse(request, envelope, ErrorCode.INVALID_PARAMS, wanted)
    if stated is not None and (version is None or text_of(stated.version) != version):
        return _mismatch(request, envelope, Header.PROTOCOL_VERSION, "the version in params._meta")
    said = request.text(b"mcp-method")
    if said != method and (known or said is not None):
        return _mismatch(request, envelope, Header.METHOD, "the body's method")
    key = NAME_PARAM.get(method)
    if key is not None and envelope.params is not None and key in envelope.params:
        said = request.text(b"mcp-name")
        named = envelope.name(key) if name is None else name
        if (known or said is not None) and (said is None or named is None or decode_header_value(said) != named):
            return _mismatch(request, envelope, Header.NAME, f"the body's {key}")
    return None


def check_id(envelope: Envelope) -> Refusal | None:
    if envelope.method in _ASKS and not len(envelope.id):
        return Refusal(400, f"{envelope.method} needs an id", ErrorCode.INVALID_REQUEST)
    return None


class _Stated(msgspec.Struct):
    """What a request of the modern era says of itself in its body."""

    version: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Meta.PROTOCOL_VERSION.value)
    capabilities: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Meta.CLIENT_CAPABILITIES.value)


_decode_stated: Final = msgspec.json.Decoder(_Stated).decode


def _stated(envelope: Envelope) -> _Stated | None:
    raw = None if envelope.params is None else envelope.params.get("_meta")
    if raw is None:
        return None
    try:
        stated = _decode_stated(raw)
    except (ValueError, RecursionError):
        return None
    return stated if len(stated.version) else None


def _mismatch(request: Request, envelope: Envelope, header: Header, what: str) -> Refusal:
    if header.lower().encode() not in request.headers:
        return refuse(request, envelope, ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} is missing")
    return refuse(request, envelope, ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} is not {what}")


def refuse(request: Request, envelope: Envelope, code: int, message: str, *, detail: str = "") -> Refusal:
    """As a server of the request's era would: 404 means that the session is gone in the one, and that the method is
    unknown in the other.
    """
    era = era_of(request.text(b"mcp-protocol-version"))
    status = 400 if code in MODERN_ONLY_CODES else http_status(code, era)
    if not len(envelope.id) and status == 200:
        status = 400  # a notification gets no answer that could say what is wrong
    return Refusal(status, message, code, detail=detail)
