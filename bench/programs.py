"""Starts the programs that benchmarks and tests under load need, and watches what they use."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.load import HOST, Address

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PATIENCE: Final = 60.0
"""Seconds: machines that run tests stall now and then."""
_PR_SET_PDEATHSIG: Final = 1


class DidNotStart(Exception):
    """A program ended, or did not come up in time; what it said is in the message."""


@dataclass(slots=True)
class Program:
    """A process, and the port that it listens on."""

    name: str
    process: subprocess.Popen[bytes]
    port: int = 0
    admin: int = 0

    @property
    def address(self) -> Address:
        return HOST, self.port

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu(self) -> float:
        """Seconds so far, of all threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> float:
        """Megabytes now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

    def get(self, path: str, *, port: int = 0) -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{port or self.admin or self.port}{path}", timeout=30) as answer:
            return bytes(answer.read())

    def counts(self) -> dict[str, int]:
        """What an answering server has had so far."""
        said: dict[str, int] = json.loads(self.get("/counts"))
        return said

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, *, seconds: float = PATIENCE) -> int:
        """Asks it to end, and waits until it has."""
        if self.process.poll() is None:
            self.tell(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def start(
    name: str,
    command: Sequence[str],
    *,
    core: int | None = None,
    log: Path | None = None,
    port: int = 0,
    says: bool = False,
) -> Program:
    """With `core`, it runs there and nowhere else, if this machine has more than one. It does not outlive us."""

    def before() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if core is not None and (os.cpu_count() or 1) > 1:
            os.sched_setaffinity(0, {core})

    with (log or Path(os.devnull)).open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE if says else sink,
            stderr=sink,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])},
            preexec_fn=before,
        )
    return Program(name, process, port)


def answering_server(
    *, port: int = 0, ledger: Path | None = None, pause: float = 0.05, core: int | None = None
) -> Program:
    """A server of bench.answering, once it listens."""
    command = [sys.executable, "-m", "bench.answering", str(port), "--pause", str(pause)]
    if ledger is not None:
        command += ["--ledger", str(ledger)]
    program = start("server", command, core=core, says=True)
    assert program.process.stdout is not None
    line = program.process.stdout.readline()
    if not line.strip().isdigit():
        program.kill()
        raise DidNotStart("the answering server ended at once")
    program.port = int(line)
    return program


def write_config(path: Path, *routes: Any) -> None:
    """A RunConfig, put in place in one step."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode({"version": 1, "routes": routes}))
    new.replace(path)


def route(
    port: int, upstreams: Sequence[int], *, name: str = "default/server", path: str = "/mcp", **settings: Any
) -> dict[str, Any]:
    """A route of a RunConfig, from a port of this machine to others."""
    return {
        "name": name,
        "listen": {"host": HOST, "port": port, "path": path},
        "upstream": {"addresses": [f"{HOST}:{upstream}" for upstream in upstreams]},
        **settings,
    }


def proxy(
    config: Path, *, port: int, name: str = "proxy", core: int | None = None, ready: bool = True, grace: float = 20.0,
    pre_stop: float = 0.0,
) -> Program:  # fmt: skip
    """`fairway proxy`, once it is ready."""
    admin = free_port()
    log = config.with_name(f"{name}.log")
    command = [sys.executable, "-m", "fairway", "proxy", "--config", str(config), "--admin", f"{HOST}:{admin}"]
    command += ["--grace", str(grace), "--pre-stop", str(pre_stop)]
    program = start(name, command, core=core, log=log, port=port)
    program.admin = admin
    try:
        wait_for(program, "/readyz" if ready else "/healthz")
    except DidNotStart as error:
        program.kill()
        raise DidNotStart(f"{error}\n{log.read_text()[-2000:]}") from None
    return program


def wait_for(program: Program, path: str = "", *, seconds: float = PATIENCE) -> None:
    """Until something answers: to GET `path`, or to a connection where there is none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and program.process.poll() is None:
        try:
            if path:
                program.get(path)
            else:
                socket.create_connection(program.address, 1).close()
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.05)
        else:
            return
    raise DidNotStart(f"{program.name} did not come up on port {program.admin or program.port}")


@contextmanager
def running(*programs: Program) -> Iterator[None]:
    """Ends the programs with the block; those that have ended before are fine."""
    try:
        yield
    finally:
        for program in programs:
            if program.process.poll() is None:
                program.kill()
