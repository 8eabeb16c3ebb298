"""The server's side of a websocket, by the book and byte by byte, so that it can be wrong too."""

import asyncio
import base64
import hashlib
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fairway.kube.channels import V5

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, rsv: int = 0) -> bytes:
    """As a server sends it."""
    first = (0x80 if final else 0) | rsv | opcode
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 1 << 16:
        return struct.pack("!BBH", first, 126, size) + payload
    return struct.pack("!BBQ", first, 127, size) + payload


def unmasked(key: bytes, body: bytes) -> bytes:
    over = (key * (len(body) // 4 + 1))[: len(body)]
    return (int.from_bytes(body, "little") ^ int.from_bytes(over, "little")).to_bytes(len(body), "little")


class Peer:
    """One client, from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    async def request(self) -> dict[str, str]:
        """The request's headers, and under "" its first line."""
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = self.head.decode().split("\r\n")[:-2]
        return {"": first} | {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    async def welcome(self, protocol: str = V5, *, at_once: bytes = b"") -> dict[str, str]:
        """Takes the client in; `at_once` goes out in the same segment."""
        headers = await self.request()
        digest = hashlib.sha1(headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n"
            % (base64.b64encode(digest), protocol.encode())
            + at_once
        )
        return headers

    def send(self, payload: bytes, opcode: int = 2) -> None:
        self.writer.write(frame(opcode, payload))

    async def receive(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
        assert second & 0x80, "a client must mask"
        key = await self.reader.readexactly(4)
        return first & 0x0F, unmasked(key, await self.reader.readexactly(size))

    async def message(self) -> bytes:
        """The next binary message; control frames are skipped."""
        while True:
            opcode, payload = await self.receive()
            if opcode == 2:
                return payload


Script = Callable[[Peer], Awaitable[None]]


class PeerServer:
    """Runs a script for each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        self.url = ""

    async def start(self) -> "PeerServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._script(Peer(reader, writer))
        except AssertionError as failure:
            self.failures.append(failure)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self.failures, self.failures
