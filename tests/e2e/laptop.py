"""`fairway up` as a person starts it: a process, its output, its state on disk."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

TIMEOUT = 60.0
EXAMPLES = Path(__file__).parents[2] / "examples"
QUICKSTART = EXAMPLES / "quickstart"
TWO = (QUICKSTART / "hello.yaml", EXAMPLES / "tools" / "filter-and-rename.yaml")
"""Servers that are there in a moment and need no package: hello and clock."""
UP_TWO = ("-f", str(TWO[0]), "-f", str(TWO[1]))


def until(holds: Callable[[], Any], what: str, *, within: float = TIMEOUT) -> Any:
    """The first true value of `holds`."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {within:g} s")


def free_port_base() -> int:
    """The first of ten free ports, below those that outgoing connections of anybody take."""
    while True:
        base = random.randrange(20000, 32000, 10)
        with ExitStack() as taken, suppress(OSError):
            for port in range(base, base + 10):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return base


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.add(int(entry.name))
    return found


def heed_signals() -> None:
    """A test run under nohup or in the background of a shell hands down that they are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Laptop:
    """A directory with manifests, in which `fairway` is run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / ".fairway"
        self.base = free_port_base()
        self.process: subprocess.Popen[str] | None = None
        self._output = directory / "output"

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *arguments: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        """To its end."""
        return subprocess.run(
            self._command(arguments), cwd=self.directory, capture_output=True, text=True, timeout=timeout, check=False
        )

    def up(self, *arguments: str) -> "Laptop":
        (self.state / "servers.json").unlink(missing_ok=True)  # so that what a killed one said is not taken for new
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                self._command(["up", "--port-base", str(self.base), *arguments]),
                cwd=self.directory,
                stdout=output,
                stderr=output,
                text=True,
                preexec_fn=heed_signals,
            )
        return self

    @staticmethod
    def _command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "fairway", *arguments]

    @property
    def output(self) -> str:
        return self._output.read_text()

    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """What `up` says of each server, by its name in the default namespace."""
        try:
            found = json.loads((self.state / "servers.json").read_text())["servers"]
        except (OSError, ValueError):
            return {}
        return {name.removeprefix("default/"): server for name, server in found.items()}

    def until(self, holds: Callable[[Mapping[str, Mapping[str, Any]]], Any], what: str) -> Any:
        def checked() -> Any:
            assert self.process is not None
            assert self.process.poll() is None, f"fairway up ended:\n{self.output}"
            servers = self.servers()
            return servers and holds(servers)

        try:
            return until(checked, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.servers(), indent=1)[:4000]}\n{self.output}") from None

    def until_ready(self, *names: str) -> "Laptop":
        self.until(
            lambda servers: all(servers.get(n, {}).get("ready") for n in names or servers), f"ready: {names or 'all'}"
        )
        return self

    def until_said(self, words: str) -> None:
        until(lambda: words in self.output, f"output has {words!r}")

    def url(self, name: str) -> str:
        return str(self.servers()[name]["url"])

    def pids(self) -> set[int]:
        """The processes that run pods and the proxy."""
        return {int(path.name) for path in (self.state / "pids").iterdir() if path.name.isdecimal()}

    def pid_of(self, *words: str) -> int:
        """The one child whose command line has all these words."""
        found = [pid for pid in self.pids() if all(w in Path(f"/proc/{pid}/cmdline").read_text() for w in words)]
        assert len(found) == 1, found
        return found[0]

    def everything(self) -> set[int]:
        """`up` itself and all of its children, the warden included."""
        assert self.process is not None
        return {self.process.pid} | children_of(self.process.pid) | self.pids()

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self) -> None:
        """After a test, whatever it did."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait()
