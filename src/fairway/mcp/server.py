"""An MCP server of tools without I/O: a POST's headers and body in, an answer or a call to make out, in both eras."""

# Theory of operation
#
# `McpServer.receive` reads the JSON-RPC envelope once, decides which era the message belongs to, and goes through that
# era's checks in the order of the specification; the first that fails is the answer. What needs no tool is answered at
# once, from bytes that were made when the server was. A `tools/call` comes back as a `Call`: who does the I/O awaits
# the tool and lets the call word the answer.
#
# Nothing is remembered between two messages, so that any replica can answer any of them: the modern era demands it, and
# the session era allows it to a server that hands out no session id.

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from fairway.mcp import modern
from fairway.mcp.mirrored import InvalidAnnotationError, MirroredArgument, mirrored_arguments, mismatch
from fairway.mcp.modern import Refused
from fairway.mcp.protocol import (
    LATEST_SESSION_VERSION,
    MODERN_VERSIONS,
    SESSION_VERSIONS,
    Era,
    ErrorCode,
    Header,
    Meta,
    Method,
    era_of,
    error_body,
    http_status,
    result_body,
    unknown_tool,
)

_VERSION_HEADER: Final = Header.PROTOCOL_VERSION.lower()
_NO_ID: Final = msgspec.Raw(b"null")


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back: content blocks as they go over the wire, and the structured value as JSON text."""

    content: list[dict[str, Any]]
    structured: msgspec.Raw | None = None
    is_error: bool = False


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_error(message: str) -> ToolResult:
    """A failure that the model should read, as opposed to one of the protocol."""
    return ToolResult(content=[text_block(message)], is_error=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `call` gets the arguments as the JSON text of an object and should not raise: failures are results."""

    name: str
    call: Callable[[bytes], Awaitable[ToolResult]]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    description: str | None = None
    mirrored: tuple[MirroredArgument, ...] = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "mirrored", mirrored_arguments(self.input_schema))
        except InvalidAnnotationError as error:
            raise InvalidAnnotationError(f"tool {self.name}: {error}") from None

    def listed(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name}
        if self.description:
            entry["description"] = self.description
        entry["inputSchema"] = self.input_schema
        if self.output_schema is not None:
            entry["outputSchema"] = self.output_schema
        return entry


class Answer(msgspec.Struct, frozen=True):
    """An HTTP status and a JSON body; an empty body acknowledges a notification."""

    status: int
    body: bytes = b""


class Call(msgspec.Struct, frozen=True):
    """A checked `tools/call`: await `tool.call(arguments)`, then send `answer` of what it gave."""

    tool: Tool
    arguments: bytes
    request_id: msgspec.Raw
    stamp: dict[str, Any]

    def answer(self, result: ToolResult) -> Answer:
        members: dict[str, Any] = {"content": result.content, "isError": result.is_error}
        if result.structured is not None:
            members["structuredContent"] = result.structured
        return Answer(200, result_body(self.request_id, members | self.stamp))


class _Message(msgspec.Struct):
    jsonrpc: Any = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Params(msgspec.Struct):
    """Only what this server looks at; everything is checked by hand, since the order of the checks is specified."""

    meta: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="_meta")
    name: Any = msgspec.UNSET
    uri: Any = msgspec.UNSET
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cursor: Any = None
    protocolVersion: Any = None  # noqa: N815


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_params = msgspec.json.Decoder(_Params).decode
_decode_id = msgspec.json.Decoder(int | str).decode


class McpServer:
    """Answers MCP messages for a fixed set of tools. Header names are expected in lower case."""

    def __init__(
        self,
        *,
        name: str,
        version: str,
        tools: Iterable[Tool],
        instructions: str | None = None,
        ttl_ms: int = 60_000,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        info = {"name": name, "version": version}
        capabilities: dict[str, Any] = {"tools": {}}
        told = {} if instructions is None else {"instructions": instructions}
        self._stamp: dict[Era, dict[str, Any]] = {
            Era.SESSION: {},
            Era.MODERN: {"resultType": "complete", "_meta": _raw({Meta.SERVER_INFO.value: info})},
        }
        # the tools are the same for everybody, and new ones arrive only with a new process
        cacheable = {"ttlMs": ttl_ms, "cacheScope": "public"}
        listed = {"tools": _raw([tool.listed() for tool in self.tools.values()])}
        self._listed = {
            Era.SESSION: _raw(listed),
            Era.MODERN: _raw(listed | cacheable | self._stamp[Era.MODERN]),
        }
        self._discovered = _raw(
            {"supportedVersions": list(MODERN_VERSIONS), "capabilities": capabilities}
            | told
            | cacheable
            | self._stamp[Era.MODERN]
        )
        self._initialized = {
            version: _raw({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info} | told)
            for version in SESSION_VERSIONS
        }

    def receive(self, headers: Mapping[str, str], body: bytes) -> Answer | Call:
        """What to do about one POST."""
        request_id = _NO_ID
        era = era_of(headers.get(_VERSION_HEADER))
        try:
            message = _read(body)
            if message.id is not msgspec.UNSET:
                request_id = _checked_id(message.id)
            if message.method is msgspec.UNSET:
                return self._posted_response(message, era)
            params = _read_params(message)
            if params.meta is not msgspec.UNSET and era is Era.SESSION and _version(params.meta) is not msgspec.UNSET:
                era = Era.MODERN
            if message.id is msgspec.UNSET:
                return _notified(headers, era)
            if era is Era.SESSION:
                return self._in_session_era(message.method, params, request_id)
            modern.check(headers, message.method, modern.read_meta(params.meta), params.name, params.uri)
            return self._in_modern_era(headers, message.method, params, request_id)
        except Refused as refused:
            status = 400 if request_id is _NO_ID else http_status(refused.code, era)
            return Answer(status, error_body(request_id, refused.code, refused.message, refused.data))

    def _posted_response(self, message: _Message, era: Era) -> Answer:
        answers = message.result is not msgspec.UNSET or message.error is not msgspec.UNSET
        if era is Era.SESSION and answers:
            return Answer(202)  # nothing was asked, but a client of this era may answer nevertheless
        raise Refused(ErrorCode.INVALID_REQUEST, "the message has no method")

    def _in_session_era(self, method: str, params: _Params, request_id: msgspec.Raw) -> Answer | Call:
        match method:
            case Method.INITIALIZE:
                if not isinstance(params.protocolVersion, str):
                    raise Refused(ErrorCode.INVALID_PARAMS, "protocolVersion is missing")
                version = params.protocolVersion
                agreed = version if version in SESSION_VERSIONS else LATEST_SESSION_VERSION
                return Answer(200, result_body(request_id, self._initialized[agreed]))
            case Method.PING:
                return Answer(200, result_body(request_id, {}))
            case _:
                return self._in_both_eras(method, params, request_id, Era.SESSION)

    def _in_modern_era(
        self, headers: Mapping[str, str], method: str, params: _Params, request_id: msgspec.Raw
    ) -> Answer | Call:
        if method == Method.DISCOVER:
            return Answer(200, result_body(request_id, self._discovered))
        answer = self._in_both_eras(method, params, request_id, Era.MODERN)
        if isinstance(answer, Call) and answer.tool.mirrored:
            try:
                arguments = msgspec.json.decode(answer.arguments)
            except (ValueError, RecursionError):
                raise Refused(ErrorCode.INVALID_PARAMS, "arguments cannot be read") from None
            wrong = mismatch(answer.tool.mirrored, arguments, headers)
            if wrong is not None:
                raise Refused(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {wrong}")
        return answer

    def _in_both_eras(self, method: str, params: _Params, request_id: msgspec.Raw, era: Era) -> Answer | Call:
        match method:
            case Method.TOOLS_CALL:
                return self._called(params, request_id, era)
            case Method.TOOLS_LIST:
                if params.cursor is not None:
                    raise Refused(ErrorCode.INVALID_PARAMS, "unknown cursor: the tools come on one page")
                return Answer(200, result_body(request_id, self._listed[era]))
            case _:
                raise Refused(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")

    def _called(self, params: _Params, request_id: msgspec.Raw, era: Era) -> Call:
        if not isinstance(params.name, str):
            raise Refused(ErrorCode.INVALID_PARAMS, "params.name has to be the name of a tool")
        tool = self.tools.get(params.name)
        if tool is None:
            raise Refused(ErrorCode.INVALID_PARAMS, unknown_tool(params.name))
        arguments = b"{}" if params.arguments is msgspec.UNSET else bytes(params.arguments)
        if arguments == b"null":
            arguments = b"{}"
        if not arguments.startswith(b"{"):
            raise Refused(ErrorCode.INVALID_PARAMS, "params.arguments has to be an object")
        return Call(tool, arguments, request_id, self._stamp[era])


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _read(body: bytes) -> _Message:
    try:
        message = _decode_message(body)
    except msgspec.ValidationError as error:
        batch = body.lstrip()[:1] == b"["
        text = "batches are not accepted, send one message per POST" if batch else f"not a JSON-RPC message: {error}"
        raise Refused(ErrorCode.INVALID_REQUEST, text) from None
    except (ValueError, RecursionError) as error:
        raise Refused(ErrorCode.PARSE_ERROR, f"not JSON: {error}") from None
    if message.jsonrpc != "2.0":
        raise Refused(ErrorCode.INVALID_REQUEST, 'jsonrpc has to be "2.0"')
    return message


def _checked_id(raw: msgspec.Raw) -> msgspec.Raw:
    try:
        _decode_id(raw)
    except (ValueError, RecursionError):
        raise Refused(ErrorCode.INVALID_REQUEST, "id has to be a string or an integer") from None
    return raw


def _read_params(message: _Message) -> _Params:
    if message.params is msgspec.UNSET:
        return _Params()
    try:
        return _decode_params(message.params)
    except (ValueError, RecursionError):
        raise Refused(ErrorCode.INVALID_PARAMS, "params has to be an object") from None


def _version(meta: msgspec.Raw) -> Any:
    envelope = modern.read_meta(meta)
    return msgspec.UNSET if envelope is None else envelope.version


def _notified(headers: Mapping[str, str], era: Era) -> Answer:
    version = headers.get(_VERSION_HEADER)
    if era is Era.MODERN and version is not None and version not in MODERN_VERSIONS:
        raise modern.unsupported(version)
    return Answer(202)  # none of them asks a server of tools to do anything
