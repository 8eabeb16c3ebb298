"""Requests to one API server: credentials, limits, patience, and the translation of answers into KubeErrors."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from fairway.kube import websocket
from fairway.kube.bucket import TokenBucket
from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Identity
from fairway.kube.errors import KubeError, TooManyRequests, Unauthorized, Unreachable, from_response
from fairway.kube.http import Answer, Tunnel
from fairway.kube.pool import Pool, Site

__all__ = ["Answer", "Transport"]

Observer = Callable[[str, int], None]

_LONGEST_LINE = 64 * 1024 * 1024
_SHORTEST_PAUSE = 0.05
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Transport:
    """One server. Every failure that a caller can meet is a KubeError.

    Watches and websockets do not count against `connections`, or a few of them would starve everything else. A 429
    pauses *all* requests for as long as the server asks, up to `patience` seconds; if it wants more, the caller hears
    of it and can do something else meanwhile.
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
        self._auth = access.authenticator()
        self._server = _Server.of(access, user_agent)
        self._pool = Pool(self._server.site, limit=connections)
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=time.monotonic)
        self._timeout = timeout
        self._patience = patience
        self._observe = observe
        self._paused_until = 0.0
        self._common: tuple[Identity, bytes] | None = None

    @property
    def access(self) -> ClusterAccess:
        return self._access

    def limit(self, *, rate: float, burst: int) -> None:
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=time.monotonic)

    async def close(self) -> None:
        await self._pool.close()

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
            identity = await self._auth.identity()
            head = self._head(method, url, identity, body, content_type, accept)
            seconds = self._timeout if timeout is None else timeout
            if deadline is not None:
                seconds = min(seconds, _remaining(deadline))
            answer = await self._exchange(method, head, identity, seconds, max_bytes)
            if answer.status == 401 and not renewed and self._auth.reject(identity):
                renewed = True
                continue
            if answer.status < 400 or (not raise_for_status and answer.status != 429):
                return answer
            error = from_response(answer.status, answer.body, answer.headers)
            if not isinstance(error, TooManyRequests):
                raise error
            # The server did not act on the request, so repeating it is safe whatever the method.
            pause = self._pause(error)
            if waited + pause > self._patience:
                if raise_for_status:
                    raise error
                return answer
            waited += pause

    async def lines(self, url: str, *, accept: str, silence: float) -> AsyncGenerator[bytes]:
        """The lines of an endless answer, as they come. What is cut off before its newline is not one."""
        async with aclosing(self.chunks(url, accept=accept, silence=silence)) as chunks:
            rest: list[bytes] = []
            size = 0
            async for chunk in chunks:
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

    async def chunks(self, url: str, *, accept: str, silence: float | None) -> AsyncGenerator[bytes]:
        """An endless answer as it comes. Raises WatchSilent if nothing does for `silence` seconds."""
        renewed = False
        while True:
            identity = await self._auth.identity()
            head = self._head("GET", url, identity, None, None, accept)
            try:
                async with aclosing(self._pool.stream(head, identity.ssl, silence=silence)) as streams:
                    async for status, headers, chunks in streams:
                        self._observe("GET", status)
                        async with aclosing(chunks):
                            if status >= 400:
                                body = b"".join([chunk async for chunk in chunks])
                                raise from_response(status, body, headers)
                            async for chunk in chunks:
                                yield chunk
                return
            except Unauthorized:
                if renewed or not self._auth.reject(identity):
                    raise
                renewed = True
            except TooManyRequests as error:
                self._pause(error)
                raise
            except Unreachable as error:
                raise self._located(error, "GET") from error

    async def websocket(self, url: str, tunnel: Tunnel, protocols: Sequence[str]) -> None:
        """Opens a websocket and gives it to `tunnel`, with the first of `protocols` that the server speaks.

        Counts as a request until it is open, and against nothing from then on.
        """
        renewed = False
        while True:
            await self._turn(None)
            identity = await self._auth.identity()
            offer = websocket.Offer(tuple(protocols))
            head = self._head("GET", url, identity, None, None, "*/*", extra=offer.headers)
            try:
                answer = await self._pool.upgrade(head, identity.ssl, tunnel, offer.accepted, timeout=self._timeout)
            except Unreachable as error:
                self._observe("GET", 0)
                raise self._located(error, "GET") from error
            self._observe("GET", answer.status)
            if answer.status == 101:
                return
            if answer.status == 401 and not renewed and self._auth.reject(identity):
                renewed = True
                continue
            if answer.status < 400:
                message = f"the answer is {answer.status} instead of a websocket; does what is in between pass them?"
                raise self._located(Unreachable(message), "GET")
            refusal = from_response(answer.status, answer.body, answer.headers)
            if isinstance(refusal, TooManyRequests):
                self._pause(refusal)
            raise refusal

    async def _exchange(
        self, method: str, head: bytes, identity: Identity, seconds: float, max_bytes: int | None
    ) -> Answer:
        try:
            answer = await self._pool.exchange(
                head, identity.ssl, timeout=seconds, limit=max_bytes, repeatable=method == "GET"
            )
        except Unreachable as error:
            self._observe(method, 0)
            raise self._located(error, method) from error
        self._observe(method, answer.status)
        return answer

    def _pause(self, error: TooManyRequests) -> float:
        """Nobody asks before the server wants to be asked again, within our patience. Returns how long that is."""
        pause = max(_SHORTEST_PAUSE, error.retry_after if error.retry_after is not None else 1.0)
        self._paused_until = max(self._paused_until, time.monotonic() + min(pause, self._patience))
        return pause

    def _located(self, error: Unreachable, method: str) -> KubeError:
        return type(error)(f"{method} {self._access.server}: {error.message}")

    def _head(
        self,
        method: str,
        url: str,
        identity: Identity,
        body: bytes | None,
        content_type: str | None,
        accept: str,
        extra: Mapping[str, str] = _NOTHING,
    ) -> bytes:
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError(f"{url!r} is no URL path")
        if self._common is None or self._common[0] is not identity:
            self._common = identity, self._server.common_headers(identity.headers)
        lines = f"{method} {self._server.prefix}{url} HTTP/1.1\r\nAccept: {accept}\r\n"
        for name, value in extra.items():
            lines += f"{name}: {value}\r\n"
        if body is None:
            return lines.encode("ascii") + self._common[1]
        lines += f"Content-Type: {content_type or 'application/json'}\r\nContent-Length: {len(body)}\r\n"
        return lines.encode("ascii") + self._common[1] + body

    async def _turn(self, deadline: float | None) -> None:
        """Waits for the client-side limit and for a pause that the server asked for."""
        await self._wait_out(deadline)
        # reserved only now, or all who waited out a pause would be due at its end together
        wait = self._bucket.reserve()
        if wait > 0:
            await _sleep(wait, deadline)
            await self._wait_out(deadline)

    async def _wait_out(self, deadline: float | None) -> None:
        """The pause may be made longer meanwhile."""
        while (wait := self._paused_until - time.monotonic()) > 0:
            await _sleep(wait, deadline)


@dataclass(frozen=True, slots=True)
class _Server:
    """What of the server's URL goes into every request."""

    site: Site
    prefix: str
    host: str
    user_agent: str

    @classmethod
    def of(cls, access: ClusterAccess, user_agent: str) -> "_Server":
        url = urlsplit(access.server)
        tls = url.scheme == "https"
        proxy = urlsplit(access.proxy_url) if access.proxy_url else None
        site = Site(
            host=url.hostname or "",
            port=url.port or (443 if tls else 80),
            tls=tls,
            server_name=access.server_name,
            proxy=(proxy.hostname or "", proxy.port or 80) if proxy else None,
        )
        return cls(site, url.path.rstrip("/"), url.netloc.rpartition("@")[2], user_agent)

    def common_headers(self, identity: Mapping[str, str]) -> bytes:
        headers = {"Host": self.host, "User-Agent": self.user_agent, "Accept-Encoding": "identity", **identity}
        for name, value in headers.items():
            if not value.isprintable():
                raise Unreachable(f"the header {name} would hold a control character")
        return ("".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode("latin-1")


async def _sleep(seconds: float, deadline: float | None) -> None:
    if deadline is not None and time.monotonic() + seconds > deadline:
        raise Unreachable("there is no time left to send this")
    await asyncio.sleep(seconds)


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unreachable("there is no time left to send this")
    return left
