"""One HTTP/1.1 connection to a server, and what may listen to it: as much of HTTP as an API server needs."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, cast

import httptools

from fairway.kube.errors import Unreachable

# Theory of operation. A `Connection` carries one exchange at a time and knows nothing of requests: it writes bytes, and
# feeds what comes back to a sink, which is a `Reply` (the whole answer as one value), a `Stream` (the body as it
# comes), or an `Upgrade` (after a 101 the connection is a tunnel's for good). It can be used again only if the exchange
# ended cleanly. Every way in which it can fail ends as an Unreachable in the sink or the tunnel.

_PAUSE_ABOVE = 4 * 1024 * 1024


Accept = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True)
class Answer:
    status: int
    raw_headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    body: bytes

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case; of several of one name, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}


class _Sink(Protocol):
    begun: bool

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...
    def chunk(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def fail(self, error: Unreachable) -> None: ...


class Tunnel(Protocol):
    """Speaks another protocol over a connection that was upgraded to it."""

    def opened(self, connection: "Connection", agreed: str) -> None:
        """`agreed` is what the server chose of what was offered."""

    def received(self, data: bytes) -> None: ...
    def writable(self, writable: bool) -> None: ...
    def lost(self, error: Unreachable) -> None: ...


class Connection(asyncio.Protocol):
    """One connection and the exchange that it is in, if any."""

    def __init__(self, on_lost: Callable[["Connection"], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: _Sink | None = None
        self._tunnel: Tunnel | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._until_close = False
        self.reusable = True
        self.used = 0
        self.idle_since = 0.0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, data: bytes, sink: _Sink) -> None:
        assert self._transport is not None
        self._sink = sink
        self.reusable = False
        self.used += 1
        self._transport.write(data)

    def write(self, data: bytes) -> None:
        if self.open:
            cast(asyncio.Transport, self._transport).write(data)

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        if self.open:
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume(self) -> None:
        if self.open:
            cast(asyncio.Transport, self._transport).resume_reading()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.received(data)
            return
        if self._sink is None:
            self.abort()  # who speaks unasked cannot be trusted with the next request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._not_http()

    def pause_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.writable(False)

    def resume_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sink is not None and self._until_close and exc is None:
            self._sink.end()
            self._sink = None
        error = Unreachable(f"the connection was lost{f': {exc}' if exc else ''}")
        self._fail(error)
        self._on_lost(self)
        if self._tunnel is not None:
            self._tunnel.lost(error)

    # httptools calls these.

    def on_message_begin(self) -> None:
        self._headers = []
        if self._sink is None:
            self.abort()  # an answer to nothing, in the same breath as the last one

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._sink is not None:
            framed = {name.lower() for name, _ in self._headers} & {b"content-length", b"transfer-encoding"}
            self._until_close = not framed and status not in (204, 304)
            self._sink.head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.chunk(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return  # an interim answer; the real one follows
        sink, self._sink = self._sink, None
        self.reusable = self._parser.should_keep_alive()
        if sink is not None:
            sink.end()

    def _switch(self, rest: bytes) -> None:
        """Behind the 101 the connection belongs to the tunnel, and what came with it is its first bytes."""
        sink = self._sink
        if not isinstance(sink, Upgrade) or self._parser.get_status_code() != 101:
            self._not_http()
            return
        self._sink = None
        answer = Answer(101, tuple(self._headers), b"")
        try:
            agreed = sink.accept(answer.headers)
        except ValueError as error:
            sink.fail(Unreachable(str(error)))
            self.abort()
            return
        self._tunnel = sink.tunnel
        self._tunnel.opened(self, agreed)
        sink.switched(answer)
        if rest:
            self._tunnel.received(rest)

    def _not_http(self) -> None:
        self._fail(Unreachable("the answer is not HTTP"))
        self.abort()

    def _fail(self, error: Unreachable) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.fail(error)


class Reply:
    """A sink that becomes one Answer."""

    def __init__(self, connection: Connection, *, limit: int | None) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begun = False
        self._connection = connection
        self._limit = limit
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = 0

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        self._status, self._headers = status, headers

    def chunk(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._limit is not None and self._size > self._limit:
            self.fail(Unreachable(f"the answer is longer than {self._limit} bytes"))
            self._connection.abort()

    def end(self) -> None:
        if not self.future.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self.future.set_result(Answer(self._status, tuple(self._headers), body))

    def fail(self, error: Unreachable) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        self.fail(Unreachable("timed out"))
        self._connection.abort()


class Upgrade(Reply):
    """A sink that becomes the 101 once its tunnel has the connection, or whatever the server answered instead.

    `accept` says what the headers of a 101 agree to, or raises ValueError.
    """

    def __init__(self, connection: Connection, tunnel: Tunnel, accept: Accept, *, limit: int) -> None:
        super().__init__(connection, limit=limit)
        self.tunnel = tunnel
        self.accept = accept

    def switched(self, answer: Answer) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class Stream:
    """A sink whose body is read while it comes; reading pauses when nobody takes it."""

    def __init__(self, connection: Connection) -> None:
        self.opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.begun = False
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self._connection = connection
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: Unreachable | None = None
        self._waiting: asyncio.Future[None] | None = None

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        self.raw_headers = headers
        if not self.opened.done():
            self.opened.set_result(status)

    def chunk(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _PAUSE_ABOVE and not self._paused:
            self._paused = True
            self._connection.pause()
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def fail(self, error: Unreachable) -> None:
        self._error = error
        if not self.opened.done():
            self.opened.set_exception(error)
        self._wake()

    async def read(self) -> bytes:
        """What has come since the last time, waiting for at least something; nothing at the end."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        part = self._parts.popleft()
        self._size -= len(part)
        if self._paused and self._size < _PAUSE_ABOVE // 2:
            self._paused = False
            self._connection.resume()
        return part

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
