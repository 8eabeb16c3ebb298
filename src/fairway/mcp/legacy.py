"""A client of the old HTTP+SSE transport: messages are posted to where the stream's first event says, and every
answer comes on the stream."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from fairway.mcp import protocol
from fairway.mcp.asking import Answer, AnyMessage, Ask, refusal_of
from fairway.mcp.client import HandshakeFailed, HttpRefused
from fairway.mcp.http import ConnectionBroken, HttpClient, HttpError, StreamedResponse, TimedOut, TooLarge
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event

_OPEN: Final = Ask("GET", {"Accept": protocol.SSE})


class LegacyClient:
    """One session, for as long as its stream is open."""

    def __init__(self, http: HttpClient, url: str, headers: Mapping[str, str]) -> None:
        self._http = http
        self._url = url
        self._headers = headers
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._failure: HttpError | None = None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, http: HttpClient, url: str, *, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator["LegacyClient"]:
        """Raises HttpRefused where there is no such stream, HandshakeFailed where it does not say where to post."""
        made = cls(http, url, headers or {})
        sent = {**_OPEN.headers, **made._headers}
        async with http.stream("GET", url, headers=sent) as response:
            if response.status != 200 or response.content_type != protocol.SSE:
                raise HttpRefused(_OPEN, Answer(response.status, response.headers, response.content_type))
            reading = asyncio.create_task(made._read(response))
            try:
                await made._learn_endpoint()
                yield made
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _learn_endpoint(self) -> None:
        path = urlsplit(self._url).path
        try:
            async with asyncio.timeout(self._http.limits.answer):
                await self._endpoint
        except TimeoutError:
            raise HandshakeFailed(
                f"GET {path} answers an event stream, but no event in it says where messages go"
            ) from None

    async def exchange(self, ask: Ask) -> Answer:
        """Posts a message, and waits for the answer if it asks for one. Raises HttpError."""
        limit = self._http.limits.answer if ask.timeout is None else ask.timeout
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if ask.request_id is not None:
            self._waiting[ask.request_id] = answer
        try:
            async with asyncio.timeout(limit):
                said = await self._http.request(
                    "POST", self._endpoint.result(), headers={**ask.headers, **self._headers}, body=ask.body
                )
                if said.status >= 300 or ask.request_id is None:
                    return Answer(said.status, said.headers, said.content_type)
                if self._failure is not None:
                    raise self._failure
                return Answer(200, {}, protocol.JSON, await answer)
        except TimeoutError:
            if ask.timeout is None:
                raise TimedOut(f"{ask.title} got no answer within {limit:g} s") from None
            return Answer(0, timed_out=True)
        finally:
            if ask.request_id is not None:
                del self._waiting[ask.request_id]
            if answer.done():
                answer.exception()  # it may have failed after all, with nobody left to care

    async def _read(self, response: StreamedResponse) -> None:
        splitter = EventSplitter(limit=self._http.limits.body)
        failure: HttpError = ConnectionBroken("the server ended its event stream")
        try:
            async for piece in response:
                for block in splitter.feed(piece):
                    await self._hear(block)
        except EventTooLarge as error:
            failure = TooLarge(str(error))
        except HttpError as error:
            failure = error
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            failure = HttpError(f"an event of the server cannot be read: {error}")
        self._failure = failure
        if not self._endpoint.done():
            self._endpoint.set_exception(failure)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)

    async def _hear(self, block: bytes) -> None:
        event = parse_event(block)
        if event.name == "endpoint" and event.data is not None and not self._endpoint.done():
            self._endpoint.set_result(self._resolved(event.data.decode().strip()))
        elif event.name == "message" and event.data:
            message = msgspec.json.decode(event.data, type=AnyMessage)
            if message.method and message.id is not None:
                with suppress(HttpError):
                    refusal = refusal_of(message.id, message.method)
                    headers = {"Content-Type": protocol.JSON, **self._headers}
                    await self._http.request("POST", self._endpoint.result(), headers=headers, body=refusal)
            elif not message.method and isinstance(message.id, int):
                waiting = self._waiting.get(message.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(event.data)

    def _resolved(self, where: str) -> str:
        """The server that the stream comes from, whatever host it says."""
        ours, said = urlsplit(self._url), urlsplit(urljoin(self._url, where))
        return said._replace(scheme=ours.scheme, netloc=ours.netloc, fragment="").geturl()
