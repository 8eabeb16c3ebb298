"""A small HTTP/1.1 server on httptools: whole requests in, whole or streamed answers out."""

# Theory of operation
#
# One `_Connection` per socket. The parser calls back as bytes arrive; a complete request goes to the handler at once if
# the connection is free, else into a short queue, so that answers keep the order of the requests. The handler is a
# plain function. It returns a `Response`, which is written in the same turn of the loop, or an awaitable of one, which
# becomes a task that dies with the connection: that is how a client cancels a call.
#
# Reading goes on while a request is served, because only a reading socket learns that its peer has gone. It stops when
# the queue is full or the peer does not read its answers.
#
# Every phase has a deadline: one number per connection, looked at once a second, instead of one timer per request.
#
# What must be refused is answered in its turn; then the connection lingers for a moment and drops what still arrives,
# since closing with unread bytes makes the kernel send a reset, which would destroy the answer on its way.

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from ssl import SSLContext
from typing import Final, NamedTuple, cast

import httptools
import msgspec

log = logging.getLogger("fairway.http")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One whole request. Header names are lower case; a repeated header is one value, joined by commas.

    `path` and `query` are as they were sent: nothing is decoded or normalised.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str]
    body: bytes = b""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: a body of known length, or pieces that are sent as they come and end with the iterator."""

    status: int = 200
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | AsyncIterator[bytes] = b""


Handler = Callable[[Request], Response | Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may take; whatever exceeds a limit is refused with the status that says so."""

    header_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 8 << 20
    buffered_bytes: int = 128 << 20
    """All unanswered bodies together."""
    connections: int = 4096
    pipelined: int = 8
    header_seconds: float = 10
    body_seconds: float = 60
    idle_seconds: float = 75
    write_seconds: float = 60
    linger_seconds: float = 2


_NEVER: Final = float("inf")
_MAX_TARGET: Final = 8 << 10
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}
_NO_BODY: Final = (204, 304)


class _Exchange(NamedTuple):
    """A request and what its answer has to know of the connection, or a refusal that ends it."""

    request: Request
    keep_alive: bool = False
    chunked_allowed: bool = True
    refusal: Response | None = None


class _RefusedError(Exception):
    """Raised inside a parser callback to stop the parser; the refusal itself is kept on the connection."""


def _refusal(status: int, text: str) -> Response:
    return Response(status=status, content_type="application/json", body=msgspec.json.encode({"error": text}))


class HttpServer:
    """Serves one handler on any number of addresses until it is told to stop.

    `stopping` is set as soon as `stop` begins: endless streams should watch it and end.
    """

    def __init__(self, handler: Handler, *, limits: Limits | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.stopping = asyncio.Event()
        self.buffered = 0
        self.connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._all_closed = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._date = (0, b"")

    async def listen(self, *, host: str | None, port: int, ssl: SSLContext | None = None, backlog: int = 1024) -> int:
        """Binds and returns the port, which matters when 0 was asked for. OSError when the address is taken."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self, loop), host, port, ssl=ssl, backlog=backlog)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self, *, grace: float) -> bool:
        """Stops listening, lets requests in flight finish for `grace` seconds. False: some had to be cut off."""
        self.stopping.set()
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.close_when_idle()
        finished = True
        if self.connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), grace)
            except TimeoutError:
                finished = False
                for connection in tuple(self.connections):
                    connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        return finished

    def date(self) -> bytes:
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    def opened(self, connection: "_Connection") -> bool:
        """False when there is no room for one more."""
        if len(self.connections) >= self.limits.connections:
            return False
        self.connections.add(connection)
        if self._sweeper is None:
            self._sweep()
        return True

    def closed(self, connection: "_Connection") -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._all_closed.set()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self.connections):
            if connection.deadline < now:
                connection.out_of_time()
        # an idle server does not wake up for nothing
        self._sweeper = loop.call_later(1.0, self._sweep) if self.connections else None


class _Connection(asyncio.Protocol):
    """One client's connection: bytes to requests, requests to the handler, answers to bytes, in order."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_current",
        "_discarding",
        "_drained",
        "_headers",
        "_headers_done",
        "_in_message",
        "_last",
        "_loop",
        "_parser",
        "_queue",
        "_refused",
        "_replaying",
        "_server",
        "_target",
        "_task",
        "_transport",
        "_upgrading",
        "_wire_bytes",
        "deadline",
    )

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[_Exchange] = deque()
        self._current: _Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Event | None = None
        self._discarding = False
        self._last = False
        self._in_message = False
        self._upgrading = False
        self._replaying = False
        self._refused: Response | None = None
        self._target = b""
        self._headers: dict[str, str] = {}
        self._headers_done = False
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._wire_bytes = 0
        self.deadline = _NEVER

    # what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        if not self._server.opened(self):
            self._discarding = True
            self._serve(_Exchange(_NO_REQUEST, refusal=_refusal(503, "too many connections")))
            transport.close()
            return
        self.deadline = self._loop.time() + self._server.limits.header_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.closed(self)
        waiting = [*self._queue, self._current] if self._current is not None else self._queue
        self._server.buffered -= self._body_bytes + sum(len(exchange.request.body) for exchange in waiting)
        self._queue.clear()
        self._current = None
        self._body_bytes = 0
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None:
            self._drained.set()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._in_message:
            # counted here as well, since the parser hoards an unfinished header or trailer without telling
            self._wire_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            refused = self._refused
            self._refuse_with(refused if refused is not None else _refusal(400, f"not HTTP/1.1: {error}"))
            return
        if self._in_message:
            self._check_wire_bytes()

    def eof_received(self) -> bool:
        # a half-closed connection counts as gone: a client that left looks the same as one that only stopped talking
        return False

    def pause_writing(self) -> None:
        self._drained = asyncio.Event()
        self._transport.pause_reading()
        self.deadline = self._loop.time() + self._server.limits.write_seconds

    def resume_writing(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None
        if len(self._queue) < self._server.limits.pipelined:
            self._transport.resume_reading()
        self._set_deadline()

    # what the parser says

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        self._in_message = True
        self._upgrading = False
        self._headers_done = False
        self._target = b""
        self._headers = {}
        self._body = []
        self._wire_bytes = 0
        if self._current is None:
            self.deadline = self._loop.time() + self._server.limits.header_seconds

    def on_url(self, url: bytes) -> None:
        if self._replaying:
            return
        self._target += url
        if len(self._target) > _MAX_TARGET:
            self._stop_parsing(414, "the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headers_done or self._replaying:  # trailers mean nothing to us
            return
        headers = self._headers
        key = name.decode("latin-1").lower()
        # the parser keeps trailing blanks, which are not part of a value
        text = value.rstrip(b" \t").decode("latin-1")
        if key in headers:
            if key == "host":
                self._stop_parsing(400, "more than one Host header")
            text = f"{headers[key]}, {text}"
        elif len(headers) >= self._server.limits.headers:
            self._stop_parsing(431, "too many headers")
        headers[key] = text

    def on_headers_complete(self) -> None:
        if self._replaying:
            return
        self._headers_done = True
        limits = self._server.limits
        headers = self._headers
        if sum(len(k) + len(v) for k, v in headers.items()) > limits.header_bytes:
            self._stop_parsing(431, "the headers are too large")
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._stop_parsing(505, f"HTTP/{version} is not spoken here")
        if version == "1.1" and "host" not in headers:
            self._stop_parsing(400, "no Host header")
        coding = headers.get("transfer-encoding")
        if coding is not None and (coding.lower() != "chunked" or version == "1.0"):
            self._stop_parsing(501, "the only transfer coding is chunked")
        length = int(headers.get("content-length", "0"))
        if length > limits.body_bytes:
            self._stop_parsing(413, f"the body is larger than {limits.body_bytes} bytes")
        self._upgrading = self._parser.should_upgrade()
        expected = headers.get("expect")
        if expected is not None and version == "1.1":
            if expected.lower() != "100-continue":
                self._stop_parsing(417, "the only expectation is 100-continue")
            if (coding or length) and self._current is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._current is None:
            self.deadline = self._loop.time() + limits.body_seconds

    def on_body(self, body: bytes) -> None:
        server = self._server
        self._body_bytes += len(body)
        server.buffered += len(body)
        self._body.append(body)
        if self._body_bytes > server.limits.body_bytes:
            self._stop_parsing(413, f"the body is larger than {server.limits.body_bytes} bytes")
        if server.buffered > server.limits.buffered_bytes:
            self._stop_parsing(503, "too much is being sent at once")

    def on_message_complete(self) -> None:
        if self._upgrading and not self._replaying:
            return  # the parser claims that there is no body; _decline_upgrade reads it
        self._replaying = False
        self._in_message = False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body_bytes = 0
        self._body = []
        modern = self._parser.get_http_version() == "1.1"
        # HTTP/1.0 could keep connections too, by a header that no MCP client sends
        exchange = _Exchange(self._request(body), modern and self._parser.should_keep_alive(), modern)
        if self._current is None:
            self._begin(exchange)
        else:
            self._queue.append(exchange)
            if len(self._queue) >= self._server.limits.pipelined:
                self._transport.pause_reading()

    def _request(self, body: bytes) -> Request:
        headers = self._headers
        target = self._target.decode("latin-1")
        if not target.startswith("/") and "://" in target:  # absolute form: its authority wins over Host
            authority, slash, rest = target.partition("://")[2].partition("/")
            headers["host"] = authority
            target = slash + rest or "/"
        path, _, query = target.partition("?")
        return Request(
            method=self._parser.get_method().decode("latin-1"), path=path, query=query, headers=headers, body=body
        )

    def _decline_upgrade(self, rest: bytes) -> None:
        # Java's HTTP client offers `Upgrade: h2c` with its first request. Not taking the offer is right, but the parser
        # has already given up on the body; a second one is given the same framing without the offer.
        if self._parser.get_method() == b"CONNECT":
            self._refuse(405, "this is not a proxy")
            return
        framing = b""
        for name in ("content-length", "transfer-encoding", "connection"):
            value = self._headers.get(name)
            if name == "connection":
                value = "close" if value is not None and "close" in value.lower() else None
            if value is not None:
                framing += f"{name}: {value}\r\n".encode("latin-1")
        head = b"%b / HTTP/%b\r\n%b\r\n" % (
            self._parser.get_method(),
            self._parser.get_http_version().encode(),
            framing,
        )
        self._upgrading = False
        self._replaying = True
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _check_wire_bytes(self) -> None:
        limits = self._server.limits
        if not self._headers_done:
            if self._wire_bytes > limits.header_bytes:
                self._refuse(431, "the headers are too large")
        elif self._wire_bytes > limits.header_bytes + 2 * limits.body_bytes + (64 << 10):
            self._refuse(413, "the body takes too many chunks")

    def _stop_parsing(self, status: int, text: str) -> None:
        self._refused = _refusal(status, text)
        raise _RefusedError(text)

    # answering

    def _refuse(self, status: int, text: str) -> None:
        self._refuse_with(_refusal(status, text))

    def _refuse_with(self, refusal: Response) -> None:
        if self._discarding or self._transport.is_closing():
            return
        self._discarding = True
        self._in_message = False
        exchange = _Exchange(_NO_REQUEST, refusal=refusal)
        if self._current is None:
            self._begin(exchange)
        else:
            self._queue.append(exchange)

    def _begin(self, exchange: _Exchange) -> None:
        """Serves this exchange, and those waiting behind it for as long as answers come at once."""
        following: _Exchange | None = exchange
        while following is not None:
            self._current = following
            if not self._serve(following):
                self.deadline = _NEVER
                return
            following = self._next()

    def _serve(self, exchange: _Exchange) -> bool:
        """True when the answer has been written already."""
        try:
            answer = exchange.refusal or self._server.handler(exchange.request)
        except Exception:  # whatever the handler's bug is, other clients must not feel it
            log.exception("handler failed: %s %s", exchange.request.method, exchange.request.path)
            answer = _refusal(500, "internal error")
        if isinstance(answer, Response) and isinstance(answer.body, bytes):
            self._write_whole(exchange, answer, answer.body)
            return True
        self._task = self._loop.create_task(self._answer(exchange, answer))
        return False

    async def _answer(self, exchange: _Exchange, answer: Response | Awaitable[Response]) -> None:
        try:
            response = answer if isinstance(answer, Response) else await answer
        except Exception:  # as above
            log.exception("handler failed: %s %s", exchange.request.method, exchange.request.path)
            response = _refusal(500, "internal error")
        if self._transport.is_closing():
            return
        if isinstance(response.body, bytes):
            self._write_whole(exchange, response, response.body)
        else:
            try:
                await self._write_stream(exchange, response, response.body)
            except Exception:  # the status is out: a cut connection is all that can still tell the client
                log.exception("stream failed: %s %s", exchange.request.method, exchange.request.path)
                self._transport.abort()
        self._task = None
        following = self._next()
        if following is not None:
            self._begin(following)

    def _next(self) -> _Exchange | None:
        """Ends the current exchange; what is to be served next, if anything is."""
        if self._current is None:  # the connection was lost meanwhile
            return None
        self._server.buffered -= len(self._current.request.body)
        self._current = None
        if self._transport.is_closing() or self._last:
            return None
        if self._queue:
            following = self._queue.popleft()
            if self._drained is None:
                self._transport.resume_reading()
            return following
        if self._server.stopping.is_set():
            self.close_when_idle()
        else:
            self._set_deadline()
        return None

    def _head(self, exchange: _Exchange, response: Response, framing: bytes) -> bytes:
        if exchange.refusal is not None or not exchange.keep_alive or self._server.stopping.is_set():
            self._last = True
        status = response.status
        lines = [
            b"HTTP/1.1 %d %b\r\nDate: %b\r\n"
            % (status, _REASONS.get(status, "Status").encode("latin-1"), self._server.date())
        ]
        if response.content_type is not None:
            lines.append(f"Content-Type: {response.content_type}\r\n".encode("latin-1"))
        for name, value in response.headers:
            if "\r" in value or "\n" in value:
                raise ValueError(f"line break in the value of header {name}")
            lines.append(f"{name}: {value}\r\n".encode("latin-1"))
        lines.append(framing)
        lines.append(b"Connection: close\r\n\r\n" if self._last else b"\r\n")
        return b"".join(lines)

    def _write_whole(self, exchange: _Exchange, response: Response, body: bytes) -> None:
        framing = b"" if response.status in _NO_BODY else b"Content-Length: %d\r\n" % len(body)
        head = self._head(exchange, response, framing)
        if exchange.request.method == "HEAD" or response.status in _NO_BODY:
            body = b""
        self._transport.write(head + body)
        if self._last:
            self._close()

    async def _write_stream(self, exchange: _Exchange, response: Response, pieces: AsyncIterator[bytes]) -> None:
        chunked = exchange.chunked_allowed
        self._last = self._last or not chunked
        self._transport.write(self._head(exchange, response, b"Transfer-Encoding: chunked\r\n" if chunked else b""))
        try:
            if exchange.request.method != "HEAD":
                async for piece in pieces:
                    if piece:
                        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    if self._drained is not None:
                        await self._drained.wait()
                if chunked:
                    self._transport.write(b"0\r\n\r\n")
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()
        if self._last:
            self._close()

    # ending

    def close_when_idle(self) -> None:
        """Closes now if nothing is being received or served, else after the answer."""
        if self._current is None and not self._in_message:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def out_of_time(self) -> None:
        if self._discarding or self._drained is not None or self._transport.is_closing():
            self._transport.abort()
        elif self._in_message:
            self._refuse(408, "the request took too long to arrive")
        else:
            self._transport.close()

    def _set_deadline(self) -> None:
        if self._current is not None:
            self.deadline = _NEVER
        elif self._in_message:
            limits = self._server.limits
            self.deadline = self._loop.time() + (limits.body_seconds if self._headers_done else limits.header_seconds)
        else:
            self.deadline = self._loop.time() + self._server.limits.idle_seconds

    def _close(self) -> None:
        limits = self._server.limits
        if not self._discarding:
            self.deadline = self._loop.time() + limits.write_seconds
            self._transport.close()
            return
        self.deadline = self._loop.time() + limits.linger_seconds
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()


_NO_REQUEST: Final = Request(method="", path="", headers={})
