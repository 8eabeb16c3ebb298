"""A server and a client of the old HTTP+SSE transport, byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fairway.mcp.sse import Event, EventSplitter, parse_event
from tests.unit.proxy.serving import TOOLS, Conversation, Got, Proxy, RawClient, Reply, read_request


class OldServer:
    """Answers on the stream what is posted to `/messages`. `endpoint` is what its first events say, %d the session."""

    def __init__(self, endpoint: str = "/messages?session_id=%d&x=1", *, content_type: str = "text/event-stream"):
        self.endpoint = endpoint
        self.content_type = content_type
        self.got: list[Got] = []
        """All requests but those of handshakes."""
        self.streams: dict[int, Conversation] = {}
        self.silent: set[str] = set()
        """Tools that are never answered."""
        self.port = 0
        self._handshakes: set[int] = set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        made = Conversation(reader, writer)
        try:
            while (got := await read_request(reader)) is not None:
                if got.method == "GET":
                    await self._stream(made, got)
                    return
                self._take(made, got)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _stream(self, made: Conversation, got: Got) -> None:
        number = len(self.streams) + 1
        if got.header("user-agent") != "test":
            self._handshakes.add(number)
        else:
            self.got.append(got)
        self.streams[number] = made
        made.start_chunked(self.content_type)
        made.chunk(b": hello\r\n\r\n")
        said = self.endpoint % number if "%d" in self.endpoint else self.endpoint
        made.chunk(b"event: endpoint\r\ndata: %b\r\n\r\n" % said.encode())
        await made.gone()

    def _take(self, made: Conversation, got: Got) -> None:
        number = int(got.target.partition("session_id=")[2].partition("&")[0] or 0)
        if number not in self._handshakes:
            self.got.append(got)
        if number not in self.streams:
            made.json({"error": "no such session"}, status="404 Not Found")
            return
        made.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\nAccepted")
        message = got.message
        if "id" in message and "method" in message:
            result = self.result(message)
            if result is not None:
                self.say(number, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def say(self, number: int, message: Any) -> None:
        self.streams[number].chunk(b"event: message\r\ndata: %b\r\n\r\n" % json.dumps(message).encode())

    def result(self, message: dict[str, Any]) -> dict[str, Any] | None:
        match message["method"]:
            case "initialize":
                return {
                    "protocolVersion": "2024-11-05",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                }
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call" if message["params"]["name"] in self.silent:
                return None
        text = json.dumps({"port": self.port, "said": message.get("params")})
        return {"content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def old_server(*arguments: Any, **settings: Any) -> AsyncIterator[OldServer]:
    made = OldServer(*arguments, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


class OldClient:
    """One session at the proxy."""

    def __init__(self, front: Proxy, stream: RawClient, headers: Mapping[str, str], name: str) -> None:
        self.front = front
        self.stream = stream
        self.headers = headers
        self.name = name
        self.endpoint = ""
        self._splitter = EventSplitter(limit=1 << 24)
        self._events: list[Event] = []

    @classmethod
    async def open(
        cls, front: Proxy, headers: Mapping[str, str] | None = None, *, name: str = "default/a", path: str = "/sse"
    ) -> "OldClient":
        stream = await front.client(name)
        made = cls(front, stream, headers or {}, name)
        stream.get(headers, path=path)
        head = await stream.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream"), head
        first = await made.event()
        assert first is not None
        assert first.name == "endpoint"
        made.endpoint = (first.data or b"").decode()
        return made

    async def event(self) -> Event | None:
        """The next that says something; None when the stream has ended."""
        async with asyncio.timeout(20):
            while not self._events:
                chunk = await self.stream.chunk()
                if not chunk:
                    return None
                found = [parse_event(block) for block in self._splitter.feed(chunk)]
                self._events += [event for event in found if event.data is not None]
        return self._events.pop(0)

    async def next(self) -> Any:
        event = await self.event()
        return None if event is None else json.loads(event.data or b"")

    async def post(self, message: Any, *, endpoint: str = "", headers: Mapping[str, str] | None = None) -> Reply:
        client = await self.front.client(self.name)
        try:
            client.post(message, self.headers if headers is None else headers, path=endpoint or self.endpoint)
            return await client.reply()
        finally:
            client.close()

    async def ask(self, message: Any) -> Any:
        reply = await self.post(message)
        assert reply.status == 202, (reply.status, reply.body)
        return await self.next()

    def close(self) -> None:
        self.stream.close()
