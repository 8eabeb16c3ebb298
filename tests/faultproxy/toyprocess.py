"""The toy controller as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Self

from rig.api import wait_for
from tests.faultproxy.proxy import FaultProxy

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS_TO_STOP = 30.0


class ToyProcess:
    """Runs against a proxy, which from then on aims its signals at it. Leaving the block kills what still runs."""

    def __init__(self, proxy: FaultProxy, namespace: str, *options: str) -> None:
        self.proxy = proxy
        self._argv = ["--kubeconfig", str(proxy.kubeconfig), "--namespace", namespace, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def start(self, *more: str) -> Self:
        """`more` are options of this start alone."""
        assert self._process is None or self._process.poll() is not None, "the toy is still running"
        argv = [sys.executable, "-m", "tests.faultproxy.toy", *self._argv, *more]
        # Nothing of the surrounding shell may lead it to another cluster.
        environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self._process = subprocess.Popen(argv, cwd=REPOSITORY, env=environ, stdout=self._log, stderr=self._log)
        self.proxy.client_pid = self._process.pid
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """Halted by SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_killed(self, *, seconds: float = 60.0) -> None:
        """Until the proxy's SIGKILL has hit it. A death of another cause is an error."""
        assert self._process is not None
        code = self._process.wait(seconds)
        assert code == -signal.SIGKILL, f"the toy ended with {code}:\n{self.output()}"

    def wait_stopped(self, *, seconds: float = 60.0) -> None:
        wait_for("the toy to be halted", lambda: self.stopped, seconds=seconds)

    def stop(self) -> None:
        """A clean end, as a deployment would bring it about."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(SECONDS_TO_STOP)
        assert code == 0, f"the toy ended with {code}:\n{self.output()}"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self, *, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def counts(self) -> dict[str, int]:
        """What it wrote since its last start, as it said when it stopped."""
        said = [line for line in self.output().splitlines() if line.startswith("{")]
        last: dict[str, int] = json.loads(next(line for line in reversed(said) if '"stopped"' in line))
        return last

    def tracebacks(self) -> list[str]:
        """Lines of the log that tell of a bug."""
        return [line for line in self.output().splitlines() if "Traceback" in line or '"exception"' in line]
