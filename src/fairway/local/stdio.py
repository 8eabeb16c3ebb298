"""Standard input and output of a process as a Unix socket, so that the proxy can attach to it."""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

from fairway.local.control import inside

SOCKET = "stdio.sock"
PIECE = 64 << 10


class StdioSocket:
    """Carries bytes between one process and whoever connected last, while entered.

    What the process says while nobody is connected waits in its pipe. The process hears the end of its input only when
    this is left: a proxy that comes back finds it as it was.
    """

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._directory = directory
        self._in = process.stdin
        self._out = process.stdout
        self._server: asyncio.Server | None = None
        self._connected = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "StdioSocket":
        (self._directory / SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with inside(self._directory):
                listening.bind(SOCKET)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._accept, sock=listening)
        self._pump = asyncio.create_task(self._pump_out())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._drop()
        self._in.close()
        (self._directory / SOCKET).unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._drop()  # the newest wins: an older proxy is gone, or about to go
        self._writer = writer
        self._connected.set()
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                self._in.write(piece)
                await self._in.drain()
        if self._writer is writer:
            self._drop()

    async def _pump_out(self) -> None:
        while piece := await self._out.read(PIECE):
            while piece:
                await self._connected.wait()
                writer = self._writer
                assert writer is not None
                try:
                    writer.write(piece)
                    await writer.drain()
                except OSError:
                    self._drop()  # nobody can know how much of it arrived, and the next one begins anew
                piece = b""
        self._drop()

    def _drop(self) -> None:
        self._connected.clear()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
