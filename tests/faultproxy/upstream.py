"""The connection to the real API server, one for every connection of a client."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.faultproxy.wire import AnswerReader, Head, Message

_READ = 256 * 1024


class UpstreamGone(Exception):
    """The API server does not answer, or stopped in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    tls: ssl.SSLContext


class Upstream:
    """One exchange after the other: `send`, then `head`, then `body` to its end."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._answer = AnswerReader(method="GET")

    async def send(self, message: Message) -> None:
        if self._streams is not None and (self._streams[0].at_eof() or not self._reusable()):
            self.close()
        if self._streams is None:
            self._streams = await self._connected()
        self._answer = AnswerReader(method=message.method)
        self._streams[1].write(message.encoded())
        try:
            await self._streams[1].drain()
        except OSError as error:
            raise UpstreamGone(str(error)) from error

    async def head(self) -> Head:
        while not self._answer.began:
            await self._more()
        return self._answer.head

    async def body(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it arrives."""
        while True:
            parts, self._answer.parts = self._answer.parts, []
            for part in parts:
                yield part
            if self._answer.ended and not self._answer.parts:
                return
            if not self._answer.ended:
                await self._more()

    async def json(self, message: Message) -> tuple[int, Any]:
        """A whole exchange."""
        await self.send(message)
        status = (await self.head()).status
        body = b"".join([part async for part in self.body()])
        return status, json.loads(body)

    @property
    def upgraded(self) -> bool:
        return self._answer.upgraded

    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Both directions after an upgrade, and what has already been read of the incoming one."""
        assert self._streams is not None
        return (*self._streams, self._answer.rest)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    def _reusable(self) -> bool:
        return self._answer.ended and self._answer.head.keep_alive

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(self._address.host, self._address.port, ssl=self._address.tls)
        except OSError as error:
            raise UpstreamGone(str(error)) from error

    async def _more(self) -> None:
        if self._streams is None:
            raise UpstreamGone("the connection was closed meanwhile")
        try:
            data = await self._streams[0].read(_READ)
        except OSError as error:
            raise UpstreamGone(str(error)) from error
        if not data:
            raise UpstreamGone("the API server closed the connection")
        self._answer.feed(data)
