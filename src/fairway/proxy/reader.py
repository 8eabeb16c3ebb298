"""Reads requests out of what clients send: HTTP/1.1 without I/O, strict where leniency would let two readers disagree.

The parser's callbacks fill a `Request`; complete ones wait in `ready`. What goes wrong before a message is complete
makes a request with a refusal, and then nothing more is read, for nobody knows where the next message would begin.
"""

from collections.abc import Callable
from typing import Any, Final

import httptools

from fairway.mcp.protocol import ErrorCode
from fairway.proxy.answers import RETRY_SOON, Answer, Refusal
from fairway.proxy.request import FATE, Fate, Request
from fairway.proxy.upstream import named_by, without_named

MAX_HEAD: Final = 64 << 10
MAX_HEADERS: Final = 128
_SLICE: Final = 4 << 10
"""Bytes by which a head may be larger than its limit before that is noticed."""
_FEW: Final = 64
_SPELT: Final = {
    spelt: (name, fate, spelt + b": ")
    for name, fate in FATE.items()
    for spelt in (name, name.title(), name.title().replace(b"Mcp-Protocol", b"MCP-Protocol"))
}
"""Headers as nearly everybody writes them: what is found here needs not be put into lower case first."""
_READ: Final = Fate.READ
_PASSED: Final = Fate.PASSED
_BUSY: Final = Refusal(503, "too many large requests at a time", ErrorCode.INTERNAL_ERROR, RETRY_SOON)

LARGE: Final = 8 << 10
"""Bytes beyond which a body counts against what all clients together may make the proxy hold."""

Judge = Callable[[Request], Refusal | Answer | None]
"""Finds the route for a head and says what it is answered at once, if anything. Sets `route` and `policy`."""


def _known(name: bytes) -> tuple[bytes, Fate, bytes] | None:
    """What `_SPELT` has, for another spelling."""
    key = name.lower()
    fate = FATE.get(key)
    return None if fate is None else (key, fate, name + b": ")


class Budget:
    """How much of large bodies is held at a time, for all clients of one listener together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        if self.used + size > self.limit:
            return False
        self.used += size
        return True


class RequestReader:
    """The input of one connection."""

    __slots__ = (
        "_budget",
        "_head_bytes",
        "_heading",
        "_judge",
        "_many",
        "_parser",
        "_pieces",
        "_replaying",
        "_size",
        "_upgrading",
        "head_done",
        "incoming",
        "over",
        "peer",
        "ready",
        "wants_continue",
    )

    def __init__(self, judge: Judge, budget: Budget) -> None:
        self._judge = judge
        self._budget = budget
        self._parser: Any = None
        self.incoming: Request | None = None
        """The message that has begun and is not complete."""
        self._heading: Request | None = None
        """The same, as long as its head is being read."""
        self.peer = ""
        """Who sends all this."""
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._many = bytearray()
        """What came before the pieces, once they had become many."""
        self._size = 0
        self._upgrading = self._replaying = False
        self.ready: list[Request] = []
        self.head_done = False
        """Of the message that is coming in."""
        self.over = False
        """Nothing that comes in is read any more."""
        self.wants_continue = False
        """The client holds its body back until it is asked for it."""

    def feed(self, data: bytes) -> None:
        if self.over:
            return
        if len(data) > _SLICE and self._head_bytes + len(data) > MAX_HEAD and not (self.incoming and self.head_done):
            # what comes in one piece must not carry a head past its limit unseen
            for start in range(0, len(data), _SLICE):
                self.feed(data[start : start + _SLICE])
            return
        complete = len(self.ready)
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            self._refuse(Refusal(400, f"this is no HTTP/1.1 request: {error}"))
        if self.incoming is not None and not self.head_done:
            # of a head that began behind others in this piece, nobody knows where: its first part goes uncounted
            self._head_bytes = self._head_bytes + len(data) if len(self.ready) == complete else 0
            if self._head_bytes > MAX_HEAD:
                self._refuse(Refusal(431, f"the head of a request must not be larger than {MAX_HEAD} bytes"))

    def stop(self) -> None:
        self.over = True
        if self.incoming is not None:
            self.release(self.incoming)
            self.incoming = self._heading = None
        self._drop_body()
        for request in self.ready:
            self.release(request)
        self.ready.clear()

    def rest(self) -> None:
        """Nothing is expected for a long time: lets go of what can be made anew."""
        if self.incoming is None:
            self._parser = None

    def release(self, request: Request) -> None:
        """The body is not needed any more."""
        if request.charged:
            self._budget.used -= request.charged
            request.charged = 0

    # httptools

    def on_message_begin(self) -> None:
        if not self._replaying and not self.over:
            self.incoming = self._heading = request = Request()
            request.peer = self.peer
            self.head_done = False
            self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self.incoming is not None and not self._replaying:
            self.incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._heading
        if request is None:
            return  # trailers are not passed on
        known = _SPELT.get(name) or _known(name)
        if known is None:
            other = name.lower(), name + b": " + value + b"\r\n"
            if request.others:
                request.others.append(other)
            else:
                request.others = [other]
            return
        key, fate, start = known
        if fate is not _PASSED:
            headers = request.headers
            if key in headers and key not in request.repeated:
                request.repeated += (key,)
            headers[key] = value
            if fate is _READ:
                return
        request.lines.append(start + value + b"\r\n")

    def on_headers_complete(self) -> None:
        request = self.incoming
        if request is None or self._replaying:
            return
        self.head_done = True
        self._heading = None
        self._upgrading = self._parser.should_upgrade()
        request.method = self._parser.get_method()
        request.refusal = self._check_http(request) or self._judge(request)
        headers = request.headers
        length = int(headers.get(b"content-length", 0))
        policy = request.policy
        if policy is not None and length > policy.max_body and request.refusal is None:
            request.refusal = _too_large(policy.max_body)
        if request.refusal is not None:
            if length or b"transfer-encoding" in headers:
                self._end(request)  # its body is not wanted, so what follows it is out of reach
        elif b"expect" in headers:
            self.wants_continue = not request.http10

    def on_body(self, piece: bytes) -> None:
        request = self.incoming
        if request is None:
            return
        self._size += len(piece)
        policy = request.policy
        if policy is not None and self._size > policy.max_body:
            request.refusal = _too_large(policy.max_body)
            self._end(request)
            return
        # what is read ahead is there for as long as what came before it takes, however small it is
        if (self._size > LARGE or self.ready) and not self._charge(request):
            return
        pieces = self._pieces
        if len(pieces) > _FEW:
            # a body in tiny chunks must not cost more than its bytes
            self._many += b"".join(pieces)
            pieces.clear()
        pieces.append(piece)

    def _charge(self, request: Request) -> bool:
        size = self._size - request.charged
        if not self._budget.take(size):
            request.refusal = _BUSY
            self._end(request)
            return False
        request.charged += size
        return True

    def on_message_complete(self) -> None:
        request = self.incoming
        if request is None or self._upgrading:
            return
        pieces = self._pieces
        if pieces:
            if len(pieces) == 1 and not self._many:
                request.body = pieces.pop()
                self._size = 0
            else:
                request.body = b"".join((self._many, *pieces))
                self._drop_body()
        request.keep_alive = self._parser.should_keep_alive()
        self.incoming = None
        self.wants_continue = False
        self.ready.append(request)

    def _drop_body(self) -> None:
        self._pieces = []
        self._size = 0
        if self._many:
            self._many = bytearray()

    # what is wrong

    def _check_http(self, request: Request) -> Refusal | None:
        headers = request.headers
        version = self._parser.get_http_version()
        if version != "1.1":
            if version != "1.0":
                return Refusal(505, "this server speaks HTTP/1.1")
            request.http10 = True
        if request.method == b"CONNECT":
            return Refusal(405, "this is no forward proxy")
        if len(request.lines) + len(request.others or ()) > MAX_HEADERS:
            return Refusal(431, f"a request must not have more than {MAX_HEADERS} headers")
        host = headers.get(b"host")
        if host is None or b"host" in request.repeated:
            return Refusal(400, "a request needs exactly one Host header")
        if b"transfer-encoding" in headers and (
            headers[b"transfer-encoding"].strip().lower() != b"chunked" or b"transfer-encoding" in request.repeated
        ):
            return Refusal(501, "the only transfer encoding is chunked")
        if b"expect" in headers and headers[b"expect"].strip().lower() != b"100-continue":
            return Refusal(417, "the only expectation is 100-continue")
        connection = headers.get(b"connection")
        if connection is not None:
            request.lines = without_named(request.lines, connection)
            if request.others:
                named = named_by(connection)
                request.others = [other for other in request.others if other[0] not in named]
        url = request.url
        if not url.startswith(b"/"):
            return self._check_absolute(request, host)
        request.path, _, request.query = url.partition(b"?")
        return None

    def _check_absolute(self, request: Request, host: bytes) -> Refusal | None:
        try:
            parts = httptools.parse_url(request.url)
        except httptools.HttpParserInvalidURLError:
            return Refusal(400, "the request target is not a URL")
        if not parts.schema or not parts.host:
            return Refusal(400, "the request target is not a path")
        authority = parts.host if parts.port is None else b"%b:%d" % (parts.host, parts.port)
        if authority.lower() != host.strip().lower():
            # who reads the one and who reads the other would think of different servers
            return Refusal(400, "the request target and the Host header name different hosts")
        request.path, request.query = parts.path or b"/", parts.query or b""
        return None

    def _refuse(self, refusal: Refusal) -> None:
        if self.over:
            return  # the first mistake counts
        request = self.incoming or Request()
        request.refusal = refusal
        self._end(request)

    def _end(self, request: Request) -> None:
        self.over = True
        self.incoming = self._heading = None
        self._drop_body()
        request.keep_alive = False
        self.ready.append(request)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """The parser stops where another protocol might begin; but the offer is declined, so HTTP goes on there.

        Some clients (Java's) offer HTTP/2 with their first request, which has a body all the same.
        """
        self._upgrading = False
        request = self.incoming
        if request is None:
            return
        if request.method == b"CONNECT":
            self._end(request)
            return
        headers = request.headers
        framing = b""
        if b"transfer-encoding" in headers:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif b"content-length" in headers:
            framing = b"Content-Length: %b\r\n" % headers[b"content-length"]
        self._parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self._parser.feed_data(b"POST / HTTP/1.%d\r\n%b\r\n" % (0 if request.http10 else 1, framing))
        self._replaying = False
        if rest:
            self.feed(rest)


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the body of a request must not be larger than {limit} bytes")
