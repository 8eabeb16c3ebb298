"""Puts load on MCP servers over raw sockets: what benchmarks and tests under load use alike.

A `Client` is one connection that asks one thing at a time. `steady` asks at a fixed rate whatever the answers take,
`eager` asks again as soon as it is answered. Both leave it to the caller what is asked and what an answer is worth.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, cast

import httptools

from fairway.mcp import protocol

Address = tuple[str, int]
HOST: Final = "127.0.0.1"
NEVER: Final = 0
"""The status of a request that got no answer."""


def http_post(body: bytes, headers: Mapping[str, str] | None = None, *, path: str = "/mcp", host: str = HOST) -> bytes:
    """The bytes of a POST."""
    lines = {"Host": host, "Content-Type": protocol.JSON, "Accept": protocol.ACCEPT_BOTH, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def modern_call(
    request_id: int | str,
    tool: str,
    arguments: Any = None,
    headers: Mapping[str, str] | None = None,
    *,
    path: str = "/mcp",
) -> bytes:
    """The bytes of a tools/call as the modern era sends it."""
    params = {"name": tool, "arguments": arguments or {}, "_meta": _META}
    body = protocol.request_body(request_id, protocol.Method.TOOLS_CALL, params)
    named = protocol.request_headers(_VERSION, protocol.Method.TOOLS_CALL, params)
    return http_post(body, {**named, **(headers or {})}, path=path)


_VERSION: Final = protocol.LATEST_MODERN_VERSION
_META: Final = protocol.request_meta(_VERSION, client={"name": "load", "version": "1"})


class Client(asyncio.Protocol):
    """One connection. `on_answer` is called for each answer, or with status NEVER when the connection ends without one.

    What is known of the answer is in the attributes until the next `ask`. With `on_piece`, pieces of bodies are handed
    over as they come.
    """

    __slots__ = (
        "_done", "_parser", "_pieces", "asked_at", "body", "closed", "ends", "headers", "on_answer",
        "on_piece", "status", "tag", "transport", "unasked", "waiting",
    )  # fmt: skip

    def __init__(
        self, on_answer: Callable[["Client"], None], on_piece: Callable[["Client"], None] | None = None
    ) -> None:
        self.on_answer = on_answer
        self.on_piece = on_piece
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.tag: Any = None
        """The caller's own note of what is being asked."""
        self.asked_at = 0.0
        self.status = NEVER
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.ends = False
        """The server says that it closes after this answer."""
        self.closed = False
        self.waiting = False
        self.unasked = 0
        """Answers to nothing."""
        self._pieces: list[bytes] = []
        self._done = False
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, request: bytes, tag: Any = None) -> None:
        self.tag = tag
        self.status, self.headers, self.body, self._pieces = NEVER, {}, b"", []
        self.waiting = True
        self.asked_at = perf_counter()
        self.transport.write(request)

    def close(self) -> None:
        self.waiting = False
        self.transport.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.ends = True
            self.transport.abort()
            return
        if self._done:
            self._done = False
            if not self.waiting:
                self.unasked += 1
                return
            self.waiting = False
            if self._pieces:
                self.body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            if self.ends:
                self.transport.close()
            self.on_answer(self)
        elif self._pieces and self.on_piece is not None:
            self.on_piece(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.closed = True
        if self.waiting:
            self.waiting = False
            self.status = NEVER
            self.on_answer(self)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.ends = not self._parser.should_keep_alive() or self.headers.get(b"connection") == b"close"

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._done:
            self.unasked += 1
        self._done = True


async def connect(
    address: Address, on_answer: Callable[[Client], None], on_piece: Callable[[Client], None] | None = None
) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(on_answer, on_piece), *address)
    return client


class Eager:
    """Asks over a fixed number of connections, on each again as soon as it is answered.

    `next_request` gives the bytes and a tag, or None when there is nothing more to ask; `on_answer` may return seconds
    for which its connection pauses. A connection that ends is made anew to whatever `address` says then.
    """

    def __init__(
        self,
        *,
        address: Callable[[], Address],
        connections: int,
        next_request: Callable[[], tuple[bytes, Any] | None],
        on_answer: Callable[[Client], float | None],
    ) -> None:
        self._address = address
        self._connections = connections
        self._next = next_request
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._left = connections
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        """How often nobody listened."""
        self._clients: set[Client] = set()
        self._stopping = False

    async def run(self) -> None:
        """Until `next_request` gives nothing more and everything is answered."""
        for _ in range(self._connections):
            self._again()
        await self._over.wait()

    def stop(self) -> None:
        """Asks nothing more; what is at work is still answered."""
        self._stopping = True

    def _again(self) -> None:
        task = self._loop.create_task(self._open())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self) -> None:
        while True:
            if self._stopping:
                self._end()
                return
            try:
                client = await connect(self._address(), self._answered)
            except OSError:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                break
        self._clients.add(client)
        self._ask(client)

    def _ask(self, client: Client) -> None:
        if client.closed or client.ends or client.transport.is_closing():
            self._clients.discard(client)
            self._again()
            return
        request = None if self._stopping else self._next()
        if request is None:
            self._clients.discard(client)
            client.close()
            self._end()
            return
        client.ask(*request)

    def _answered(self, client: Client) -> None:
        pause = self._on_answer(client)
        if pause:
            self._loop.call_later(pause, self._ask, client)
        else:
            self._ask(client)

    def _end(self) -> None:
        self._left -= 1
        if not self._left:
            self._over.set()


class Steady:
    """Asks at a fixed rate. Latency counts from when a request was due, so that a stall is not hidden by waiting."""

    def __init__(self, *, address: Address, rate: float, request: Callable[[], bytes], spare: int = 8) -> None:
        self._address = address
        self._gap = 1 / rate
        self._request = request
        self._spare = spare
        self._idle: list[Client] = []
        self._all: set[Client] = set()
        self.latencies: list[float] = []
        """Seconds, of answers with status 200."""
        self.failures: dict[int, int] = {}
        """Other statuses, NEVER among them."""

    async def open(self) -> None:
        for _ in range(self._spare):
            client = await connect(self._address, self._answered)
            self._all.add(client)
            self._idle.append(client)

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due, end = perf_counter(), perf_counter() + seconds
        while due < end:
            wait = due - perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            while due <= perf_counter() and due < end:
                if self._idle:
                    self._ask(self._idle.pop(), due)
                else:
                    opening = loop.create_task(self._open_late(due))
                    opening.add_done_callback(lambda task: task.exception())
                due += self._gap
        async with asyncio.timeout(30):
            while any(client.waiting for client in self._all):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.005)

    def close(self) -> None:
        for client in self._all:
            client.close()

    async def _open_late(self, due: float) -> None:
        try:
            client = await connect(self._address, self._answered)
        except OSError:
            self._fail(NEVER)
            return
        self._all.add(client)
        self._ask(client, due)

    def _ask(self, client: Client, due: float) -> None:
        client.ask(self._request())
        client.asked_at = due

    def _answered(self, client: Client) -> None:
        if client.status == 200:
            self.latencies.append(perf_counter() - client.asked_at)
        else:
            self._fail(client.status)
        if client.closed or client.ends:
            self._all.discard(client)
        else:
            self._idle.append(client)

    def _fail(self, status: int) -> None:
        self.failures[status] = self.failures.get(status, 0) + 1


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all values stays below; infinite if there are none."""
    if not values:
        return float("inf")
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
