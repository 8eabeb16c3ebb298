"""One child process in a group of its own: started, awaited, and stopped together with its own children."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairway.local import leash


class Keeper(Protocol):
    """Sees to it that a process group does not outlive us."""

    def watch(self, group: int) -> None: ...
    def release(self, group: int) -> None: ...


class Register(Protocol):
    """Remembers which processes are ours."""

    def remember(self, pid: int) -> None: ...
    def forget(self, pid: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by itself with a code, or by a signal."""

    code: int
    signal: int = 0


class CannotStart(Exception):
    """The program could not be started at all; the message says why."""


class Process:
    """A running child. Whoever started it awaits `wait` or `stop`; only then is its group given up."""

    def __init__(self, child: asyncio.subprocess.Process, keeper: Keeper, register: Register) -> None:
        self._child = child
        self._keeper = keeper
        self._register = register
        self._ended: asyncio.Task[Exit] = asyncio.create_task(self._until_the_end(), name=f"process {child.pid}")

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        directory: Path,
        log: Path,
        keeper: Keeper,
        register: Register,
        pipes: bool = False,
    ) -> "Process":
        """Starts the program with its output appended to `log`; with `pipes`, only what it says on standard error.

        Raises CannotStart.
        """
        try:
            with log.open("ab") as output:
                child = await asyncio.create_subprocess_exec(
                    *argv,
                    env={**env, leash.VARIABLE: str(os.getpid())},
                    cwd=directory,
                    stdin=asyncio.subprocess.PIPE if pipes else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE if pipes else output,
                    stderr=output,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise CannotStart(f"there is no program {argv[0]} in PATH") from None
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument or a variable
            raise CannotStart(str(error)) from None
        keeper.watch(child.pid)
        register.remember(child.pid)
        return cls(child, keeper, register)

    @property
    def child(self) -> asyncio.subprocess.Process:
        """With its pipes, where it has any."""
        return self._child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def ended(self) -> bool:
        return self._ended.done()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    async def stop(self, *, grace: float) -> Exit:
        """SIGTERM to the process, SIGKILL to its whole group once it ended or `grace` seconds are over."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                return await self.wait()
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.ended:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def _until_the_end(self) -> Exit:
        code = await self._child.wait()
        self.kill()  # what the process started and left behind
        self._keeper.release(self._child.pid)
        self._register.forget(self._child.pid)
        return Exit(0, -code) if code < 0 else Exit(code)
