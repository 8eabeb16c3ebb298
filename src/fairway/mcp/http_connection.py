"""One connection of the HTTP server: bytes to requests, requests to the handler, answers to bytes, in order."""

# Theory of operation
#
# One `Connection` per socket. The parser calls back as bytes arrive; a complete request goes to the handler at once if
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
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, cast

import httptools

from fairway.mcp.http_message import Handler, Limits, Request, Response, check_headers, refusal

log = logging.getLogger("fairway.http")

_NEVER: Final = float("inf")
_MAX_TARGET: Final = 8 << 10
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}
_NO_BODY: Final = (204, 304)


class Server(Protocol):
    """What a connection needs of the server that accepted it."""

    handler: Handler
    limits: Limits
    stopping: asyncio.Event
    buffered: int

    def opened(self, connection: "Connection") -> bool: ...
    def closed(self, connection: "Connection") -> None: ...
    def date(self) -> bytes: ...


class _Exchange(NamedTuple):
    """A request and what its answer has to know of the connection, or a refusal that ends it."""

    request: Request
    keep_alive: bool = False
    chunked_allowed: bool = True
    refusal: Response | None = None


class _RefusedError(Exception):
    """Raised inside a parser callback to stop the parser; the refusal itself is kept on the connection."""


_NO_REQUEST: Final = Request(method="", path="", headers={})


class Connection(asyncio.Protocol):
    """Serves one client until either side has enough."""

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
        "_peer",
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

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._peer = ""
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
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if not self._server.opened(self):
            self._discarding = True
            self._serve(_Exchange(_NO_REQUEST, refusal=refusal(503, "too many connections")))
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
            if self._refused is not None:
                self._refuse_with(self._refused)
            elif isinstance(error, httptools.HttpParserCallbackError):  # not the client's fault
                log.error("request failed", exc_info=error.__context__)
                self._refuse(500, "internal error")
            else:
                self._refuse(400, f"not HTTP/1.1: {error}")
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
        method = self._parser.get_method().decode("latin-1")
        return Request(method=method, path=path, query=query, headers=headers, body=body, peer=self._peer)

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
        self._refused = refusal(status, text)
        raise _RefusedError(text)

    # answering

    def _refuse(self, status: int, text: str) -> None:
        self._refuse_with(refusal(status, text))

    def _refuse_with(self, answer: Response) -> None:
        if self._discarding or self._transport.is_closing():
            return
        self._discarding = True
        self._in_message = False
        exchange = _Exchange(_NO_REQUEST, refusal=answer)
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
            if isinstance(answer, Response):
                check_headers(answer)
        except Exception:  # whatever the handler's bug is, other clients must not feel it
            log.exception("handler failed: %s %s", exchange.request.method, exchange.request.path)
            answer = refusal(500, "internal error")
        if isinstance(answer, Response) and isinstance(answer.body, bytes):
            self._write_whole(exchange, answer, answer.body)
            return True
        self._task = self._loop.create_task(self._answer(exchange, answer))
        return False

    async def _answer(self, exchange: _Exchange, answer: Response | Awaitable[Response]) -> None:
        try:
            response = answer if isinstance(answer, Response) else await answer
            check_headers(response)
        except Exception:  # as above
            log.exception("handler failed: %s %s", exchange.request.method, exchange.request.path)
            response = refusal(500, "internal error")
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
