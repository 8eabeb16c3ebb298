"""HTTP to one API server: connections, credentials, limits, and the translation of failures into KubeErrors."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from fairway.kube.bucket import TokenBucket
from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Identity
from fairway.kube.errors import TooManyRequests, Unreachable, WatchSilent, from_response

Observer = Callable[[str, int], None]

_LONGEST_LINE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """One session to one server. Every failure that a caller can meet is a KubeError.

    Watches do not count against `connections`, or a few of them would starve everything else. A 429 pauses *all*
    requests for as long as the server asks, up to `patience` seconds; if it wants more, the caller hears of it and can
    do something else meanwhile.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str,
        connections: int = 32,
        rate: float = 0.0,
        burst: int = 1,
        timeout: float = 30.0,
        patience: float = 2.0,
        observe: Observer = lambda _method, _status: None,
    ) -> None:
        self._access = access
        self._base = access.server
        self._auth = access.authenticator()
        self._user_agent = user_agent
        self._slots = asyncio.Semaphore(connections)
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=time.monotonic)
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=10)
        self._patience = patience
        self._observe = observe
        self._paused_until = 0.0
        self._session: aiohttp.ClientSession | None = None

    @property
    def access(self) -> ClusterAccess:
        return self._access

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout: float | None = None,
        deadline: float | None = None,
        max_bytes: int | None = None,
        raise_for_status: bool = True,
    ) -> Answer:
        """One exchange. After `deadline` (monotonic clock) nothing is sent, and a request under way is dropped."""
        waited = 0.0
        renewed = False
        while True:
            await self._turn(deadline)
            try:
                return await self._exchange(
                    method, url, body, content_type, accept, timeout, deadline, max_bytes, raise_for_status
                )
            except _Rejected as rejected:
                if renewed or not self._auth.reject(rejected.identity):
                    raise rejected.error from None
                renewed = True
            except TooManyRequests as error:
                # The server did not act on the request, so repeating it is safe whatever the method.
                pause = error.retry_after if error.retry_after is not None else 1.0
                if waited + pause > self._patience:
                    raise
                waited += pause
                self._paused_until = max(self._paused_until, time.monotonic() + pause)

    async def lines(self, url: str, *, accept: str, silence: float) -> AsyncGenerator[bytes]:
        """The lines of an endless answer, as they come."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        renewed = False
        while True:
            try:
                async with self._open("GET", url, None, None, accept, timeout) as response:
                    if response.status >= 400:
                        raise from_response(response.status, await response.read(), response.headers)
                    async for line in _split(response.content):
                        yield line
                    return
            except _Rejected as rejected:
                if renewed or not self._auth.reject(rejected.identity):
                    raise rejected.error from None
                renewed = True
            except aiohttp.SocketTimeoutError as error:
                raise WatchSilent(f"the watch delivered nothing for {silence:g}s") from error

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        content_type: str | None,
        accept: str,
        seconds: float | None,
        deadline: float | None,
        max_bytes: int | None,
        raise_for_status: bool,
    ) -> Answer:
        async with self._slots:
            timeout = self._timeout
            if seconds is not None or deadline is not None:
                total = seconds if seconds is not None else self._timeout.total or 30.0
                if deadline is not None:
                    total = min(total, _remaining(deadline))
                timeout = aiohttp.ClientTimeout(total=total, sock_connect=10)
            async with self._open(method, url, body, content_type, accept, timeout) as response:
                content = await (response.read() if max_bytes is None else _read_at_most(response, max_bytes))
                if response.status >= 400 and raise_for_status:
                    raise from_response(response.status, content, response.headers)
                return Answer(response.status, response.headers, content)

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        url: str,
        body: bytes | None,
        content_type: str | None,
        accept: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        identity = await self._auth.identity()
        headers = {**identity.headers, "Accept": accept}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            async with self._http().request(
                method,
                URL(self._base + url, encoded=True),
                data=body,
                headers=headers,
                timeout=timeout,
                ssl=identity.ssl,
                server_hostname=self._access.server_name,
                proxy=self._access.proxy_url,
                allow_redirects=False,
            ) as response:
                self._observe(method, response.status)
                if response.status == 401:
                    error = from_response(401, await response.read(), response.headers)
                    raise _Rejected(identity, error)
                yield response
        except aiohttp.SocketTimeoutError:
            raise
        except TimeoutError as error:
            raise Unreachable(f"{method} {self._base} timed out") from error
        except aiohttp.ClientError as error:
            self._observe(method, 0)
            raise Unreachable(f"{method} {self._base}: {error or type(error).__name__}") from error

    async def _turn(self, deadline: float | None) -> None:
        """Waits for the client-side limit and for a pause that the server asked for."""
        now = time.monotonic()
        wait = max(self._bucket.reserve(), self._paused_until - now)
        if wait > 0:
            if deadline is not None and now + wait > deadline:
                raise Unreachable("there is no time left to send this")
            await asyncio.sleep(wait)

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Made here and not in the constructor because it belongs to the running loop.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, socket_factory=_socket),
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=1024 * 1024,
            )
        return self._session


class _Rejected(Exception):
    def __init__(self, identity: Identity, error: Exception) -> None:
        super().__init__(str(error))
        self.identity = identity
        self.error = error


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unreachable("there is no time left to send this")
    return left


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise Unreachable(f"the answer is longer than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)


async def _split(stream: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    rest: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            rest.append(chunk)
            size += len(chunk)
            if size > _LONGEST_LINE:
                raise Unreachable("a watch event is too long to be one")
            continue
        rest.append(head)
        yield b"".join(rest)
        *lines, last = tail.split(b"\n")
        for line in lines:
            yield line
        rest, size = [last], len(last)


def _socket(address: tuple[object, ...]) -> socket.socket:
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family, kind, protocol)  # type: ignore[arg-type]
    # A vanished peer must be noticed on idle connections too.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
