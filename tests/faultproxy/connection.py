"""One connection of a client: its requests in order, each with the fault that the rules have for it."""

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httptools

from tests.faultproxy.actions import (
    Answer,
    Delay,
    Hang,
    Hold,
    RequestAction,
    Reset,
    Signal,
    StaleList,
    Trickle,
    When,
)
from tests.faultproxy.log import Exchange, Log
from tests.faultproxy.request import classify
from tests.faultproxy.rules import RuleBook
from tests.faultproxy.stale import OldList, StaleView, is_first_look, resumed
from tests.faultproxy.upstream import Address, Upstream, UpstreamGone
from tests.faultproxy.watchstream import Command, End, Pause, Send, Silence, WatchStream
from tests.faultproxy.wire import CONTINUE, LAST_CHUNK, Head, Message, RequestReader, chunk, made_up

_READ = 256 * 1024
_TICKS_PER_SECOND = 20

Step = Callable[[], Awaitable[None]]
Steps = Mapping[When, Step]


@dataclass
class Plan:
    """What all connections of one proxy share; the owner of the proxy changes it while they run."""

    upstream: Address
    guard: str
    book: RuleBook = field(default_factory=RuleBook)
    log: Log = field(default_factory=Log)
    numbers: "count[int]" = field(default_factory=lambda: count(1))
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    late: set[asyncio.Task[Any]] = field(default_factory=set)
    stale: StaleView = field(default_factory=StaleView)
    client_pid: int | None = None
    problems: list[BaseException] = field(default_factory=list)

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())


class _Cut(Exception):
    """The connection is over, on purpose."""


class Connection:
    """Serves one client until it goes, or until a fault ends it."""

    def __init__(self, plan: Plan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._plan = plan
        self._reader = reader
        self._writer = writer
        self._requests = RequestReader()
        self._upstream = Upstream(plan.upstream)
        self._writing: asyncio.Task[Head] | None = None

    async def serve(self) -> None:
        answering = asyncio.create_task(self._answer_all())
        try:
            while data := await self._reader.read(_READ):
                self._requests.feed(data)
                if self._requests.wants_continue:
                    self._requests.wants_continue = False
                    self._writer.write(CONTINUE)
        except (OSError, httptools.HttpParserError):
            pass
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self.abort()

    def abort(self) -> None:
        self._writer.transport.abort()
        if self._writing is not None and not self._writing.done():
            self._writing.add_done_callback(lambda _: self._upstream.close())
        else:
            self._upstream.close()

    def reset(self) -> None:
        """Like `abort`, and the client is told so."""
        connected = self._writer.get_extra_info("socket")
        if connected is not None:
            # No time to linger: the kernel then sends RST instead of FIN.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def _answer_all(self) -> None:
        try:
            while True:
                message = await self._requests.inbox.get()
                await self._answer(message)
        except (_Cut, OSError):
            self.abort()
        except UpstreamGone:
            # As the client would see it without a proxy between: the connection breaks.
            self.reset()
        except Exception as error:
            # A bug of the proxy must fail the test and not look like one more fault.
            self._plan.problems.append(error)
            self.abort()

    async def _answer(self, message: Message) -> None:
        plan = self._plan
        request = classify(next(plan.numbers), message.method, message.target, message.fields)
        exchange = plan.log.begin(request, message.body)
        try:
            if plan.guard:
                if message.fields.get("authorization") != f"Bearer {plan.guard}":
                    await self._write_answer(exchange, Answer(401, "Unauthorized", "not the proxy's own client"))
                    return
                message = message.without(b"authorization")
            action = plan.book.for_request(request)
            exchange.fault = _described(action)
            await self._perform(exchange, message, action)
        finally:
            exchange.ended = asyncio.get_running_loop().time()
            plan.log.changed()

    async def _perform(self, exchange: Exchange, message: Message, action: RequestAction | None) -> None:
        match action:
            case None:
                await self._forward(exchange, message)
            case Answer(after_send=after_send):
                if after_send:
                    await self._send_upstream(exchange, message)
                    self._upstream.close()
                await self._write_answer(exchange, action)
            case Reset(when):
                await self._forward(exchange, message, {when: self._reset_now})
            case Hang(when):
                await self._forward(exchange, message, {when: _forever})
            case Trickle(bytes_per_second):
                await self._forward(exchange, message, pace=bytes_per_second)
            case Delay(seconds):
                await asyncio.sleep(seconds)
                await self._forward(exchange, message)
            case Hold(gate):
                await self._hold(exchange, message, gate)
            case Signal(when=when):
                await self._forward(exchange, message, {when: lambda: self._signal(action)})
            case StaleList():
                await self._stale(exchange, message, action)
            case _:
                raise TypeError(f"{action} is nothing that can happen to a request")

    async def _forward(
        self, exchange: Exchange, message: Message, steps: Steps | None = None, *, pace: float | None = None
    ) -> None:
        steps = steps or {}
        await _take(steps, When.BEFORE_SEND)
        head = await self._send_upstream(exchange, message)
        await _take(steps, When.AFTER_SEND)
        exchange.status = head.status
        if self._upstream.upgraded:
            await self._tunnel(head)
            return
        body = self._upstream.body()
        if exchange.request.verb == "watch" and head.status == 200 and head.is_json:
            await self._plan.stale.thawed(exchange.request)
            body = self._edited(exchange, body)
        await self._relay(head, body, steps, pace)
        await _take(steps, When.AFTER_RESPONSE)
        if not head.keep_alive:
            self._writer.close()
            raise _Cut

    async def _send_upstream(self, exchange: Exchange, message: Message) -> Head:
        if not exchange.request.is_write:
            return await self._ask(exchange, message)
        # A write that was received whole is carried out, even if its sender hangs up at once.
        self._writing = asyncio.create_task(self._ask(exchange, message))
        self._plan.late.add(self._writing)
        self._writing.add_done_callback(self._plan.late.discard)
        return await asyncio.shield(self._writing)

    async def _ask(self, exchange: Exchange, message: Message) -> Head:
        await self._upstream.send(message)
        head = await self._upstream.head()
        exchange.upstream = head.status
        self._plan.log.changed()
        return head

    async def _relay(self, head: Head, body: AsyncIterator[bytes], steps: Steps, pace: float | None) -> None:
        await self._write(head.encoded(), pace)
        await _take(steps, When.AFTER_HEADERS)
        async for part in body:
            data = chunk(part) if head.chunked else part
            if step := steps.get(When.MID_BODY):
                await self._write(data[: max(1, len(data) // 2)], pace)
                await step()
            await self._write(data, pace)
        await _take(steps, When.MID_BODY)  # there was no body
        if head.chunked:
            await self._write(LAST_CHUNK, pace)

    async def _edited(self, exchange: Exchange, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        request = exchange.request
        stream = WatchStream(lambda position, event: self._plan.book.for_event(request, position, event))
        exchange.event_faults = stream.faults
        async for part in body:
            for command in stream.feed(part):
                if data := await self._obey(command):
                    yield data
                if isinstance(command, End):
                    self._upstream.close()
                    return
            exchange.events = stream.delivered
            self._plan.log.changed()
        for command in stream.finish():
            if data := await self._obey(command):
                yield data

    async def _obey(self, command: Command) -> bytes:
        match command:
            case Send(data):
                return data
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Silence():
                await _forever()
        return b""

    async def _stale(self, exchange: Exchange, message: Message, action: StaleList) -> None:
        if not is_first_look(exchange.request):
            await self._forward(exchange, message)
            return
        old = await self._plan.stale.listed(self._upstream, message, exchange.request, action)
        exchange.upstream = exchange.status = old.status
        exchange.fault = f"{exchange.fault} at revision {old.revision}"
        if exchange.request.verb == "list" or old.status != 200:
            await self._write(old.head(chunked=False).encoded() + old.body, None)
            return
        body = self._edited(exchange, self._old_then_new(exchange, message, old))
        await self._relay(old.head(chunked=True), body, {}, None)

    async def _old_then_new(self, exchange: Exchange, message: Message, old: OldList) -> AsyncIterator[bytes]:
        """Initial events made of an old list, then what happened since."""
        yield old.as_events()
        await self._plan.stale.thawed(exchange.request)
        await self._upstream.send(message.aimed_at(resumed(message.target, old.revision)))
        refused = (await self._upstream.head()).status != 200
        parts = self._upstream.body()
        if refused:
            status = json.loads(b"".join([part async for part in parts]))
            yield json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            return
        async for part in parts:
            yield part

    async def _hold(self, exchange: Exchange, message: Message, gate: str) -> None:
        """Out of this connection's hands: what is in the network arrives, whether its sender still lives or not."""

        async def travel() -> None:
            exchange.fault = f"{exchange.fault}, held"
            self._plan.log.changed()
            await self._plan.gate(gate).wait()
            own = Upstream(self._plan.upstream)
            try:
                await own.send(message)
                head = await own.head()
                exchange.upstream = head.status
                body = b"".join([part async for part in own.body()])
                if not self._writer.is_closing():
                    exchange.status = head.status
                    head.length = len(body)
                    self._writer.write(head.encoded() + body)
            finally:
                own.close()
                self._plan.log.changed()

        task = asyncio.create_task(travel())
        self._plan.late.add(task)
        task.add_done_callback(self._plan.late.discard)
        await asyncio.shield(task)

    async def _signal(self, action: Signal) -> None:
        pid = self._plan.client_pid
        if pid is None:
            raise RuntimeError(f"{action} is due, but client_pid is not set")
        await self._writer.drain()
        try:
            os.kill(pid, action.number)
        except ProcessLookupError as error:
            raise RuntimeError(f"{action} is due, but process {pid} has ended by itself") from error
        if action.number == signal.SIGKILL:
            raise _Cut
        if action.gate:
            await self._plan.gate(action.gate).wait()

    async def _tunnel(self, head: Head) -> None:
        """Bytes both ways until one side ends."""
        reader, writer, rest = self._upstream.streams()
        self._writer.write(head.encoded() + rest)

        async def outward() -> None:
            while data := await reader.read(_READ):
                await self._write(data, None)

        async def inward() -> None:
            while True:
                writer.write(await self._requests.tunnel.get())
                await writer.drain()

        both = [asyncio.create_task(outward()), asyncio.create_task(inward())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        self._writer.close()
        raise _Cut

    async def _write_answer(self, exchange: Exchange, answer: Answer) -> None:
        exchange.status = answer.status
        await self._write(made_up(answer), None)

    async def _write(self, data: bytes, pace: float | None) -> None:
        if pace is None:
            self._writer.write(data)
            await self._writer.drain()
            return
        size = max(1, int(pace / _TICKS_PER_SECOND))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(len(piece) / pace)

    async def _reset_now(self) -> None:
        await self._writer.drain()
        self.reset()
        raise _Cut


async def _take(steps: Steps, when: When) -> None:
    if step := steps.get(when):
        await step()


async def _forever() -> None:
    await asyncio.Event().wait()


def _described(action: RequestAction | None) -> str:
    match action:
        case None:
            return ""
        case Answer(status, after_send=after_send):
            return f"Answer {status}{' after it was done' if after_send else ''}"
        case Reset(when) | Hang(when) | Signal(when=when):
            return f"{type(action).__name__} {when.name.lower()}"
        case _:
            return type(action).__name__
