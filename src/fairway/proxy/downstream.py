"""Connections from clients: one request at work at a time, forwarded to a server, answered in order.

A client that closes its side has gone: what is at work for it is abandoned at once, as that is how MCP cancels.
Deadlines are numbers that the listener's sweep compares, so that no request pays for a timer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from time import monotonic, time
from typing import TYPE_CHECKING, Final, cast

from fairway.mcp.protocol import ErrorCode
from fairway.proxy.answers import RETRY_SOON, Answer, Refusal, bad_gateway, render, status_line, timed_out
from fairway.proxy.endpoints import Endpoint
from fairway.proxy.legacy import ACCEPTED, LegacyStream
from fairway.proxy.lists import EventRewriter, JsonRewriter, Rewriter, UnreadableList
from fairway.proxy.middleware import seal
from fairway.proxy.pipeline import (
    Policy,
    announced,
    check_head,
    check_message,
    judge_again,
    record,
    sealed_session,
    settle,
)
from fairway.proxy.reader import RequestReader
from fairway.proxy.request import Request
from fairway.proxy.upstream import UpstreamConnection

if TYPE_CHECKING:
    from fairway.proxy.bridge.exchange import Exchange
    from fairway.proxy.listener import Listener

HEAD_TIMEOUT: Final = 10.0
"""Seconds for the head of a request, from its first byte."""
BODY_STALL: Final = 20.0
"""Seconds that a body may stand still."""
MESSAGE_TIMEOUT: Final = 300.0
"""Seconds for a whole request, however steadily it trickles in."""
LINGER: Final = 2.0
"""Seconds that a client which is still sending has to read why it was refused."""
FAREWELL: Final = 120.0
"""Seconds that a client has to read the last of its answers."""
MAX_QUEUED: Final = 16
"""Requests that are read ahead of the one at work before the client is no longer read from."""
CONNECT_ATTEMPTS: Final = 3
CLIENT_GONE: Final = 499
"""What metrics count for a request whose client did not wait for the answer."""
_HIGH_WATER: Final = 256 << 10
_JOINED: Final = 16 << 10
"""Bytes up to which copying is cheaper than writing several buffers."""
_FOREVER: Final = float("inf")
_CLOSING: Final = Refusal(503, "the proxy is closing down", ErrorCode.INTERNAL_ERROR, RETRY_SOON)
_FULL: Final = Refusal(503, "too many connections", ErrorCode.INTERNAL_ERROR, RETRY_SOON)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_SSE: Final = b"text/event-stream"
_JSON: Final = b"application/json"


@lru_cache(maxsize=256)
def media_type(content_type: bytes) -> bytes:
    """Without parameters, in lower case."""
    return content_type.partition(b";")[0].strip().lower()


class ClientConnection(asyncio.Protocol):
    """One connection of a client; also the sink of the server's answer."""

    __slots__ = (
        "_answering",
        "_chunked",
        "_endpoint",
        "_held_head",
        "_last",
        "_listener",
        "_loop",
        "_message_began",
        "_out",
        "_reader",
        "_reading_paused",
        "_rewriter",
        "_started",
        "_status",
        "_upstream",
        "_waiting",
        "_write_paused",
        "current",
        "deadline",
        "transport",
    )

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._loop = listener.loop
        self._reader = RequestReader(listener.judge_head, listener.budget)
        self._reading_paused = False
        self._message_began = 0.0
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.deadline = _FOREVER
        self.current: Request | None = None
        self._started = 0.0
        self._waiting: asyncio.Task[None] | None = None
        """For somebody else to say who sent the request, or for a connection to a server."""
        self._endpoint: Endpoint | None = None
        self._upstream: UpstreamConnection | Exchange | None = None
        self._answering = False
        """The head of the answer has gone out."""
        self._status = 0
        self._chunked = False
        self._last = False
        """The connection ends with the answer at work."""
        self._rewriter: Rewriter | None = None
        self._held_head: list[bytes] | None = None
        self._out: list[bytes] = []
        self._write_paused = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER)
        address = transport.get_extra_info("peername")
        self._reader.peer = address[0] if address else "-"
        self.deadline = monotonic() + self._listener.idle_seconds
        if not self._listener.began(self):
            self._reader.stop()
            self.transport.write(render(_FULL, close=True))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        began = reader.incoming is not None
        reader.feed(data)
        if self.current is not None:
            if len(reader.ready) > MAX_QUEUED and not self._reading_paused:
                self._reading_paused = True
                self.transport.pause_reading()
            return
        if reader.ready:
            self._pump()
        elif reader.incoming is not None:
            self._expect_more(monotonic(), fresh=not began)

    def _expect_more(self, now: float, *, fresh: bool) -> None:
        """A message has begun, and nothing else is to do."""
        reader = self._reader
        if reader.wants_continue:
            reader.wants_continue = False
            self.transport.write(_CONTINUE)
        if fresh:
            self._message_began = now
            self.deadline = now + HEAD_TIMEOUT
        if reader.head_done:
            self.deadline = min(now + BODY_STALL, self._message_began + MESSAGE_TIMEOUT)

    def eof_received(self) -> None:
        self._abandon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._listener.ended(self)
        self._abandon()

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._upstream is not None:
            self._upstream.pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._upstream is not None:
            self._upstream.resume()
        else:
            self._pump()

    # one request at work

    def _pump(self) -> None:
        ready = self._reader.ready
        while self.current is None and ready and not self._write_paused:
            self._start(ready.pop(0))
        if self._reading_paused and len(ready) <= MAX_QUEUED:
            self._reading_paused = False
            self.transport.resume_reading()

    def _start(self, request: Request) -> None:
        self.current = request
        self._started = monotonic()
        self._answering = False
        self._last = not request.keep_alive
        refusal = request.refusal
        policy, route = request.policy, request.route
        if refusal is None and route is not None and policy is not route.policy:
            # it waited for the one before it, and other settings came meanwhile
            policy = request.policy = route.policy
            refusal = check_head(request, policy)
        if refusal is not None:
            self._refuse(refusal)
            return
        assert policy is not None
        self.deadline = self._started + policy.call_seconds
        if request.principal is None:
            self._waiting = self._loop.create_task(self._settle(request, policy))
        else:
            self._proceed(request, policy)

    async def _settle(self, request: Request, policy: Policy) -> None:
        refusal = await settle(request, policy)
        self._waiting = None
        if refusal is None:
            self._proceed(request, policy)
        else:
            self._refuse(refusal)
        self._pump()

    def _proceed(self, request: Request, policy: Policy) -> None:
        """The sender is known."""
        assert request.route is not None
        refusal = check_message(request, policy)
        if refusal is None:
            choice = request.route.upstream.pick(request.pin)
            if isinstance(choice, Endpoint):
                if request.sealed and request.request_id:
                    self._expect_on_stream(request)
                self._forward(request, choice)
                return
            refusal = choice
        self._refuse(refusal)

    def _forward(self, request: Request, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        endpoint.in_flight += 1
        if endpoint.bridge is not None:
            self._upstream = exchange = endpoint.bridge.exchange(self, request)
            endpoint.bridge.receive(exchange, request)
            return
        connection = endpoint.pool.take()
        if connection is not None:
            self._send(request, endpoint, connection)
        else:
            self._waiting = self._loop.create_task(self._connect(request, endpoint))

    async def _connect(self, request: Request, endpoint: Endpoint) -> None:
        """Nothing has been sent yet, so another server may be tried when one cannot be reached."""
        policy, route = request.policy, request.route
        assert policy is not None
        assert route is not None
        refusal = bad_gateway("no server could be reached")
        for _ in range(CONNECT_ATTEMPTS):
            try:
                connection = await endpoint.pool.connect(policy.connect_seconds)
            except (OSError, TimeoutError) as error:
                route.connect_failed(endpoint, error)
            else:
                self._waiting = None
                self._send(request, endpoint, connection)
                return
            self._release()
            choice = route.upstream.pick(request.pin)
            if isinstance(choice, Refusal):
                refusal = choice
                break
            endpoint = self._endpoint = choice
            endpoint.in_flight += 1
        self._waiting = None
        self._release()
        self._refuse(refusal)
        self._pump()

    def _send(self, request: Request, endpoint: Endpoint, connection: UpstreamConnection) -> None:
        self._upstream = connection
        start = endpoint.head(request.method, request.query, request.target)
        body = request.body
        if request.method == b"POST":
            head = b"".join((start, *request.lines, b"Content-Length: %d\r\n\r\n" % len(body)))
        else:
            head = b"".join((start, *request.lines, b"\r\n"))
        connection.send(self, request.method, head, body)

    def _release(self) -> None:
        if self._endpoint is not None:
            self._endpoint.in_flight -= 1
            self._endpoint = None

    def _refuse(self, refusal: Refusal | Answer) -> None:
        """Answers the current request in place of a server."""
        request = self.current
        assert request is not None
        self._status = refusal.status
        if isinstance(refusal, Refusal):
            request.code = refusal.code
            request.detail = refusal.detail or refusal.message
            if request.legacy and request.sealed and request.request_id:
                refusal = self._refuse_on_stream(request, refusal)
        self._last = self._last or self._listener.leaving
        self._out = []
        self.transport.write(
            render(
                refusal,
                request_id=request.request_id,
                close=self._last,
                http10=request.http10,
                without_body=request.method == b"HEAD",
                more=request.answer_lines,
            )
        )
        self._finish()

    def _refuse_on_stream(self, request: Request, refusal: Refusal) -> Refusal | Answer:
        """Tells a client of the old transport where it listens, if that is here; returns the answer to its POST."""
        assert request.route is not None
        stream = request.route.streams.get(request.sealed)
        if stream is not None and stream.refuse(request.request_id, refusal):
            return ACCEPTED
        return refusal if refusal.status != 200 else replace(refusal, status=400)

    def _finish(self) -> None:
        """The current request has its answer."""
        request = self.current
        assert request is not None
        now = monotonic()
        record(request, self._status, now - self._started)
        self.current = None
        if request.legacy:
            self._leave_stream(request)
        if request.charged:
            self._reader.release(request)
        self._rewriter = None
        if self._last or self._listener.closing:
            self._hang_up()
        elif self._reader.incoming is not None:
            self._expect_more(now, fresh=True)
        else:
            self.deadline = now + self._listener.idle_seconds

    def _hang_up(self) -> None:
        """Ends the connection so that what was written arrives."""
        unread = self._reader.over
        self._reader.stop()
        if unread and not self.transport.is_closing() and self.transport.can_write_eof():
            # closing a socket with input that was never read would cut off the answer on its way
            self.deadline = monotonic() + LINGER
            self.transport.write_eof()
        else:
            # who does not read what is still to be written is not waited for without end
            self.deadline = monotonic() + FAREWELL
            self.transport.close()

    def _abandon(self) -> None:
        """The client has gone."""
        self._reader.stop()
        request = self.current
        if request is None:
            return
        self._reader.release(request)
        if self._upstream is not None:
            self._upstream.left()
            self._upstream = None
        self._give_up_waiting()
        record(request, CLIENT_GONE, monotonic() - self._started)
        self._leave_stream(request)
        self.current = None

    # a stream of the old transport

    def _legacy_stream(self, request: Request, policy: Policy, endpoint: Endpoint) -> LegacyStream:
        def announce(target: str) -> bytes:
            assert request.route is not None
            self._leave_stream(request)
            try:
                where, request.sealed = announced(request, policy, endpoint.place, target)
            except seal.TooLong as error:
                raise UnreadableList(str(error)) from None
            request.route.streams[request.sealed] = stream
            return where

        def insert(event: bytes) -> bool:
            if self._write_paused or not self._answering:
                return False
            self._put_body(event)
            self.flush()
            return True

        stream = LegacyStream(policy.lists(request), endpoint.upstream.endpoint_path, announce, insert)
        return stream

    def _expect_on_stream(self, request: Request) -> None:
        assert request.route is not None
        stream = request.route.streams.get(request.sealed)
        if stream is not None:
            stream.expect(request.request_id)

    def _leave_stream(self, request: Request) -> None:
        if request.legacy and request.endless and request.route is not None:
            request.route.streams.pop(request.sealed, None)

    def _awaited(self) -> bool:
        """Whether answers are still to come on a stream of the old transport."""
        return isinstance(self._rewriter, LegacyStream) and bool(self._rewriter.pending)

    # the answer, as the server's side hands it over

    def on_head(self, status: int, lines: list[bytes], headers: Mapping[bytes, bytes], length: int | None) -> None:
        request, endpoint = self.current, self._endpoint
        assert request is not None
        assert endpoint is not None
        policy = request.policy
        assert policy is not None
        self._status = status
        if status == 401 and policy.guards is not None and policy.guards.authenticator is not None:
            # it is the gateway whom the server does not trust: another token of the client's would change nothing
            self._give_up("the server refuses the gateway's credentials")
            return
        media = media_type(headers.get(b"content-type", b""))
        if media == _SSE:
            self.deadline = self._end_of_stream(request)
        if request.legacy and request.endless and media == _SSE and status == 200:
            request.rewrite = True
        if request.rewrite and 200 <= status < 300 and status not in (202, 204) and length != 0:
            if media not in (_SSE, _JSON):
                self._give_up("the server's list is neither JSON nor a stream of events")
                return
            if headers.get(b"content-encoding", b"identity") != b"identity":
                self._give_up("the server compressed a list, though it was asked not to")
                return
            lists = policy.lists(request)
            if request.legacy and request.endless:
                self._rewriter = self._legacy_stream(request, policy, endpoint)
            else:
                self._rewriter = EventRewriter(lists) if media == _SSE else JsonRewriter(lists)
        if b"mcp-session-id" in headers:
            try:
                lines = [*lines, sealed_session(request, policy, endpoint.place, headers[b"mcp-session-id"])]
            except seal.TooLong as error:
                self._give_up(str(error))
                return
        if request.answer_lines:
            lines = [line for line in lines if line[:15].lower() != b"access-control-"]
            lines.append(request.answer_lines)
        self._chunked = False
        head = [status_line(status), *lines]
        if request.method == b"HEAD" or status in (204, 304):
            if length is not None and status != 204:
                head.append(b"Content-Length: %d\r\n" % length)
        elif self._rewriter is not None and not self._rewriter.streams:
            self._held_head = head  # its length is known at the end
            return
        elif length is not None and self._rewriter is None:
            head.append(b"Content-Length: %d\r\n" % length)
        elif request.http10:
            self._last = True
        else:
            self._chunked = True
            head.append(b"Transfer-Encoding: chunked\r\n")
        self._put_head(head, request)
        if request.endless:
            self._settle_down(request, policy)

    def _settle_down(self, request: Request, policy: Policy) -> None:
        """The stream may be open for hours: what it holds on to, it holds on to thousands of times."""
        guards, token = policy.guards, request.headers.get(b"authorization")
        request.slim()
        if token is not None and guards is not None and guards.authenticator is not None:
            request.headers[b"authorization"] = guards.authenticator.as_remembered(token)
        if not self._reader.ready:
            self._reader.rest()

    def _put_head(self, head: list[bytes], request: Request) -> None:
        if self._last or self._listener.leaving:
            self._last = True
            head.append(b"Connection: close\r\n\r\n")
        else:
            head.append(b"Connection: keep-alive\r\n\r\n" if request.http10 else b"\r\n")
        self._out.append(b"".join(head))

    def _end_of_stream(self, request: Request) -> float:
        """An endless stream ends with the token that opened it."""
        if not request.endless or request.principal is None or request.principal.expires_at == _FOREVER:
            return _FOREVER
        return monotonic() + request.principal.expires_at - time()

    def on_body(self, piece: bytes) -> None:
        if self._rewriter is not None:
            try:
                piece = self._rewriter.feed(piece)
            except UnreadableList as error:
                self._give_up(str(error))
                return
        if piece:
            self._put_body(piece)
            if self._listener.closing and isinstance(self._rewriter, LegacyStream) and not self._awaited():
                self.end_stream()

    def _put_body(self, piece: bytes) -> None:
        if not self._chunked:
            self._out.append(piece)
        elif len(piece) < _JOINED:
            self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            self._out += (b"%x\r\n" % len(piece), piece, b"\r\n")

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        self._answering = True
        if len(out) == 1:
            self.transport.write(out[0])
        elif sum(map(len, out)) < _JOINED:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)

    def on_end(self) -> None:
        # the server's connection may be at work for somebody else from here on
        self._upstream = None
        self._release()
        if self._rewriter is not None and not self._end_rewriting(self._rewriter):
            return
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self.flush()
        self._finish()
        if self._reader.ready or self._reading_paused:
            self._pump()

    def _end_rewriting(self, rewriter: Rewriter) -> bool:
        request = self.current
        assert request is not None
        try:
            rest = rewriter.end()
        except UnreadableList as error:
            self.on_failure(str(error))
            return False
        if self._held_head is not None:
            head, self._held_head = self._held_head, None
            head.append(b"Content-Length: %d\r\n" % len(rest))
            self._put_head(head, request)
        if rest:
            self._put_body(rest)
        return True

    def _give_up(self, message: str) -> None:
        """The answer cannot be used, though the server is still giving it."""
        upstream = self._upstream
        self.on_failure(message)
        if upstream is not None:
            upstream.abort()

    def on_failure(self, message: str) -> None:
        self._upstream = None
        self._held_head = None
        endpoint = self._endpoint
        self._release()
        if endpoint is not None:
            endpoint.recheck.set()
        self._fail(bad_gateway(message))

    def _fail(self, refusal: Refusal) -> None:
        """Answers with the refusal, or cuts the connection if an answer has begun: half of one must not look whole."""
        if not self._answering:
            self._refuse(refusal)
            self._pump()
            return
        self.flush()
        self._last = True
        self._finish()

    # as time goes by

    def on_deadline(self) -> None:
        """Called by the sweep when `deadline` has passed."""
        self.deadline = _FOREVER
        request = self.current
        if request is not None:
            if request.endless and self._answering:
                self.end_stream()
                return
            self._give_up_waiting()
            seconds = request.policy.call_seconds if request.policy is not None else 0
            self._fail(timed_out(f"the server gave no answer within {seconds:g} s"))
        elif self._reader.incoming is not None:
            self._reader.stop()
            what = "body" if self._reader.head_done else "head"
            self.transport.write(render(Refusal(408, f"the {what} of the request took too long"), close=True))
            self.transport.close()
        elif self.transport.get_write_buffer_size() or self._reader.over:
            self.transport.abort()
        else:
            self.transport.close()

    def _give_up_waiting(self) -> None:
        """Nobody is asked any more about the request at work."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        self._release()
        self._held_head = None

    def drain(self, *, streams: bool = True) -> None:
        """No more requests: an idle connection ends now, an endless stream if `streams`, a call when it is answered."""
        request = self.current
        if request is None:
            if self._reader.incoming is None:
                self._hang_up()
        elif request.endless and streams and not self._awaited():
            self.end_stream()

    def judge_stream_again(self) -> None:
        """The settings may have changed since the stream at work was let in."""
        request = self.current
        assert request is not None
        if not judge_again(request):
            self.end_stream()
        elif self._rewriter is not None and request.policy is not None:
            self._rewriter.lists = request.policy.lists(request)

    def end_stream(self) -> None:
        """Ends the answer at work as if the server had ended it."""
        upstream = self._upstream
        if upstream is None or not self._answering:
            self._give_up_waiting()
            self._fail(_CLOSING)
            return
        self._rewriter = None
        self.on_end()
        upstream.abort()
