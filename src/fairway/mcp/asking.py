"""One question to an MCP endpoint and the answer to it: what it is, and how it is put over HTTP.

An answer may come as one message or on an event stream. In the session era a server may end such a stream before the
answer is on it, to save connections: the client comes back after a while and says which event it saw last.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from fairway.mcp import protocol
from fairway.mcp.http import ConnectionBroken, HttpClient, HttpError, StreamedResponse, TimedOut, TooLarge
from fairway.mcp.protocol import Era, ErrorCode, Header, Method
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event

RETURN_AFTER: Final = 1.0
"""Seconds after which a stream is resumed whose server does not say when."""
_SOONEST: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request to the MCP endpoint. `request_id` is the id of the answer that is waited for."""

    verb: str
    headers: Mapping[str, str]
    body: bytes = b""
    method: str = ""
    request_id: int | None = None
    timeout: float | None = None

    @property
    def title(self) -> str:
        return f"{self.verb} {self.method}".strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: for a request with an id the JSON-RPC message that carries it, be it from JSON or a stream."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    message: bytes | None = None
    timed_out: bool = False

    @property
    def title(self) -> str:
        if self.timed_out:
            return "nothing in time"
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        return " ".join(part for part in (str(self.status), phrase, self.content_type) if part)


class AnyMessage(msgspec.Struct):
    """As much of a message as tells what kind it is, and who waits for it."""

    id: int | str | float | None = None
    method: str = ""


def refusal_of(request_id: int | str | float, method: str) -> bytes:
    """What a server gets that asks something of this client, which offers no capabilities; a ping is answered."""
    raw = msgspec.Raw(msgspec.json.encode(request_id))
    if method == Method.PING:
        return protocol.result_body(raw, {})
    return protocol.error_body(raw, ErrorCode.METHOD_NOT_FOUND, "this client answers no requests")


async def exchange(ask: Ask, http: HttpClient, url: str, extra: Mapping[str, str]) -> Answer:
    """One question to an MCP endpoint. Raises HttpError when there was no answer at all."""
    sent = {**ask.headers, **extra}
    limit = ask.timeout if ask.timeout is not None else http.limits.answer
    hearing = _Hearing(ask, http, url, sent)
    try:
        async with asyncio.timeout(limit):
            async with http.stream(ask.verb, url, headers=sent, body=ask.body, timeout=limit) as response:
                content_type = response.content_type
                message: bytes | None = None
                if content_type != protocol.SSE:
                    body = await response.read(http.limits.body)
                    message = body if content_type == protocol.JSON else None
                elif ask.request_id is not None:
                    message = await hearing.listen(response)
            if message is None:
                message = await hearing.resume(response.headers)
            return Answer(response.status, response.headers, content_type, message)
    except (TimedOut, TimeoutError):
        if ask.timeout is None:
            raise TimedOut(f"{ask.title} got no answer within {limit:g} s") from None
        return Answer(0, timed_out=True)


class _Hearing:
    """Waits for the message with the id that was asked for, on one stream after the other.

    Requests of the server on the way are refused, the rest is skipped.
    """

    def __init__(self, ask: Ask, http: HttpClient, url: str, headers: Mapping[str, str]) -> None:
        self._ask = ask
        self._http = http
        self._url = url
        self._headers = headers
        self._last_id = ""
        """Of the last event that had one."""
        self._wait = RETURN_AFTER

    async def listen(self, response: StreamedResponse) -> bytes | None:
        splitter = EventSplitter(limit=self._http.limits.body)
        try:
            async for piece in response:
                for block in splitter.feed(piece):
                    data = await self._hear(block)
                    if data is not None:
                        return data
        except EventTooLarge as error:
            raise TooLarge(str(error)) from None
        except ConnectionBroken:
            if not self._last_id:
                raise
        except (msgspec.MsgspecError, RecursionError):
            self._last_id = ""  # what cannot be read would not get any better
        return None

    async def _hear(self, block: bytes) -> bytes | None:
        event = parse_event(block)
        if event.id is not None:
            # others cannot stand in a header
            self._last_id = event.id if event.id.isascii() and event.id.isprintable() else ""
        if event.retry is not None:
            self._wait = max(_SOONEST, event.retry / 1000)
        if not event.data:
            return None
        message = msgspec.json.decode(event.data, type=AnyMessage)
        if not message.method and message.id == self._ask.request_id:
            return event.data
        if message.method and message.id is not None:
            refused = Ask("POST", self._headers, refusal_of(message.id, message.method), message.method)
            with suppress(HttpError):
                await self._http.request("POST", self._url, headers=refused.headers, body=refused.body)
        return None

    async def resume(self, answered: Mapping[str, str]) -> bytes | None:
        """Comes back for the answer for as long as the server says that there is more. `answered` are the headers of
        the first answer.
        """
        era = protocol.era_of(self._headers.get(Header.PROTOCOL_VERSION))
        session = answered.get(Header.SESSION_ID.lower())
        while self._last_id and era is Era.SESSION:
            await asyncio.sleep(self._wait)
            headers = {name: value for name, value in self._headers.items() if name.lower() != "content-type"}
            headers |= {"Accept": protocol.SSE, Header.LAST_EVENT_ID: self._last_id}
            if session is not None:
                headers[Header.SESSION_ID] = session
            async with self._http.stream("GET", self._url, headers=headers) as response:
                if response.status != 200 or response.content_type != protocol.SSE:
                    return None
                message = await self.listen(response)
            if message is not None:
                return message
        return None
