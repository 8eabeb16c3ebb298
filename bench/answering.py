"""MCP servers that know their answers by heart: what stands behind the proxy in benchmarks and tests under load.

    python -m bench.answering PORT [--ledger FILE] [--pause SECONDS]

What a call is answered depends on its tool: `stream` gives twenty events a millisecond apart, `large` 32 KB, `slow`
comes after the pause, and every other one a few hundred bytes. `initialize` opens a session, without which nothing else
of that era is answered; a GET then is a stream without an end.

The ledger is a file with one byte for each request id, a number or the text of one, mapped into memory: it is raised
when the call is executed, and survives the server. `GET /counts` says as JSON what has come in so far.
"""

import argparse
import asyncio
import json
import mmap
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import httptools
import uvloop

from fairway.mcp import protocol

TOOLS: Final = [f"tool-{number}" for number in range(50)]
EVENTS: Final = 20
DISCOVERED: Final = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "answering", "version": "1"}},
}
INITIALIZED: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "answering", "version": "1"},
}
LISTED: Final = {
    "tools": [
        {"name": name, "inputSchema": {"type": "object"}} for name in ("search", "large", "stream", "slow", *TOOLS)
    ],
    "resultType": "complete",
}
_ID: Final = re.compile(rb'"id":("[^"]*"|\d+)')
_NAME: Final = re.compile(rb'"name":"([^"]*)"')


def new_ledger(path: Path, size: int) -> None:
    """A file for the ids below `size`."""
    path.write_bytes(bytes(size))


def text(size: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "y" * size}], "resultType": "complete"}


def _template(result: Any) -> tuple[bytes, bytes]:
    """A JSON-RPC answer without its id: what comes before it and what after."""
    before, after = protocol.result_body("@", result).split(b'"@"')
    return before, after


ANSWERS: Final = {
    "server/discover": _template(DISCOVERED),
    "initialize": _template(INITIALIZED),
    "tools/list": _template(LISTED),
    "search": _template(text(300)),
    "large": _template(text(32_000)),
}
_EVENT: Final = protocol.request_body(1, "notifications/progress", {"progressToken": 1, "progress": 1})


class Serving:
    """What all connections of one server share."""

    def __init__(self, *, ledger: Path | None, pause: float) -> None:
        self.counts = {"requests": 0, "calls": 0, "initialize": 0, "sessions": 0, "streams": 0, "handshakes": 0}
        self.connections = 0
        self.pause = pause
        self.sessions: set[bytes] = set()
        self.ledger: mmap.mmap | None = None
        if ledger is not None:
            with ledger.open("r+b") as file:
                self.ledger = mmap.mmap(file.fileno(), 0)

    def execute(self, request_id: bytes) -> None:
        self.counts["calls"] += 1
        digits = request_id.strip(b'"')
        if self.ledger is not None and digits.isdigit() and (number := int(digits)) < len(self.ledger):
            self.ledger[number] = min(255, self.ledger[number] + 1)


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._session: bytes | None = None
        self._version = b""
        self._body: list[bytes] = []
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._serving.connections += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()
            return
        if self._out:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out = []

    def on_message_begin(self) -> None:
        self._url, self._session, self._version, self._body = b"", None, b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        if key == b"mcp-session-id":
            self._session = value
        elif key == b"mcp-protocol-version":
            self._version = value

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        if self._url == b"/counts":
            counts = {**self._serving.counts, "sessions": len(self._serving.sessions)}
            self._answer(b"200 OK", json.dumps({**counts, "connections": self._serving.connections}).encode())
            return
        self._serving.counts["requests"] += 1
        if method == b"POST":
            self._post(b"".join(self._body))
        elif self._session is None or self._session not in self._serving.sessions:
            self._answer(b"404 Not Found" if self._session else b"405 Method Not Allowed", b"{}")
        elif method == b"GET":
            self._serving.counts["streams"] += 1
            self._out.append(_STREAM_HEAD + _chunk(b": hello\n\n"))
        else:
            self._serving.sessions.discard(self._session)
            self._answer(b"200 OK", b"{}")

    def _post(self, body: bytes) -> None:
        found = _ID.search(body)
        request_id = found[1] if found else b"null"
        if b'"method":"tools/call"' in body:
            if self._version != b"2026-07-28" and self._session not in self._serving.sessions:
                self._answer(b"404 Not Found", b"{}")
                return
            self._call(body, request_id)
        elif b'"method":"initialize"' in body:
            self._serving.counts["initialize"] += 1
            session = os.urandom(12).hex().encode()
            self._serving.sessions.add(session)
            self._answer(b"200 OK", self._result("initialize", request_id), b"Mcp-Session-Id: %b\r\n" % session)
        elif b'"method":"server/discover"' in body:
            self._serving.counts["handshakes"] += 1
            self._answer(b"200 OK", self._result("server/discover", request_id))
        elif b'"method":"tools/list"' in body:
            self._answer(b"200 OK", self._result("tools/list", request_id))
        else:
            self._answer(b"202 Accepted", b"")

    def _call(self, body: bytes, request_id: bytes) -> None:
        self._serving.execute(request_id)
        found = _NAME.search(body)
        match found[1] if found else b"":
            case b"stream":
                self._transport.write(_STREAM_HEAD)
                self._next_event(EVENTS, request_id)
            case b"large":
                self._answer(b"200 OK", self._result("large", request_id))
            case b"slow":
                self._loop.call_later(self._serving.pause, self._late, request_id)
            case _:
                self._answer(b"200 OK", self._result("search", request_id))

    def _next_event(self, left: int, request_id: bytes) -> None:
        if self._transport.is_closing():
            return
        if left == 1:
            message = self._result("search", request_id)
            self._transport.write(_chunk(b"event: message\ndata: %b\n\n" % message) + b"0\r\n\r\n")
            return
        self._transport.write(_chunk(b"event: message\ndata: %b\n\n" % _EVENT))
        self._loop.call_later(0.001, self._next_event, left - 1, request_id)

    def _late(self, request_id: bytes) -> None:
        self._answer(b"200 OK", self._result("search", request_id))
        self._transport.writelines(self._out)
        self._out = []

    def _result(self, answer: str, request_id: bytes) -> bytes:
        before, after = ANSWERS[answer]
        return before + request_id + after

    def _answer(self, status: bytes, body: bytes, more: bytes = b"") -> None:
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
        self._out.append(head % (status, more, len(body)) + body)


_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(port: int, *, ledger: Path | None = None, pause: float = 0.05) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    serving = Serving(ledger=ledger, pause=pause)
    made: Callable[[], asyncio.Protocol] = lambda: Answering(serving)  # noqa: E731
    server = await loop.create_server(made, "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.answering", description=__doc__)
    parser.add_argument("port", type=int, help="0 takes a free one; the one taken is printed")
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--pause", type=float, default=0.05)
    given = parser.parse_args()
    uvloop.run(serve(given.port, ledger=given.ledger, pause=given.pause))


if __name__ == "__main__":
    main()
