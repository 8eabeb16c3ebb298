"""A terminal in which the commands of one page are typed, one after another, in a folder of its own."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rig.state import REPOSITORY
from tests.blocks import compare
from tests.blocks.fence import Step

FIRST_PORT = 7001
"""What pages show; here the ports are others, since those may be taken."""
WAIT = 90.0
_GOES_ON = re.compile(
    r"^(fairway up\b(?!.*(--check|--detach|-d\b|--help))|make up\b(?!.*--check)|kubectl port-forward\b|fairway proxy\b)"
)
_UP = re.compile(r"^(fairway up|make up)\b")
_PORT = re.compile(r"((?<=127\.0\.0\.1:)|(?<= ))70\d\d\b(?=[:/]|$)")


class Differs(AssertionError):
    """A command that did not do what the page says."""


@dataclass
class _Running:
    command: str
    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Session:
    """Used in a `with`: what still runs at the end is ended as ctrl-c does it."""

    folder: Path
    port_base: int
    environment: Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What stands in pages, and what it is called here."""
    running: list[_Running] = field(default_factory=list)

    def __enter__(self) -> "Session":
        for name in ("Makefile", ".venv", "pyproject.toml", "requirements", "src", "examples", "deploy", "docs"):
            (self.folder / name).symlink_to(REPOSITORY / name)  # a page is read in a clone of the repository
        return self

    def __exit__(self, *_: object) -> None:
        while self.running:
            self._stop(self.running.pop())
        if (self.folder / ".fairway").exists():  # what was started with --detach
            subprocess.run(["fairway", "down"], cwd=self.folder, env=self.environment, check=True, capture_output=True)

    def run(self, step: Step) -> None:
        if step.command == "^C":
            self._stop(self.running.pop())
            return
        command = self._here(step.command)
        if _GOES_ON.match(step.command):
            self._begin(command, step)
            return
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT,
            check=False,
        )
        said = self._as_shown(done.stdout)
        if step.shown is None and done.returncode != 0:
            raise Differs(f"$ {command}\nended with {done.returncode}:\n{said}")
        if step.shown is not None and not compare.same(step.shown, said):
            raise Differs(_difference(command, step.shown, said))

    def _begin(self, command: str, step: Step) -> None:
        output = self.folder / f".output-{len(self.running)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=_heed_interrupts,
            )
        running = _Running(command, process, output)
        self.running.append(running)
        shown = step.shown or (" Ready " if _UP.match(step.command) else "Forwarding from ...")
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            said = self._as_shown(running.said())
            if (shown == " Ready " and shown in said) or compare.within(shown, said):
                return
            if process.poll() is not None:
                raise Differs(f"$ {command}\nended with {process.returncode}:\n{said}")
            time.sleep(0.05)
        raise Differs(_difference(command, shown, self._as_shown(running.said())))

    def _stop(self, running: _Running) -> None:
        running.process.send_signal(signal.SIGINT)
        try:
            running.process.wait(30)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
            raise Differs(f"$ {running.command}\ndid not stop at ctrl-c") from None

    def _here(self, command: str) -> str:
        for shown in sorted(self.renamed, key=len, reverse=True):
            command = command.replace(shown, self.renamed[shown])
        if _UP.match(command):
            ports = f"--port-base {self.port_base}"
            if not command.startswith("make"):
                command += f" {ports}"
            elif "ARGS=" in command:
                command = re.sub(r"ARGS=(\"([^\"]*)\"|(\S+))", lambda m: f'ARGS="{m[2] or m[3]} {ports}"', command)
            else:
                command += f' ARGS="{ports}"'
        return _PORT.sub(lambda port: str(int(port[0]) - FIRST_PORT + self.port_base), command)

    def _as_shown(self, said: str) -> str:
        for shown, here in sorted(self.renamed.items(), key=lambda pair: len(pair[1]), reverse=True):
            said = said.replace(here, shown)
        ports = range(self.port_base, self.port_base + 10)
        return re.sub(
            r"(?<=127\.0\.0\.1:)(\d+)\b",
            lambda m: str(int(m[0]) - self.port_base + FIRST_PORT) if int(m[0]) in ports else m[0],
            said,
        )


def environment(folder: Path, *, kubeconfig: Path | None, programs: tuple[Path, ...] = ()) -> dict[str, str]:
    """What somebody has who begins: a home without settings, the program in the path, a cluster or none."""
    home = folder / ".home"
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("LANG", "TERM", "SSL_CERT_FILE") if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "NPM_", "npm_"))}
    path = os.pathsep.join([str(REPOSITORY / ".venv" / "bin"), *map(str, programs), os.environ["PATH"]])
    return {
        **kept,
        "HOME": str(home),
        "PATH": path,
        "KUBECONFIG": str(kubeconfig or folder / "no-cluster"),
        "COLUMNS": "200",
    }


def _heed_interrupts() -> None:
    """A test run in the background of a shell hands down that ctrl-c is ignored."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _difference(command: str, shown: str, said: str) -> str:
    return f"$ {command}\n--- the page shows\n{shown}\n--- it said\n{said}"
