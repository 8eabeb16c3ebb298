"""Connections to servers: HTTP/1.1 answers read piece by piece and handed on, connections kept for reuse.

Nothing is sent twice. A kept connection is looked at before it is used again, so that a request is not given to one
that the server has closed meanwhile; once a byte of a request has been written, the request is answered or has failed.
"""

import asyncio
import re
import select
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Final, Protocol, cast

import httptools

from fairway.mcp.http import MAX_HEAD
from fairway.proxy.dialing import Dialer

_STALE_AFTER: Final = 0.05
"""Seconds of rest after which a kept connection is looked at before it is used."""
_JOINED: Final = 16 << 10
"""Bytes up to which copying is cheaper than writing two buffers."""
_TIMEOUT: Final = re.compile(rb"timeout=(\d{1,6})")

DROPPED: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"content-length",
        b"upgrade",
        b"trailer",
        b"te",
        b"mcp-session-id",  # clients know a sealed one
    }
)
NOTED: Final = frozenset({b"content-type", b"content-encoding"})
FATE: Final[Mapping[bytes, bool]] = {**dict.fromkeys(DROPPED, False), **dict.fromkeys(NOTED, True)}
"""Whether a header that is read here is passed on; all others are passed on unread."""


_NO_LINES: Final[list[bytes]] = []
_NO_HEADERS: Final[dict[bytes, bytes]] = {}
"""Of a connection that reads no head; never changed."""


class Sink(Protocol):
    """Takes an answer: `on_head` once, `on_body` any number of times, `on_end` once; `on_failure` ends it at any point.

    `flush` follows each batch of calls, so that a batch can become one write.
    """

    def on_head(self, status: int, lines: list[bytes], headers: Mapping[bytes, bytes], length: int | None) -> None: ...

    def on_body(self, piece: bytes) -> None: ...

    def flush(self) -> None: ...

    def on_end(self) -> None: ...

    def on_failure(self, message: str) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """One connection to a server, at work for one sink at a time, or kept in its pool."""

    __slots__ = (
        "_chunked",
        "_done",
        "_head_done",
        "_head_size",
        "_headers",
        "_keep",
        "_length",
        "_lines",
        "_method",
        "_overrun",
        "_parser",
        "_poll",
        "_pool",
        "idle_since",
        "idle_until",
        "kept_for",
        "sink",
        "transport",
    )

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self.sink: Sink | None = None
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser = httptools.HttpResponseParser(self)
        self._lines = _NO_LINES
        self._headers = _NO_HEADERS
        self._head_done = self._done = self._chunked = self._keep = self._overrun = False
        self._head_size = 0
        self._length: int | None = None
        self._method = b""
        self._poll: select.poll | None = None
        self.idle_since = self.idle_until = 0.0
        self.kept_for = 3600.0
        """Seconds that the server says it keeps an idle connection, less one."""

    # use

    def send(self, sink: Sink, method: bytes, head: bytes, body: bytes) -> None:
        self.sink = sink
        self._method = method
        self._head_done = self._done = False
        self._head_size = 0
        self._lines, self._headers = [], {}
        if len(body) < _JOINED:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def abort(self) -> None:
        """Hangs up on the server at once; the sink hears nothing more."""
        self.sink = None
        self._pool.forget(self)
        self.transport.abort()

    left = abort
    """The client has gone: over HTTP that is the same."""

    def pause(self) -> None:
        """The client does not read as fast as the server writes."""
        self.transport.pause_reading()

    def resume(self) -> None:
        self.transport.resume_reading()

    def is_alive(self) -> bool:
        """Whether the server still holds this kept connection open, as far as this machine can know."""
        if self.transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            fileno = self.transport.get_extra_info("socket").fileno()
            self._poll.register(fileno, select.POLLIN | select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return not self._poll.poll(0)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        keep_alive_probes(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        sink = self.sink
        if sink is None:
            self._pool.forget(self)  # a server that speaks unasked
            self.transport.abort()
            return
        if not self._head_done:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._done:
                self._fail(f"the server's answer is not HTTP: {error}")
                return
            self._keep = False
        if not self._head_done and self._head_size > MAX_HEAD:
            self._fail(f"the head of the server's answer is larger than {MAX_HEAD} bytes")
            return
        if self.sink is not sink:
            return  # the sink gave up on the way
        if self._done:
            self._finish(sink)
        else:
            sink.flush()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        sink = self.sink
        self._pool.forget(self)
        if sink is None:
            return
        self._pool.doubt()
        if self._head_done and exc is None and self._length is None and not self._chunked:
            self._done = True  # without a length, the end of the connection is the end of the answer
            self._keep = False
            self._finish(sink)
        elif self._head_done:
            self._fail("the server hung up before its answer was complete")
        else:
            self._fail("the server hung up without an answer")

    def pause_writing(self) -> None:
        """Nothing to stop: a request is written whole, and its size is limited."""

    def resume_writing(self) -> None: ...

    # httptools

    def on_message_begin(self) -> None:
        if self._done:
            # the beginning of an answer that nobody asked for: what comes next would be read as a part of it
            self._overrun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done or self._done:
            return  # trailers are not passed on
        key = name.lower()
        fate = FATE.get(key)
        if fate is not None:
            self._headers[key] = value
            if not fate:
                return
        self._lines.append(name + b": " + value + b"\r\n")

    def on_headers_complete(self) -> None:
        if self._done:
            return
        lines, headers = self._lines, self._headers
        status = self._parser.get_status_code()
        if status < 200:
            self._lines, self._headers = [], {}
            if status == 101:
                self._fail("the server switches to another protocol")
            return
        self._lines, self._headers = _NO_LINES, _NO_HEADERS
        sink = self.sink
        if sink is None:
            return
        self._head_done = True
        connection = headers.get(b"connection")
        if connection is not None:
            lines = without_named(lines, connection)
        promise = headers.get(b"keep-alive")
        if promise is not None and (match := _TIMEOUT.search(promise)) is not None:
            self.kept_for = max(0.0, float(match[1]) - 1)
        self._chunked = b"transfer-encoding" in headers
        length = headers.get(b"content-length")
        self._length = None if length is None else int(length)
        sink.on_head(status, lines, headers, self._length)
        if self._method == b"HEAD" or status in (204, 304):
            # the parser does not know that no body follows, so neither it nor the connection is used again
            self._keep = False
            self._done = True

    def on_body(self, piece: bytes) -> None:
        if not self._done and self.sink is not None:
            self.sink.on_body(piece)

    def on_message_complete(self) -> None:
        if self._head_done and not self._done:
            self._keep = self._parser.should_keep_alive()
            self._done = True

    def _finish(self, sink: Sink) -> None:
        self.sink = None
        if (
            self._keep
            and not self._overrun
            and not self.transport.is_closing()
            and not self.transport.get_write_buffer_size()
        ):
            self._pool.put_back(self)
        else:
            self._pool.forget(self)
            self.transport.close()
        sink.on_end()

    def _fail(self, message: str) -> None:
        sink = self.sink
        self.sink = None
        self._done = True
        self._pool.forget(self)
        self.transport.abort()
        if sink is not None:
            sink.on_failure(message)


class Pool:
    """The connections to one server. `open` holds all of them, also those at work."""

    __slots__ = ("_dialer", "_idle", "_idle_seconds", "_max_idle", "closed", "open")

    def __init__(self, dialer: Dialer, *, idle_seconds: float, max_idle: int) -> None:
        self._dialer = dialer
        self._idle_seconds = idle_seconds
        self._max_idle = max_idle
        self._idle: list[UpstreamConnection] = []
        self.open: set[UpstreamConnection] = set()
        self.closed = False

    def take(self) -> UpstreamConnection | None:
        """A kept connection that can be written to, the one used last first; None if a new one is needed."""
        idle = self._idle
        if not idle:
            return None
        now = monotonic()
        while idle:
            connection = idle.pop()
            rested = now - connection.idle_since
            if now < connection.idle_until and (
                (rested < _STALE_AFTER and not connection.transport.is_closing()) or connection.is_alive()
            ):
                return connection
            self.open.discard(connection)
            connection.transport.abort()
        return None

    async def connect(self, timeout: float) -> UpstreamConnection:
        """A new connection. Raises OSError or TimeoutError."""
        async with asyncio.timeout(timeout):
            connection = await self._dialer.dial(lambda: UpstreamConnection(self))
        self.open.add(connection)
        return connection

    def put_back(self, connection: UpstreamConnection) -> None:
        if self.closed or len(self._idle) >= self._max_idle:
            self.forget(connection)
            connection.transport.close()
            return
        now = monotonic()
        connection.idle_since = now
        connection.idle_until = now + min(self._idle_seconds, connection.kept_for)
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self.open.discard(connection)
        if connection.sink is None and self._idle:
            try:
                self._idle.remove(connection)
            except ValueError:
                return

    def doubt(self) -> None:
        """A connection has broken at work: the others may have too, and are looked at however short their rest."""
        for connection in self._idle:
            connection.idle_since = 0.0

    def sweep(self) -> None:
        """Closes what was kept for too long."""
        now = monotonic()
        expired = [connection for connection in self._idle if connection.idle_until <= now]
        for connection in expired:
            self.forget(connection)
            connection.transport.close()

    def close(self) -> None:
        """Closes what is idle, and lets what is at work finish."""
        self.closed = True
        for connection in [*self._idle]:
            self.forget(connection)
            connection.transport.close()


def keep_alive_probes(sock: socket.socket) -> None:
    """Has the kernel ask after a peer that has been silent, so that a dead one is noticed though a stream is quiet."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def without_named(lines: list[bytes], connection: bytes) -> list[bytes]:
    """Header lines without those that a Connection header claims for this one connection."""
    named = named_by(connection)
    return [line for line in lines if line.partition(b":")[0].lower() not in named] if named else lines


def named_by(connection: bytes) -> frozenset[bytes]:
    """The headers that a Connection header claims for this one connection, in lower case."""
    if connection.lower() in (b"keep-alive", b"close"):
        return _NONE
    return frozenset(name.strip().lower() for name in connection.split(b",")) - {b"close", b"keep-alive", b""}


_NONE: Final[frozenset[bytes]] = frozenset()
