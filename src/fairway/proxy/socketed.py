"""A server whose standard input and output are a Unix socket: how local mode hands its stdio servers to the proxy."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, cast

from fairway.mcp.probe import Outcome
from fairway.proxy.bridge.core import Bridge
from fairway.proxy.bridge.handshake import shake

DRAIN: Final = 20.0
"""Seconds that requests at work get to be answered, when another server takes its place."""
_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 2.0

log = logging.getLogger("fairway.proxy")


class SocketedServer:
    """One run of the server after the other behind one bridge, from `start` to `stop`.

    Whoever holds the other end closes the connection when the server's process ends, so that each connection is a run
    of its own and is greeted.
    """

    def __init__(self, path: str, *, name: str) -> None:
        self._path = path
        self._name = name
        self._pipe: _Pipe | None = None
        self._problem = ""
        self._work: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._changed: Callable[[], None] = _nobody
        self.starts = 0
        loop = asyncio.get_running_loop()
        self.bridge = Bridge(defer=loop.call_soon, clock=monotonic, changed=self._note_change)

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the server comes up and when it goes down."""
        self._changed = changed
        self._work = asyncio.get_running_loop().create_task(self._run(), name=f"server {self._name}")

    async def shake(self) -> Outcome:
        """Waits until the server is up, within reason."""
        return await shake(self.bridge, self._up)

    async def stop(self) -> None:
        """Requests at work are answered first, within reason."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while self.bridge.link.pending and self.bridge.link.up:  # noqa: ASYNC110  nobody is told of the last answer
                    await asyncio.sleep(0.05)
        await self.end()

    async def end(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            before = self.starts
            reason = await self._once()
            failures = 0 if self.starts > before else failures + 1
            self.bridge.closed(reason)
            await asyncio.sleep(min(_LONGEST_WAIT, _WAIT * 2.0 ** min(failures, 10)))

    async def _once(self) -> str:
        self._problem = ""
        try:
            _, pipe = await asyncio.get_running_loop().create_unix_connection(
                lambda: _Pipe(self.bridge.feed), self._path
            )
        except OSError as error:
            return f"the server does not run: {error.strerror or error}"
        self._pipe = pipe
        self.starts += 1
        try:
            self.bridge.opened(self, fresh=True)
            await pipe.ended.wait()
        except asyncio.CancelledError:
            self.bridge.closed("the server is being let go")
            raise
        finally:
            self._pipe = None
            pipe.close()
        log.warning("server ended", extra={"route": self._name, "reason": self._problem or "its output has ended"})
        return self._problem or "the server's process ended"

    def _note_change(self) -> None:
        (self._up.set if self.bridge.link.up else self._up.clear)()
        self._changed()

    # the bridge's transport

    def write(self, lines: bytes) -> None:
        if self._pipe is not None:
            self._pipe.write(lines)

    def backlog(self) -> int:
        return 0 if self._pipe is None else self._pipe.backlog()

    def give_up(self, reason: str) -> None:
        self._problem = reason
        if self._pipe is not None:
            self._pipe.close()


class _Pipe(asyncio.Protocol):
    """One connection."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended.set()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def backlog(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _nobody() -> None:
    return None
