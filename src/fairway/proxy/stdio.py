"""A server that is a child process: started, talked to through a bridge, and started again when it dies."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from fairway.api.runconfig import Command
from fairway.mcp.probe import Outcome
from fairway.process.child import CannotStart, LineChild
from fairway.process.pace import RestartPace
from fairway.process.warden import Warden
from fairway.proxy.bridge.core import Bridge
from fairway.proxy.bridge.handshake import shake

INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Variables without which programs do not find their way; none of them is a secret."""
GRACE: Final = 2.0
"""Seconds to end by itself when its input ends, and again after SIGTERM."""
DRAIN: Final = 20.0
"""Seconds that requests at work get to be answered, when another server takes its place."""
MAX_LOG_LINE: Final = 2048
LOG_BURST: Final = 200
LOG_RATE: Final = 20.0
"""Lines a second of its standard error that are logged, beyond a burst; the rest is counted."""

log = logging.getLogger("fairway.proxy")


class BadCommand(Exception):
    """The command cannot be run as it is configured; the message says why."""


def environment_of(command: Command, own: Mapping[str, str]) -> dict[str, str]:
    """The variables of the child. Raises BadCommand."""
    environment = {name: own[name] for name in (*INHERITED, *command.inherit) if name in own}
    environment |= command.env
    for name, path in command.env_files.items():
        try:
            environment[name] = Path(path).read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise BadCommand(f"variable {name} cannot be read from {path}: {reason}") from None
    return environment


class ErrorLog:
    """Standard error of a server as log lines, as many as anybody would read."""

    def __init__(self, extra: Mapping[str, str]) -> None:
        self._extra = extra
        self._rest = b""
        self._allowance = float(LOG_BURST)
        self._then = monotonic()
        self._skipped = 0
        self.last = ""
        """The last line that was not empty."""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LOG_LINE]
        for line in lines:
            self._line(line)

    def close(self) -> None:
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def _line(self, raw: bytes) -> None:
        text = raw[:MAX_LOG_LINE].decode(errors="replace").rstrip()
        if not text:
            return
        self.last = text[:300]
        now = monotonic()
        self._allowance = min(LOG_BURST, self._allowance + (now - self._then) * LOG_RATE)
        self._then = now
        if self._allowance < 1:
            self._skipped += 1
            return
        self._allowance -= 1
        extra = {**self._extra, "line": text}
        if self._skipped:
            extra["skipped"] = str(self._skipped)
            self._skipped = 0
        log.info("server says", extra=extra)


class ChildServer:
    """One server process after the other behind one bridge, from `start` to `stop`."""

    def __init__(self, command: Command, *, name: str, pace: RestartPace | None = None) -> None:
        self._command = command
        self._name = name
        self._pace = pace or RestartPace(longest=30.0)
        self._child: LineChild | None = None
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

    def _note_change(self) -> None:
        (self._up.set if self.bridge.link.up else self._up.clear)()
        self._changed()

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
        crashes = 0
        with Warden() as warden:
            while True:
                began = monotonic()
                reason = await self._once(warden)
                crashes = self._pace.crashes(crashes, lasted=monotonic() - began)
                wait = self._pace.wait(crashes)
                log.warning("server ended", extra={"route": self._name, "reason": reason, "restart_in": wait})
                self.bridge.closed(reason)
                await asyncio.sleep(wait)

    async def _once(self, warden: Warden) -> str:
        """One life of the server; returns how it ended."""
        errors = ErrorLog({"route": self._name})
        self._problem = ""
        try:
            child = await LineChild.start(
                self._command.argv,
                env=environment_of(self._command, os.environ),
                cwd=self._command.cwd or None,
                warden=warden,
                out=self.bridge.feed,
                err=errors.feed,
            )
        except (CannotStart, BadCommand) as error:
            return f"the server cannot be started: {error}"
        self._child = child
        self.starts += 1
        log.info("server started", extra={"route": self._name, "pid": child.pid})
        try:
            self.bridge.opened(self, fresh=True)
            await child.ended.wait()
        except asyncio.CancelledError:
            self.bridge.closed("the server is being stopped")
            await child.stop(grace=GRACE)
            raise
        finally:
            self._child = None
            errors.close()
        if self._problem:
            return self._problem
        said = f": {errors.last}" if errors.last else ""
        return f"the server's process {child.reason}{said}"

    # the bridge's transport

    def write(self, lines: bytes) -> None:
        if self._child is not None:
            self._child.write(lines)

    def backlog(self) -> int:
        return 0 if self._child is None else self._child.backlog()

    def give_up(self, reason: str) -> None:
        self._problem = reason
        if self._child is not None:
            self._child.kill()


def _nobody() -> None:
    return None
