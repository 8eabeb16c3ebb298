"""A small HTTP/1.1 client on asyncio: whole answers and event streams, with limits on time and size.

It follows no redirects and repeats nothing: what was asked once is asked once, and the caller sees what came back.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

import httptools

import fairway

MAX_HEAD: Final = 64 << 10
USER_AGENT: Final = f"fairway/{fairway.__version__}"
_READ_AHEAD: Final = 256 << 10
_REUSE_WITHIN: Final = 4.0
"""Seconds that an idle connection is trusted: common servers drop idle connections after five."""


class HttpError(Exception):
    """The exchange did not give an answer."""


class ConnectFailed(HttpError):
    """No connection, so nothing was sent. `refused` means that the host said that nothing listens there."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class TimedOut(HttpError):
    """The answer did not come, or did not end, in time."""


class ConnectionBroken(HttpError):
    """The other side closed the connection before the answer was complete."""


class NotHttp(HttpError):
    """What came back is not HTTP."""


class TooLarge(HttpError):
    """The answer is larger than the caller wants to hold."""


class InvalidUrl(ValueError):
    """Not an http or https URL that a request can be sent to."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Header names are in lower case; of a repeated header the last one counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case."""
        return media_type(self.headers)


def media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes."""

    connect: float = 5.0
    answer: float = 30.0
    """From the request to the head of the answer; for `request`, to the end of its body."""
    body: int = 16 << 20


@dataclass(frozen=True, slots=True)
class _Target:
    secure: bool
    host: str
    port: int

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def _split(url: str) -> tuple[_Target, str]:
    if not url.isascii() or any(c <= " " or c == "\x7f" for c in url):
        # urlsplit would drop line ends without a word
        raise InvalidUrl(f"{url!r} has characters that must be percent-encoded")
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidUrl(f"{url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidUrl(f"{url!r} is not an http or https URL")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(secure, parts.hostname, port or (443 if secure else 80)), path


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.idle_since = 0.0
        self._begin("GET")

    def _begin(self, method: str) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._method = method
        self._head: asyncio.Future[tuple[int, dict[str, str]]] | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._head_done = False
        self._complete = self._overrun = False
        self._keep_alive = False
        self._pieces: list[bytes] = []
        self._waiting_size = 0
        self._failure: HttpError | None = None
        self._news = asyncio.Event()

    @property
    def reusable(self) -> bool:
        return self._complete and self._keep_alive and not self._overrun and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, method: str, head: bytes, body: bytes) -> asyncio.Future[tuple[int, dict[str, str]]]:
        self._begin(method)
        self._head = asyncio.get_running_loop().create_future()
        self.transport.writelines([head, body] if body else [head])
        return self._head

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes in."""
        while True:
            if self._pieces:
                taken, self._pieces = self._pieces, []
                if self._waiting_size > _READ_AHEAD:
                    self.transport.resume_reading()
                self._waiting_size = 0
                for piece in taken:
                    yield piece
            elif self._complete:
                return
            elif self._failure is not None:
                raise self._failure
            else:
                self._news.clear()
                await self._news.wait()

    # asyncio

    def data_received(self, data: bytes) -> None:
        if self._head is None or self._complete:
            self.transport.abort()  # an answer that nobody asked for
            return
        if not self._head_done:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(NotHttp("the answer switches to another protocol"))
        except httptools.HttpParserError as error:
            if not self._complete:
                self._fail(NotHttp(f"the answer is not HTTP: {error}"))
            self._keep_alive = False
        if not self._head_done and self._head_size > MAX_HEAD:
            self._fail(TooLarge(f"the head of the answer is larger than {MAX_HEAD} bytes"))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._head_done and exc is None and not framed:
            self._complete = True  # then the end of the connection is the end of the answer
        if not self._complete:
            self._fail(ConnectionBroken("the connection was closed before the answer was complete"))
        self._news.set()

    # httptools

    def on_message_begin(self) -> None:
        if self._complete:
            self._overrun = True  # another answer follows that nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # trailers
        self._headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._complete:
            return
        if 100 <= status < 200:
            return
        self._head_done = True
        if self._method == "HEAD":
            self._complete = True
        if self._head is not None and not self._head.done():
            self._head.set_result((status, self._headers))

    def on_body(self, piece: bytes) -> None:
        if self._complete:
            return
        self._pieces.append(piece)
        before = self._waiting_size
        self._waiting_size += len(piece)
        if before <= _READ_AHEAD < self._waiting_size:
            self.transport.pause_reading()
        self._news.set()

    def on_message_complete(self) -> None:
        if not self._head_done:
            self._headers = {}  # an interim answer; the real one follows
            return
        if not self._complete:
            self._keep_alive = self._parser.should_keep_alive()
        self._complete = True
        self._news.set()

    def _fail(self, error: HttpError) -> None:
        if self._failure is None:
            self._failure = error
        if self._head is not None and not self._head.done():
            self._head.set_exception(self._failure)
        self._news.set()
        self.transport.abort()


@dataclass(slots=True)
class StreamedResponse:
    """An answer whose body is read while it comes in."""

    status: int
    headers: Mapping[str, str]
    _connection: _Connection

    @property
    def content_type(self) -> str:
        return media_type(self.headers)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.pieces()

    async def read(self, limit: int) -> bytes:
        body = bytearray()
        async for piece in self:
            body += piece
            if len(body) > limit:
                raise TooLarge(f"the answer is larger than {limit} bytes")
        return bytes(body)


@dataclass(slots=True)
class HttpClient:
    """Keeps a few idle connections for reuse. Close it when done."""

    limits: Limits = Limits()
    tls: ssl.SSLContext | None = None
    """For https; None trusts the system's authorities."""
    server_name: str = ""
    """Whom certificates must be for; empty means the host of the URL."""
    resolve: Callable[[str, int], Awaitable[str]] | None = None
    """Gives the address to connect to; None asks the system. Certificates are checked for the name in the URL."""
    _idle: dict[_Target, list[_Connection]] = field(default_factory=dict)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Response:
        """The whole answer."""
        limit = self.limits.answer if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                async with self.stream(method, url, headers=headers, body=body, timeout=limit) as response:
                    return Response(response.status, response.headers, await response.read(self.limits.body))
        except TimeoutError:
            raise TimedOut(f"no complete answer within {limit:g} s") from None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """The head of the answer; its body is read inside the block, and cut off when the block is left early."""
        target, path = _split(url)
        head = _head(method, path, target.authority, headers or {}, len(body))
        connection = await self._connect(target)
        try:
            limit = self.limits.answer if timeout is None else timeout
            try:
                async with asyncio.timeout(limit):
                    status, answered = await connection.send(method, head, body)
            except TimeoutError:
                raise TimedOut(f"no answer within {limit:g} s") from None
            yield StreamedResponse(status, answered, connection)
        finally:
            if connection.reusable:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.setdefault(target, []).append(connection)
            else:
                connection.transport.abort()

    async def _connect(self, target: _Target) -> _Connection:
        loop = asyncio.get_running_loop()
        idle = self._idle.get(target, [])
        while idle:
            connection = idle.pop()
            if connection.reusable and loop.time() - connection.idle_since < _REUSE_WITHIN:
                return connection
            connection.transport.abort()
        tls = (self.tls or ssl.create_default_context()) if target.secure else None
        where = f"{target.host}:{target.port}"
        try:
            async with asyncio.timeout(self.limits.connect):
                address = target.host if self.resolve is None else await self.resolve(target.host, target.port)
                _, connection = await loop.create_connection(
                    _Connection,
                    address,
                    target.port,
                    ssl=tls,
                    server_hostname=(self.server_name or target.host) if tls else None,
                )
        except TimeoutError:
            raise ConnectFailed(f"no connection to {where} within {self.limits.connect:g} s") from None
        except ConnectionRefusedError:
            raise ConnectFailed(f"nothing listens on {where}", refused=True) from None
        except socket.gaierror as error:
            raise ConnectFailed(f"{target.host} does not resolve: {error.strerror}") from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise ConnectFailed(f"TLS with {where} failed: {reason}") from None
        except UnicodeError:
            raise ConnectFailed(f"{target.host} is not a host name") from None
        except OSError as error:
            raise ConnectFailed(f"no connection to {where}: {error.strerror or error}") from None
        return connection

    async def aclose(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)


def _head(method: str, path: str, authority: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1"]
    names = {name.lower() for name in headers}
    if "user-agent" not in names:
        headers = {"User-Agent": USER_AGENT, **headers}
    if "host" not in names:
        lines.append(f"Host: {authority}")
    if length or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {length}")
    for name, value in headers.items():
        if any(c in "\r\n\0" for c in name + value):
            raise ValueError(f"header {name!r} has a line end in it")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
