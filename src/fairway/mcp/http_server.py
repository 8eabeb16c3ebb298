"""A small HTTP/1.1 server on httptools: whole requests in, whole or streamed answers out."""

import asyncio
import time
from ssl import SSLContext
from typing import Final

from fairway.mcp.http_connection import Connection
from fairway.mcp.http_message import Handler, Limits, Request, Response

__all__ = ["Handler", "HttpServer", "Limits", "Request", "Response"]

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class HttpServer:
    """Serves one handler on any number of addresses until it is told to stop.

    `stopping` is set as soon as `stop` begins: endless streams should watch it and end.
    """

    def __init__(self, handler: Handler, *, limits: Limits | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.stopping = asyncio.Event()
        self.buffered = 0
        self.connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._all_closed = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._date = (-1, b"")

    async def listen(self, *, host: str | None, port: int, ssl: SSLContext | None = None, backlog: int = 1024) -> int:
        """Binds and returns the port, which matters when 0 was asked for. OSError when the address is taken."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self, loop), host, port, ssl=ssl, backlog=backlog)
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
            t = time.gmtime(now)  # by hand: strftime speaks the locale's language, and email.utils costs a megabyte
            day, month = _DAYS[t.tm_wday], _MONTHS[t.tm_mon - 1]
            text = f"{day}, {t.tm_mday:02} {month} {t.tm_year} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
            self._date = (now, text.encode())
        return self._date[1]

    def opened(self, connection: Connection) -> bool:
        """False when there is no room for one more."""
        if len(self.connections) >= self.limits.connections:
            return False
        self.connections.add(connection)
        if self._sweeper is None:
            self._sweep()
        return True

    def closed(self, connection: Connection) -> None:
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
        self._sweeper = loop.call_later(self.limits.tick_seconds, self._sweep) if self.connections else None
