"""A child process whose input and output are lines, in a group of its own that does not outlive us."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from fairway.process.warden import Warden

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LAST_PIPES: Final = 1.0
"""Seconds after the end of the process in which its pipes are read to their ends."""
# Waits for the word that the warden knows of it, so that there is no moment at which our own death would leave it
# behind; what it then becomes has the same pid.
_LAUNCHER: Final = 'read -r _ || exit 0; exec "$@"'


class CannotStart(Exception):
    """The program could not be started at all; the message says why."""


class LineChild(asyncio.SubprocessProtocol):
    """A running program. `ended` is set when it is dead, its group killed and its output read.

    `out` and `err` get what it writes, as it comes.
    """

    def __init__(self, warden: Warden, *, out: Callable[[bytes], None], err: Callable[[bytes], None]) -> None:
        self._warden = warden
        self._out = out
        self._err = err
        self._transport: asyncio.SubprocessTransport = cast(asyncio.SubprocessTransport, None)
        self._stdin: asyncio.WriteTransport = cast(asyncio.WriteTransport, None)
        self.ended = asyncio.Event()
        self.reason = ""
        """How it ended."""

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        warden: Warden,
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
    ) -> "LineChild":
        """Raises CannotStart."""
        program = argv[0]
        where = Path(cwd) if cwd else Path.cwd()
        if not where.is_dir():
            raise CannotStart(f"there is no directory {cwd}")
        path = str(where / program) if "/" in program else program
        if shutil.which(path, path=env.get("PATH", os.defpath)) is None:
            raise CannotStart(f"there is no program {program}" if "/" in program else f"{program} is not in PATH")
        loop = asyncio.get_running_loop()
        try:
            transport, child = await loop.subprocess_exec(
                lambda: cls(warden, out=out, err=err),
                "/bin/sh",
                "-c",
                _LAUNCHER,
                "sh",
                *argv,
                env=dict(env),
                cwd=cwd or None,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument or a variable
            raise CannotStart(str(error)) from None
        warden.watch(transport.get_pid())
        child._stdin.write(b"\n")
        return child

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    # lines

    def write(self, lines: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(lines)

    def backlog(self) -> int:
        return self._stdin.get_write_buffer_size()

    # the end

    async def stop(self, *, grace: float) -> None:
        """As MCP has it: end of input, then SIGTERM, then SIGKILL, with `grace` seconds after each of the first two."""
        self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.ended.wait()
                    return
            self.kill(number)
        await self.ended.wait()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """The process and all that it started, if they stayed in its group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_STDIN))

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        (self._out if fd == _STDOUT else self._err)(data)

    def process_exited(self) -> None:
        code = self._transport.get_returncode() or 0
        if code < 0:
            self.reason = f"was killed by {signal.Signals(-code).name}"
        else:
            self.reason = f"ended with exit code {code}"
        self.kill()  # what it started and left behind
        self._warden.release(self.pid)
        # somebody who left the group may hold the pipes open for ever
        asyncio.get_running_loop().call_later(_LAST_PIPES, self._transport.close)
        asyncio.get_running_loop().call_later(_LAST_PIPES, self.ended.set)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended.set()
