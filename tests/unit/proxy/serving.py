"""Real parts for the proxy's tests: an MCP server that is scripted byte by byte, a client that sees bytes, a proxy."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fairway.api.policy import NO_POLICY
from fairway.api.runconfig import Limits, Listen, Route, RunConfig, Timeouts, Tools, Upstream
from fairway.mcp.protocol import LATEST_MODERN_VERSION, MODERN_VERSIONS, Header, request_headers, request_meta
from fairway.proxy.files import FixedConfig
from fairway.proxy.gateway import Gateway
from fairway.proxy.topology import StandAlone

TOOLS = [
    {"name": "add", "description": "Adds", "inputSchema": {"type": "object"}},
    {"name": "secret", "description": "Hidden", "inputSchema": {"type": "object"}},
]
HANDSHAKE = ("server/discover", "initialize", "tools/list")
META = request_meta(LATEST_MODERN_VERSION)


@dataclass
class Got:
    """One request as the server saw it, byte for byte."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)


Answer = Callable[["Conversation", Got], Awaitable[None]]


class Conversation:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def port(self) -> int:
        return self.writer.get_extra_info("sockname")[1]

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def json(self, value: Any, *, status: str = "200 OK", headers: str = "") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def start_chunked(self, content_type: str = "text/event-stream", headers: str = "") -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
        self.send(head.encode())

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end_chunks(self) -> None:
        self.send(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Returns when the other side has closed."""
        while await self.reader.read(65536):
            pass


@dataclass
class ScriptedServer:
    """Speaks MCP well enough for handshakes and lists; `calls` decides on everything else."""

    calls: Answer | None = None
    tools: list[dict[str, Any]] = field(default_factory=lambda: list(TOOLS))
    got: list[Got] = field(default_factory=list)
    """All requests but those of handshakes."""
    handshakes: int = 0
    connections: int = 0
    closed: int = 0
    healthy: bool = True
    port: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(0)

    def drop_idle(self) -> None:
        """Closes every connection, as servers do with those that have been idle for too long."""
        for writer in self._open:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while (got := await read_request(reader)) is not None:
                await self._answer(Conversation(reader, writer), got)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed += 1
            self._open.discard(writer)
            writer.close()

    async def _answer(self, conversation: Conversation, got: Got) -> None:
        method = got.message.get("method") if got.body.startswith(b"{") else None
        if got.header("user-agent") != "test" and (got.method == "GET" or method in HANDSHAKE):
            self.handshakes += method == "server/discover"
            if not self.healthy or method not in ("server/discover", "tools/list"):
                conversation.json({"error": "down"}, status="500 Internal Server Error")
                return
            conversation.json({"jsonrpc": "2.0", "id": got.message["id"], "result": self.result(method)})
            return
        self.got.append(got)
        if self.calls is not None:
            await self.calls(conversation, got)
        elif method == "tools/list":
            conversation.json({"jsonrpc": "2.0", "id": got.message["id"], "result": self.result(method)})
        else:
            conversation.json({"jsonrpc": "2.0", "id": got.message.get("id"), "result": {"content": []}})

    def result(self, method: str) -> dict[str, Any]:
        if method == "tools/list":
            return {"tools": self.tools, "cacheScope": "public", "ttlMs": 1000, "resultType": "complete"}
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
        }


async def read_request(reader: asyncio.StreamReader) -> Got | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Got(method, target, headers, await reader.readexactly(length))


@dataclass
class Reply:
    """An answer as the client saw it."""

    status: int
    headers: dict[str, str]
    body: bytes
    chunks: list[bytes] = field(default_factory=list)

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.message["error"]["message"]


class RawClient:
    """One connection to the proxy, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, message: Any, headers: Mapping[str, str] | None = None, *, path: str = "/mcp") -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        lines = {"Host": "localhost", "User-Agent": "test", "Content-Type": "application/json", **(headers or {})}
        lines["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.send(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def get(self, headers: Mapping[str, str] | None = None, *, method: str = "GET", path: str = "/mcp") -> None:
        lines = {"Host": "localhost", "User-Agent": "test", "Accept": "text/event-stream", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    async def head(self) -> Reply:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Reply(int(first.split(" ")[1]), headers, b"")

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def reply(self, *, to_head: bool = False) -> Reply:
        reply = await self.head()
        if to_head or reply.status in (204, 304):
            return reply
        if reply.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                reply.chunks.append(chunk)
            reply.body = b"".join(reply.chunks)
        elif "content-length" in reply.headers:
            reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
        else:
            reply.body = await self.reader.read()
        return reply

    async def ask(self, message: Any, headers: Mapping[str, str] | None = None) -> Reply:
        self.post(message, headers)
        return await self.reply()

    async def closed(self) -> bytes:
        """What comes before the proxy closes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()


def call(name: str = "add", *, request_id: Any = 1, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def listing(request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/list"}


def modern(message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A request as the modern era sends it: with what it says of itself, and with the headers that repeat it."""
    params = {**message.get("params", {}), "_meta": META}
    return {**message, "params": params}, request_headers(LATEST_MODERN_VERSION, message["method"], params)


def spoken(message: dict[str, Any], version: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """A request in some revision; None leaves out the header, as the first ones do."""
    if version in MODERN_VERSIONS:
        return modern(message)
    return message, {} if version is None else {Header.PROTOCOL_VERSION.value: version}


def route(*addresses: str, name: str = "default/a", path: str = "/mcp", **settings: Any) -> Route:
    return Route(
        name=name,
        listen=Listen(
            host="127.0.0.1",
            port=settings.pop("port", 0),
            path=path,
            also=settings.pop("also", ()),
            tls=settings.pop("tls", None),
            **({"mode": settings.pop("mode")} if "mode" in settings else {}),
        ),
        upstream=settings.pop("upstream", None) or Upstream(addresses=addresses, path="/backend"),
        tools=settings.pop("tools", Tools()),
        timeouts=settings.pop("timeouts", Timeouts()),
        limits=settings.pop("limits", Limits(max_body=64 << 10)),
        policy=settings.pop("policy", NO_POLICY),
    )


class Proxy:
    """A gateway at work in this process."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def live(self, name: str = "default/a"):
        return self.gateway.routes[name]

    def address(self, name: str = "default/a") -> tuple[str, int]:
        host, _, port = self.live(name).listens_on.rpartition(":")
        return host, int(port)

    def url(self, name: str = "default/a") -> str:
        host, port = self.address(name)
        return f"http://{host}:{port}{self.live(name).route.listen.path}"

    async def client(self, name: str = "default/a", *, tls: ssl.SSLContext | None = None) -> RawClient:
        return RawClient(*await asyncio.open_connection(*self.address(name), ssl=tls))

    async def ask(self, message: Any, headers: Mapping[str, str] | None = None, *, name: str = "default/a") -> Reply:
        client = await self.client(name)
        try:
            return await client.ask(message, headers)
        finally:
            client.close()


@asynccontextmanager
async def proxy(*routes: Route, ready: bool = True, configs: Any = None, topology: Any = None) -> AsyncIterator[Proxy]:
    gateway = Gateway(configs or FixedConfig(RunConfig(version=1, routes=routes)), topology or StandAlone())
    work = asyncio.create_task(gateway.run())
    try:
        if ready:
            await until(lambda: gateway.ready or work.done())
        else:
            await until(lambda: bool(gateway.routes) or work.done())
        yield Proxy(gateway)
    finally:
        await gateway.stop(grace=0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@asynccontextmanager
async def idle_gateway(configs: Any) -> AsyncIterator[Gateway]:
    """A gateway that need not have anything to serve yet."""
    gateway = Gateway(configs, StandAlone())
    work = asyncio.create_task(gateway.run())
    try:
        await until(lambda: configs.state.error != "not read yet")
        yield gateway
    finally:
        await gateway.stop(grace=0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def server(calls: Answer | None = None, **settings: Any) -> AsyncIterator[ScriptedServer]:
    made = ScriptedServer(calls, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def until(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Waits for what no event tells of."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.005)
