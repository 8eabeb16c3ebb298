"""Pooled connections to one server."""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fairway.kube.errors import Unreachable, WatchSilent
from fairway.kube.http import Accept, Answer, Connection, Reply, Stream, Tunnel, Upgrade

T = TypeVar("T")
_CONNECT_WITHIN = 10.0
_IDLE_FOR = 60.0
_LONGEST_REFUSAL = 1 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """Where to connect to. `host` is also whom the certificate must name, unless `server_name` says another."""

    host: str
    port: int
    tls: bool
    server_name: str | None = None
    proxy: tuple[str, int] | None = None


class Pool:
    """At most `limit` connections for exchanges, and any number for streams and tunnels, to one site.

    A connection belongs to the TLS context that it was made with: after the certificates change, old ones are not used
    again. Nothing is sent twice, except a repeatable request on a pooled connection that turns out to have been closed
    before the first byte of an answer.
    """

    def __init__(self, site: Site, *, limit: int) -> None:
        self._site = site
        self._limit = limit
        self._idle: list[tuple[Connection, ssl.SSLContext]] = []
        self._count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._all: set[Connection] = set()

    async def exchange(
        self,
        data: bytes,
        context: ssl.SSLContext,
        *,
        timeout: float,
        limit: int | None = None,
        repeatable: bool = False,
    ) -> Answer:
        """Sends a request and returns the answer; raises Unreachable. `timeout` covers waiting for a connection too."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            connection = await self._acquire(context, until)
            reply = Reply(connection, limit=limit)
            fresh = connection.used == 0
            timer = loop.call_at(until, reply.expire)
            try:
                connection.begin(data, reply)
                return await reply.future
            except Unreachable:
                if fresh or not repeatable or reply.begun or loop.time() >= until:
                    raise
            finally:
                timer.cancel()
                self._release(connection, context)

    async def stream(
        self, data: bytes, context: ssl.SSLContext, *, silence: float | None
    ) -> AsyncGenerator[tuple[int, Mapping[str, str], AsyncGenerator[bytes]]]:
        """Yields once: status, headers, and the body as it comes. Raises WatchSilent when nothing comes for so long."""
        connection = await self._connect(context, _CONNECT_WITHIN)
        try:
            stream = Stream(connection)
            connection.begin(data, stream)
            status = await _unsilent(silence, stream.opened)
            headers = Answer(status, tuple(stream.raw_headers), b"").headers
            yield status, headers, self._body(stream, silence)
        finally:
            connection.abort()

    async def _body(self, stream: Stream, silence: float | None) -> AsyncGenerator[bytes]:
        while part := await _unsilent(silence, stream.read()):
            yield part

    async def upgrade(
        self, data: bytes, context: ssl.SSLContext, tunnel: Tunnel, accept: Accept, *, timeout: float
    ) -> Answer:
        """Sends a request for another protocol. After a 101 the tunnel has the connection; anything else is a no."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        connection = await self._connect(context, min(_CONNECT_WITHIN, timeout))
        upgrade = Upgrade(connection, tunnel, accept, limit=_LONGEST_REFUSAL)
        timer = loop.call_at(until, upgrade.expire)
        answer: Answer | None = None
        try:
            connection.begin(data, upgrade)
            answer = await upgrade.future
            return answer
        finally:
            timer.cancel()
            if answer is None or answer.status != 101:
                connection.abort()

    async def close(self) -> None:
        for connection in tuple(self._all):
            connection.abort()
        self._idle.clear()
        # Transports tell of their end in the next turn of the loop.
        await asyncio.sleep(0)

    async def _acquire(self, context: ssl.SSLContext, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        while True:
            while self._idle:
                connection, made_with = self._idle.pop()
                if connection.open and made_with is context and loop.time() - connection.idle_since < _IDLE_FOR:
                    return connection
                connection.close()
                self._count -= 1
            if self._count < self._limit:
                self._count += 1
                try:
                    return await self._connect(context, min(_CONNECT_WITHIN, until - loop.time()))
                except BaseException:
                    self._free()
                    raise
            await self._wait_for_one(until)

    async def _wait_for_one(self, until: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except TimeoutError:
            self._give_up(waiter)
            raise Unreachable("timed out waiting for a connection") from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        elif waiter.done() and not waiter.cancelled():
            self._wake()  # it was this one's turn already: pass it on

    def _release(self, connection: Connection, context: ssl.SSLContext) -> None:
        """Keeps the connection if its exchange came to an end; after anything else, as a cancellation, it goes."""
        if connection.reusable and connection.open:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append((connection, context))
            self._wake()
        else:
            connection.abort()
            self._free()

    def _free(self) -> None:
        self._count -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        for position, (idle, _) in enumerate(self._idle):
            if idle is connection:
                del self._idle[position]
                self._free()
                return

    async def _connect(self, context: ssl.SSLContext, within: float) -> Connection:
        try:
            async with asyncio.timeout(max(0.0, within)):
                return await self._dial(context)
        except TimeoutError:
            raise Unreachable("timed out while connecting") from None
        except OSError as error:
            raise Unreachable(_why(error)) from error

    async def _dial(self, context: ssl.SSLContext) -> Connection:
        loop = asyncio.get_running_loop()
        site = self._site
        connection = Connection(self._lost)
        name = (site.server_name or site.host) if site.tls else None
        tls = context if site.tls else None
        if site.proxy is None:
            transport, _ = await loop.create_connection(
                lambda: connection, site.host, site.port, ssl=tls, server_hostname=name
            )
            _keep_alive(transport)
        else:
            await self._through_proxy(connection, site.proxy, tls, name)
        self._all.add(connection)
        return connection

    async def _through_proxy(
        self, connection: Connection, proxy: tuple[str, int], tls: ssl.SSLContext | None, name: str | None
    ) -> None:
        loop = asyncio.get_running_loop()
        greeting = _ProxyGreeting()
        try:
            transport, _ = await loop.create_connection(lambda: greeting, *proxy)
        except OSError as error:
            raise Unreachable(f"the proxy {proxy[0]}:{proxy[1]}: {_why(error)}") from error
        _keep_alive(transport)
        authority = f"{self._site.host}:{self._site.port}".encode("ascii")
        try:
            transport.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (authority, authority))
            await greeting.done
            transport.set_protocol(connection)
            if tls is None:
                connection.connection_made(transport)
                return
            secured = await loop.start_tls(transport, connection, tls, server_hostname=name)
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            raise Unreachable("the proxy closed the connection")
        connection.connection_made(secured)


class _ProxyGreeting(asyncio.Protocol):
    """Waits for the answer to CONNECT."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._got = b""

    def data_received(self, data: bytes) -> None:
        self._got += data
        if b"\r\n\r\n" in self._got and not self.done.done():
            status = self._got.split(b"\r\n", 1)[0]
            if b" 200" in status[:13]:
                self.done.set_result(None)
            else:
                self.done.set_exception(Unreachable(f"the proxy said {status[:100].decode('latin-1')}"))

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(Unreachable("the proxy closed the connection"))


async def _unsilent(silence: float | None, what: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(silence):
            return await what
    except TimeoutError:
        assert silence is not None
        raise WatchSilent(f"the watch delivered nothing for {silence:g}s") from None


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """A vanished peer must be noticed on idle connections too."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message})"
    if error.errno and not isinstance(error, (ssl.SSLError, socket.gaierror)):
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
