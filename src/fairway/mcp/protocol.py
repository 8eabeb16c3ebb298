"""The words of MCP in both eras: revisions, methods, headers, `_meta` keys, error codes.

The *session era* (2024-11-05 to 2025-11-25) opens with `initialize` and may carry an `Mcp-Session-Id`. The *modern era*
(2026-07-28) has neither: each POST stands alone, says its revision and capabilities in `params._meta`, and repeats
revision, method and name in headers, so that whatever stands in between can route without reading the body.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

SESSION_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that open with `initialize`, oldest first."""
MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions without sessions, oldest first."""
VERSIONS: Final = (*SESSION_VERSIONS, *MODERN_VERSIONS)
LATEST_SESSION_VERSION: Final = SESSION_VERSIONS[-1]
LATEST_MODERN_VERSION: Final = MODERN_VERSIONS[-1]
ASSUMED_VERSION: Final = "2025-03-26"
"""What a request without a version header speaks: the header came with the revision after this one."""

JSON: Final = "application/json"
SSE: Final = "text/event-stream"
ACCEPT_BOTH: Final = f"{JSON}, {SSE}"


class Era(StrEnum):
    """The two ways in which MCP is spoken over HTTP."""

    SESSION = "session"
    MODERN = "modern"


def era_of(version: str | None) -> Era:
    """The era that a version header selects; an unknown revision belongs to the era that has an error for it."""
    return Era.SESSION if version is None or version in SESSION_VERSIONS else Era.MODERN


class Header(StrEnum):
    """HTTP header names, as the specification writes them."""

    PROTOCOL_VERSION = "MCP-Protocol-Version"
    METHOD = "Mcp-Method"
    NAME = "Mcp-Name"
    SESSION_ID = "Mcp-Session-Id"
    LAST_EVENT_ID = "Last-Event-ID"


PARAM_HEADER_PREFIX: Final = "Mcp-Param-"
"""Start of the headers that repeat arguments which a tool's schema marks with `x-mcp-header`."""
PARAM_HEADER_KEY: Final = "x-mcp-header"


class Meta(StrEnum):
    """Reserved keys of `_meta`."""

    PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
    CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
    CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
    LOG_LEVEL = "io.modelcontextprotocol/logLevel"
    SERVER_INFO = "io.modelcontextprotocol/serverInfo"
    SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class Method(StrEnum):
    """Requests and notifications of both eras."""

    DISCOVER = "server/discover"
    INITIALIZE = "initialize"
    INITIALIZED = "notifications/initialized"
    PING = "ping"
    CANCELLED = "notifications/cancelled"
    PROGRESS = "notifications/progress"
    MESSAGE = "notifications/message"
    SET_LEVEL = "logging/setLevel"
    COMPLETE = "completion/complete"
    TOOLS_LIST = "tools/list"
    TOOLS_CALL = "tools/call"
    TOOLS_LIST_CHANGED = "notifications/tools/list_changed"
    PROMPTS_LIST = "prompts/list"
    PROMPTS_GET = "prompts/get"
    PROMPTS_LIST_CHANGED = "notifications/prompts/list_changed"
    RESOURCES_LIST = "resources/list"
    RESOURCES_TEMPLATES_LIST = "resources/templates/list"
    RESOURCES_READ = "resources/read"
    RESOURCES_SUBSCRIBE = "resources/subscribe"
    RESOURCES_UNSUBSCRIBE = "resources/unsubscribe"
    RESOURCES_UPDATED = "notifications/resources/updated"
    RESOURCES_LIST_CHANGED = "notifications/resources/list_changed"
    ROOTS_LIST = "roots/list"
    ROOTS_LIST_CHANGED = "notifications/roots/list_changed"
    SAMPLING_CREATE = "sampling/createMessage"
    ELICITATION_CREATE = "elicitation/create"
    SUBSCRIPTIONS_LISTEN = "subscriptions/listen"
    SUBSCRIPTIONS_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


SESSION_ONLY: Final = frozenset(
    {
        Method.INITIALIZE,
        Method.INITIALIZED,
        Method.PING,
        Method.SET_LEVEL,
        Method.RESOURCES_SUBSCRIBE,
        Method.RESOURCES_UNSUBSCRIBE,
        Method.ROOTS_LIST_CHANGED,
        "tasks/result",
    }
)
"""What the modern era has abolished: to its servers these are unknown methods."""

NAME_PARAM: Final[Mapping[str, str]] = MappingProxyType(
    {Method.TOOLS_CALL.value: "name", Method.PROMPTS_GET.value: "name", Method.RESOURCES_READ.value: "uri"}
)
"""Methods whose `Mcp-Name` header is required in the modern era, and the parameter that it repeats."""


class ErrorCode(IntEnum):
    """JSON-RPC error codes that MCP gives a meaning."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022


MODERN_ONLY_CODES: Final = frozenset(
    {ErrorCode.HEADER_MISMATCH, ErrorCode.MISSING_CLIENT_CAPABILITY, ErrorCode.UNSUPPORTED_VERSION}
)
"""Codes that only a server of the modern era sends: who gets one must not fall back to `initialize`."""

_HTTP_STATUS: Final[Mapping[int, int]] = MappingProxyType(
    {
        ErrorCode.PARSE_ERROR: 400,
        ErrorCode.INVALID_REQUEST: 400,
        ErrorCode.METHOD_NOT_FOUND: 404,
        ErrorCode.INVALID_PARAMS: 400,
        ErrorCode.HEADER_MISMATCH: 400,
        ErrorCode.MISSING_CLIENT_CAPABILITY: 400,
        ErrorCode.UNSUPPORTED_VERSION: 400,
    }
)


def http_status(code: int, era: Era) -> int:
    """The HTTP status that goes with a JSON-RPC error to a *request* that could be read.

    The modern era puts the error's kind into the status; the session era answers 200 to every request that it
    understood well enough to answer it.
    """
    if era is Era.MODERN or code in (ErrorCode.PARSE_ERROR, ErrorCode.INVALID_REQUEST):
        return _HTTP_STATUS.get(code, 200)
    return 200


_SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(r"[\x20-\x7e]*")


def encode_header_value(value: str) -> str:
    """`value` as it travels in `Mcp-Name` and `Mcp-Param-*`: plain where that is safe, else in the base64 form."""
    if _PLAIN.fullmatch(value) and value == value.strip(" ") and not _SENTINEL.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_header_value(value: str) -> str | None:
    """The inverse; None when the base64 form is broken, so that it can never equal a value in the body."""
    match = _SENTINEL.fullmatch(value) if value[:2] == "=?" else None
    if match is None:
        return value
    try:
        decoded = base64.b64decode(match[1], validate=True)
        # b64decode ignores stray bits at the end: two spellings of one value would pass different checks
        return decoded.decode() if base64.b64encode(decoded).decode() == match[1] else None
    except (binascii.Error, ValueError):
        return None


def request_meta(
    version: str, *, client: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The `_meta` that every request of the modern era carries."""
    meta: dict[str, Any] = {Meta.PROTOCOL_VERSION: version, Meta.CLIENT_CAPABILITIES: dict(capabilities or {})}
    if client is not None:
        meta[Meta.CLIENT_INFO] = dict(client)
    return meta


def request_headers(version: str, method: str, params: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The headers that every request of the modern era carries, apart from the tool's own `Mcp-Param-*`."""
    headers = {Header.PROTOCOL_VERSION.value: version, Header.METHOD.value: str(method)}
    key = NAME_PARAM.get(method)
    if key is not None and params is not None and isinstance(params.get(key), str):
        headers[Header.NAME.value] = encode_header_value(params[key])
    return headers


RequestId = int | str | None
"""The id of a JSON-RPC request; None where it could not be read."""


def request_body(request_id: int | str, method: str, params: Mapping[str, Any] | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": str(method)}
    if params is not None:
        message["params"] = params
    return msgspec.json.encode(message)


def notification_body(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": str(method)}
    if params is not None:
        message["params"] = params
    return msgspec.json.encode(message)


def result_body(request_id: RequestId | msgspec.Raw, result: Any) -> bytes:
    """A raw id goes back byte for byte: it may be an integer that no float holds."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_body(request_id: RequestId | msgspec.Raw, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": int(code), "message": message}
    if data is not None:
        error["data"] = data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def unknown_tool(name: str) -> str:
    """The message that goes with INVALID_PARAMS when a tool does not exist, in the specification's own words."""
    return f"Unknown tool: {name}"


def unsupported_version_data(requested: str, supported: Iterable[str] = MODERN_VERSIONS) -> dict[str, Any]:
    """The `data` that goes with UNSUPPORTED_VERSION."""
    return {"supported": list(supported), "requested": requested}
