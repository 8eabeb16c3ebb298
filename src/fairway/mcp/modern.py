"""What the modern era demands of every request before it is looked at: `_meta`, and headers that repeat the body."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairway.mcp.protocol import (
    MODERN_VERSIONS,
    NAME_PARAM,
    ErrorCode,
    Header,
    Meta,
    decode_header_value,
    unsupported_version_data,
)

_VERSION_HEADER: Final = Header.PROTOCOL_VERSION.lower()
_METHOD_HEADER: Final = Header.METHOD.lower()
_NAME_HEADER: Final = Header.NAME.lower()


class Refused(Exception):
    """Ends the reading of a message; carries the JSON-RPC error that answers it."""

    def __init__(self, code: ErrorCode, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RequestMeta(msgspec.Struct):
    """The members of `_meta` that every request has to have; whatever they hold."""

    version: Any = msgspec.field(default=msgspec.UNSET, name=Meta.PROTOCOL_VERSION.value)
    capabilities: Any = msgspec.field(default=msgspec.UNSET, name=Meta.CLIENT_CAPABILITIES.value)


_decode_meta: Final = msgspec.json.Decoder(RequestMeta).decode


def read_meta(meta: msgspec.Raw | msgspec.UnsetType) -> RequestMeta | None:
    """None for what is absent or no object."""
    if meta is msgspec.UNSET:
        return None
    try:
        return _decode_meta(meta)
    except (ValueError, RecursionError):
        return None


def check(headers: Mapping[str, str], method: str, meta: RequestMeta | None, name: Any, uri: Any) -> None:
    """The checks in the order of the specification; raises Refused at the first that fails.

    `name` and `uri` are the parameters of these names, whatever they hold. Header names are in lower case.
    """
    if meta is None:
        raise Refused(
            ErrorCode.INVALID_PARAMS,
            f"params._meta with {Meta.PROTOCOL_VERSION} and {Meta.CLIENT_CAPABILITIES} is missing",
        )
    if meta.version is msgspec.UNSET:
        raise Refused(ErrorCode.INVALID_PARAMS, f"params._meta lacks {Meta.PROTOCOL_VERSION}")
    if not isinstance(meta.capabilities, dict):
        raise Refused(ErrorCode.INVALID_PARAMS, f"params._meta lacks {Meta.CLIENT_CAPABILITIES}, an object")
    version = headers.get(_VERSION_HEADER)
    if version is None or version != meta.version:
        raise _mismatch(Header.PROTOCOL_VERSION, version, "the version in params._meta")
    if headers.get(_METHOD_HEADER) != method:
        raise _mismatch(Header.METHOD, headers.get(_METHOD_HEADER), "the method in the body")
    key = NAME_PARAM.get(method)
    if key is not None:
        named = name if key == "name" else uri
        sent = headers.get(_NAME_HEADER)
        plain = sent is not None and sent.isascii() and decode_header_value(sent)
        if isinstance(named, str) and plain != named:
            raise _mismatch(Header.NAME, sent, f"params.{key} in the body")
    if version not in MODERN_VERSIONS:
        raise unsupported(version)


def _mismatch(header: Header, sent: str | None, body: str) -> Refused:
    if sent is None:
        return Refused(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} is missing")
    return Refused(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} {sent[:200]!r} is not {body}")


def unsupported(version: str) -> Refused:
    return Refused(
        ErrorCode.UNSUPPORTED_VERSION, "Unsupported protocol version", unsupported_version_data(version[:200])
    )
