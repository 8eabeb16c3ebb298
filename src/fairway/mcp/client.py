"""An MCP client of both eras: handshake, list of tools, calls.

Theory of operation. The core does no I/O: each operation is a generator that yields an `Ask` (one HTTP request), is
sent the `Answer` to it, and returns its result. Era, revision and session are decided there and nowhere else. `drive`
runs such a generator over an `HttpClient`; `McpClient` is both in one for everyday use.

The handshake asks `server/discover` first. A server that answers it, or that answers with an error which only the
modern era knows, is modern; everything else is given `initialize`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

import fairway
from fairway.mcp import protocol
from fairway.mcp.asking import Answer, Ask, exchange
from fairway.mcp.http import HttpClient, HttpError
from fairway.mcp.mirrored import InvalidAnnotationError, mirrored_arguments, mirrored_headers
from fairway.mcp.protocol import Era, ErrorCode, Header, Meta, Method

MAX_PAGES: Final = 200
MAX_TOOLS: Final = 10_000
MAX_TOOL_BYTES: Final = 16 << 20
DISCOVER_TIMEOUT: Final = 5.0
"""Some servers of the session era never answer a method that they do not know."""


class McpError(Exception):
    """The server did not do what was asked; the message says what was asked and what came back."""


class HttpRefused(McpError):
    """The server answered with an HTTP status and nothing that is MCP."""

    def __init__(self, ask: Ask, answer: Answer) -> None:
        super().__init__(f"{ask.title} answered {answer.title}")
        self.ask = ask
        self.answer = answer


class RpcError(McpError):
    """The server answered with a JSON-RPC error."""

    def __init__(self, title: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{title} answered error {code}: {message}")
        self.code = code
        self.message = message
        self.data = data


class HandshakeFailed(McpError):
    """It speaks MCP, but the handshake does not succeed."""


class _Reply(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Implementation(msgspec.Struct):
    name: str = ""
    version: str = ""


class _Discovered(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, Any] = {}
    server_info: _Implementation | None = None
    instructions: str | None = None
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}
    server_info: _Implementation | None = None
    instructions: str | None = None


class _ToolPage(msgspec.Struct, rename="camel"):
    tools: list[msgspec.Raw]
    next_cursor: str | None = None


class _Named(msgspec.Struct):
    name: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the server describes it: its name, and its JSON byte for byte."""

    name: str
    raw: bytes

    def decoded(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.json.decode(self.raw)
        return value


@dataclass(frozen=True, slots=True)
class ToolList:
    """`incomplete` says why the list stops before its end; empty when it does not."""

    tools: tuple[Tool, ...]
    incomplete: str = ""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Tools that the specification forbids clients to call, with the reason; those are left out of `tools`."""

    def usable(self) -> "ToolList":
        """As a client may use it."""
        wrong: dict[str, str] = {}
        for tool in self.tools:
            schema = tool.decoded().get("inputSchema")
            try:
                mirrored_arguments(schema if isinstance(schema, Mapping) else {})
            except InvalidAnnotationError as error:
                wrong[tool.name] = str(error)
        return replace(self, tools=tuple(t for t in self.tools if t.name not in wrong), unusable=wrong)


@dataclass(frozen=True, slots=True)
class Offered:
    """The names of what a list holds; `complete` unless it was too long to be read to its end."""

    names: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server says of itself."""

    name: str = ""
    version: str = ""


CLIENT: Final[Mapping[str, str]] = {"name": "fairway", "version": fairway.__version__}


@dataclass(slots=True)
class Session:
    """The outcome of a handshake, and the operations that it allows."""

    era: Era
    version: str
    versions: tuple[str, ...]
    server: ServerInfo
    capabilities: Mapping[str, Any]
    instructions: str = ""
    session_id: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=lambda: iter(range(1000, 1 << 53)), repr=False)

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Generator[Ask, Answer, msgspec.Raw]:
        """The raw result of any request."""
        result = yield from _ask(self._ask(method, params, headers or {}))
        return result

    def _ask(self, method: str, params: Mapping[str, Any] | None, extra: Mapping[str, str]) -> Ask:
        request_id = next(self._ids)
        sent = dict(params or {})
        if self.era is Era.MODERN:
            meta = {**protocol.request_meta(self.version, client=self.client), **sent.get("_meta", {})}
            sent["_meta"] = meta
            headers = protocol.request_headers(self.version, method, sent)
        else:
            headers = self._session_headers()
        body = protocol.request_body(request_id, method, sent or None)
        return Ask("POST", {**_POST, **headers, **extra}, body, method, request_id)

    def _session_headers(self) -> dict[str, str]:
        headers = {Header.PROTOCOL_VERSION.value: self.version}
        if self.session_id:
            headers[Header.SESSION_ID.value] = self.session_id
        return headers

    def list_tools(
        self, *, max_pages: int = MAX_PAGES, max_tools: int = MAX_TOOLS, max_bytes: int = MAX_TOOL_BYTES
    ) -> Generator[Ask, Answer, ToolList]:
        """All pages, within limits."""
        if "tools" not in self.capabilities:
            return ToolList(())
        tools: list[Tool] = []
        size = 0
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(max_pages):
            raw = yield from self.request(Method.TOOLS_LIST, {} if cursor is None else {"cursor": cursor})
            try:
                page = msgspec.json.decode(raw, type=_ToolPage)
                found = [Tool(msgspec.json.decode(tool, type=_Named).name, bytes(tool)) for tool in page.tools]
            except (msgspec.MsgspecError, RecursionError) as error:
                raise McpError(f"{Method.TOOLS_LIST} answered something that is no list of tools: {error}") from None
            tools += found
            size += sum(len(tool.raw) for tool in found)
            cursor = page.next_cursor
            if cursor is None:
                return ToolList(tuple(tools))
            if len(tools) >= max_tools or size >= max_bytes:
                return ToolList(tuple(tools[:max_tools]), f"stopped at {len(tools)} tools, {size} bytes")
            if cursor in seen:
                return ToolList(tuple(tools), "the server's pages go round in a circle")
            seen.add(cursor)
        return ToolList(tuple(tools), f"stopped after {max_pages} pages")

    def list_names(self, method: Method, member: str, key: str) -> Generator[Ask, Answer, Offered]:
        """What the items of a list are called: all pages, within limits. `member` holds them, `key` names each."""
        names: list[str] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            raw = yield from self.request(method, {} if cursor is None else {"cursor": cursor})
            try:
                page = msgspec.json.decode(raw, type=dict[str, Any])
                names += [str(item[key]) for item in page[member]]
                cursor = page.get("nextCursor")
            except (msgspec.MsgspecError, RecursionError, KeyError, TypeError) as error:
                raise McpError(f"{method} answered something that is no list of {member}: {error}") from None
            if cursor is None:
                return Offered(tuple(names))
            if len(names) >= MAX_TOOLS:
                break
        return Offered(tuple(names), complete=False)

    def call(
        self, name: str, arguments: Mapping[str, Any], *, schema: Mapping[str, Any] | None = None
    ) -> Generator[Ask, Answer, msgspec.Raw]:
        """The raw result of a tool. `schema` is the tool's inputSchema, for the headers that it may ask for."""
        headers: Mapping[str, str] = {}
        if schema is not None and self.era is Era.MODERN:
            try:
                headers = mirrored_headers(schema, arguments)
            except InvalidAnnotationError as error:
                raise McpError(f"the tool {name} must not be called: {error}") from None
        result = yield from self.request(Method.TOOLS_CALL, {"name": name, "arguments": arguments}, headers=headers)
        return result

    def close(self) -> Generator[Ask, Answer, None]:
        """Ends the server's session, if there is one; a server need not support that."""
        if self.session_id:
            yield Ask("DELETE", self._session_headers())


_POST: Final = {"Content-Type": protocol.JSON, "Accept": protocol.ACCEPT_BOTH}


def _ask(ask: Ask) -> Generator[Ask, Answer, msgspec.Raw]:
    answer = yield ask
    return _result(ask, answer)


def _result(ask: Ask, answer: Answer) -> msgspec.Raw:
    """The result in an answer. Raises RpcError for an error, HttpRefused when there is no JSON-RPC message in it."""
    if answer.message is None:
        raise HttpRefused(ask, answer)
    try:
        reply = msgspec.json.decode(answer.message, type=_Reply)
        if bytes(reply.error):
            error = msgspec.json.decode(reply.error, type=_Error)
            raise RpcError(ask.title, error.code, error.message, error.data)
    except (msgspec.MsgspecError, RecursionError):
        raise HttpRefused(ask, answer) from None
    if not bytes(reply.result):
        raise HttpRefused(ask, answer)
    return reply.result


def handshake(*, client: Mapping[str, str], era: Era | None = None) -> Generator[Ask, Answer, Session]:
    """Finds out how the server speaks. `client` is our own name and version; `era` insists on one of the two.

    Raises HttpRefused when nothing that came back was MCP, HandshakeFailed when it was, but does not fit.
    """
    version = protocol.LATEST_MODERN_VERSION
    for _ in range(0 if era is Era.SESSION else 2):
        params = {"_meta": protocol.request_meta(version, client=client)}
        headers = {**_POST, **protocol.request_headers(version, Method.DISCOVER)}
        body = protocol.request_body(1, Method.DISCOVER, params)
        ask = Ask("POST", headers, body, Method.DISCOVER, 1, DISCOVER_TIMEOUT)
        answer = yield ask
        if answer.status in (401, 403):
            raise HttpRefused(ask, answer)
        try:
            return _modern(_result(ask, answer), client)
        except RpcError as error:
            if error.code not in protocol.MODERN_ONLY_CODES:
                break
            mutual = _mutual_version(error)
            if mutual is None:
                break
            version = mutual
        except (HttpRefused, _NotModern):
            break
    if era is Era.MODERN:
        raise HandshakeFailed(f"the server does not speak MCP {', '.join(protocol.MODERN_VERSIONS)}")
    session = yield from _initialize(client)
    return session


class _NotModern(Exception):
    """The server answers server/discover, but offers no revision of the modern era."""


def _modern(result: msgspec.Raw, client: Mapping[str, str]) -> Session:
    try:
        found = msgspec.json.decode(result, type=_Discovered)
    except (msgspec.MsgspecError, RecursionError):
        raise _NotModern from None
    common = [v for v in protocol.MODERN_VERSIONS if v in found.supported_versions]
    if not common:
        raise _NotModern
    said = found.meta.get(Meta.SERVER_INFO, {})
    info = found.server_info or (
        _Implementation(str(said.get("name", "")), str(said.get("version", ""))) if isinstance(said, dict) else None
    )
    return Session(
        era=Era.MODERN,
        version=common[-1],
        versions=tuple(found.supported_versions),
        server=ServerInfo(info.name, info.version) if info else ServerInfo(),
        capabilities=found.capabilities,
        instructions=found.instructions or "",
        client=client,
    )


def _mutual_version(error: RpcError) -> str | None:
    """The revision to try next, None to go on with `initialize`; raises when neither can work."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    if error.code != ErrorCode.UNSUPPORTED_VERSION or not isinstance(supported, list):
        raise HandshakeFailed(str(error)) from None
    mutual = [v for v in protocol.MODERN_VERSIONS if v in supported]
    if mutual:
        return mutual[-1]
    if not any(v in protocol.SESSION_VERSIONS for v in supported):
        raise HandshakeFailed(
            f"the server speaks MCP {', '.join(map(str, supported))}, this client {', '.join(protocol.VERSIONS)}"
        ) from None
    return None


def _initialize(client: Mapping[str, str]) -> Generator[Ask, Answer, Session]:
    params = {
        "protocolVersion": protocol.LATEST_SESSION_VERSION,
        "capabilities": {},
        "clientInfo": {"name": client.get("name", ""), "version": client.get("version", "")},
    }
    ask = Ask("POST", _POST, protocol.request_body(2, Method.INITIALIZE, params), Method.INITIALIZE, 2)
    answer = yield ask
    try:
        result = _result(ask, answer)
    except RpcError as error:
        raise HandshakeFailed(str(error)) from None
    try:
        found = msgspec.json.decode(result, type=_Initialized)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HandshakeFailed(f"{ask.title} answered a result that is not one: {error}") from None
    session = Session(
        era=Era.SESSION,
        version=found.protocol_version,
        versions=(found.protocol_version,),
        server=ServerInfo(found.server_info.name, found.server_info.version) if found.server_info else ServerInfo(),
        capabilities=found.capabilities,
        instructions=found.instructions or "",
        session_id=answer.headers.get(Header.SESSION_ID.lower(), ""),
        client=client,
    )
    if found.protocol_version not in protocol.SESSION_VERSIONS:
        yield from session.close()
        raise HandshakeFailed(
            f"the server speaks MCP {found.protocol_version}, this client {', '.join(protocol.VERSIONS)}"
        )
    told = Ask(
        "POST",
        {**_POST, **session._session_headers()},
        protocol.notification_body(Method.INITIALIZED),
        Method.INITIALIZED,
    )
    answer = yield told
    if answer.status >= 400:
        raise HandshakeFailed(f"{told.title} answered {answer.title}")
    return session


T = TypeVar("T")


async def drive(
    steps: Generator[Ask, Answer, T], http: HttpClient, url: str, *, headers: Mapping[str, str] | None = None
) -> T:
    """Runs an operation of the core. Raises McpError, or HttpError when there was no answer at all."""
    return await run(steps, lambda ask: exchange(ask, http, url, headers or {}))


async def run(steps: Generator[Ask, Answer, T], exchange: Callable[[Ask], Awaitable[Answer]]) -> T:
    """Runs an operation of the core over whatever answers what it asks."""
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await exchange(ask))
    except StopIteration as stop:
        result: T = stop.value
        return result


@dataclass(slots=True)
class McpClient:
    """A session over HTTP: `async with McpClient.connect(url) as client`."""

    url: str
    http: HttpClient
    session: Session
    headers: Mapping[str, str]

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        http: HttpClient | None = None,
        headers: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
        era: Era | None = None,
    ) -> AsyncIterator["McpClient"]:
        """Shakes hands, and ends the session on leaving. `headers` go with every request, such as Authorization."""
        used = http or HttpClient()
        try:
            session = await drive(handshake(client=client or CLIENT, era=era), used, url, headers=headers)
            try:
                yield cls(url, used, session, headers or {})
            finally:
                with suppress(HttpError, McpError):
                    await drive(session.close(), used, url, headers=headers)
        finally:
            if http is None:
                await used.aclose()

    async def list_tools(self) -> ToolList:
        """Those that may be called."""
        listed = await drive(self.session.list_tools(), self.http, self.url, headers=self.headers)
        return listed.usable() if self.session.era is Era.MODERN else listed

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The decoded result; `isError` in it is the tool's own failure."""
        raw = await drive(self.session.call(name, arguments, schema=schema), self.http, self.url, headers=self.headers)
        result: dict[str, Any] = msgspec.json.decode(raw)
        kind = result.get("resultType", "complete")
        if kind != "complete":
            raise McpError(
                f"{Method.TOOLS_CALL} answered a result of type {kind}, which this client did not offer to take"
            )
        return result

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        raw = await drive(self.session.request(method, params), self.http, self.url, headers=self.headers)
        result: dict[str, Any] = msgspec.json.decode(raw)
        return result
