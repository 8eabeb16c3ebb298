"""A command in a container, or a container that one is attached to, read and written at one's own pace."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from fairway.kube.channels import Channel, Exit
from fairway.kube.errors import Unreachable
from fairway.kube.streams import Streams

_PAUSE_ABOVE = 1 << 20


@dataclass(frozen=True, slots=True)
class Completed:
    """All that a command said."""

    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    exit: Exit


class OutputTooLong(Exception):
    """The command said more than its caller is ready to hold."""


class Remote:
    """Output waits in the container while nobody reads it here, and `write` waits while nobody reads it there.

    Every method that waits raises Unreachable when the connection breaks.
    """

    def __init__(self, streams: Callable[["Remote"], Streams] = Streams) -> None:
        self._streams = streams(self)
        self._output: deque[tuple[Channel, bytes]] = deque()
        self._size = 0
        self._paused = False
        self._end: Exit | Unreachable | None = None
        self._writable = True
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def streams(self) -> Streams:
        return self._streams

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next output, on stdout or stderr; None once there will be no more."""
        while not self._output:
            if isinstance(self._end, Unreachable):
                raise self._end
            if self._end is not None:
                return None
            self._news.clear()
            await self._news.wait()
        channel, data = self._output.popleft()
        self._size -= len(data)
        if self._paused and self._size < _PAUSE_ABOVE // 2:
            self._paused = False
            self._streams.resume()
        return channel, data

    async def write(self, data: bytes) -> None:
        """To stdin. What is written to a command that has ended is lost, as it would be at its end."""
        while not self._writable and self._end is None:
            self._room.clear()
            await self._room.wait()
        if isinstance(self._end, Unreachable):
            raise self._end
        self._streams.write(data)

    def end_stdin(self) -> None:
        """Raises ValueError if the server is too old for that."""
        self._streams.end_stdin()

    async def exit(self) -> Exit:
        """How it ended, once it has. What was not read is thrown away."""
        while await self.read() is not None:
            pass
        assert isinstance(self._end, Exit)
        return self._end

    async def communicate(self, stdin: bytes | None = None, *, limit: int = 16 << 20) -> Completed:
        """Writes `stdin` and closes it, and reads to the end. Raises OutputTooLong above `limit` bytes."""
        feeding = asyncio.create_task(self._feed(stdin)) if stdin is not None else None
        parts: dict[Channel, list[bytes]] = {Channel.STDOUT: [], Channel.STDERR: []}
        size = 0
        try:
            while (output := await self.read()) is not None:
                channel, data = output
                size += len(data)
                if size > limit:
                    raise OutputTooLong(f"the command said more than {limit} bytes")
                parts[channel].append(data)
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
        return Completed(b"".join(parts[Channel.STDOUT]), b"".join(parts[Channel.STDERR]), await self.exit())

    async def _feed(self, stdin: bytes) -> None:
        for start in range(0, len(stdin), _PAUSE_ABOVE):
            await self.write(stdin[start : start + _PAUSE_ABOVE])
        self.end_stdin()

    def close(self) -> None:
        self._streams.close()
        self._finish(Unreachable("the streams were closed"))

    # what the streams tell

    def output(self, channel: Channel, data: bytes) -> None:
        self._output.append((channel, data))
        self._size += len(data)
        if self._size > _PAUSE_ABOVE and not self._paused:
            self._paused = True
            self._streams.pause()
        self._news.set()

    def writable(self, writable: bool) -> None:
        self._writable = writable
        if writable:
            self._room.set()

    def ended(self, end: Exit | Unreachable) -> None:
        self._finish(end)

    def _finish(self, end: Exit | Unreachable) -> None:
        if self._end is None:
            self._end = end
        self._news.set()
        self._room.set()
