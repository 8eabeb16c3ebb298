"""A Go module of the rig, built once into the cache, with progress."""

import fcntl
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import CannotRunError, RigError
from rig.golang import PRIVATE_CACHES, Go, find_go, wanted_version
from rig.progress import Progress
from rig.state import cache_directory

NETWORK_SIGNS = (
    "dial tcp",
    "no such host",
    "proxyconnect",
    "connection refused",
    "network is unreachable",
    "i/o timeout",
    "connection reset",
    "TLS handshake",
    "x509:",
    "EOF",
    "deadline exceeded",
    "module lookup disabled",  # GOPROXY=off
    ": reading http",  # the proxy answered, and the answer was no
)
FIGURES = "build.json"


@dataclass(frozen=True)
class GoModule:
    """Sources with a go.mod and a go.sum, and the programs that they make."""

    source: Path
    # What people call it.
    title: str
    # The module whose version the cache is named after.
    main_dependency: str
    programs: Sequence[str]
    # What the first build costs, for whoever waits.
    cost: str
    stamp_version_into: Sequence[str] = ()

    @property
    def go_mod(self) -> str:
        return (self.source / "go.mod").read_text()

    @property
    def version(self) -> str:
        pattern = rf"^\s*(?:require\s+)?{re.escape(self.main_dependency)} (v\d+\.\d+\.\d+\S*)"
        match = re.search(pattern, self.go_mod, re.MULTILINE)
        if match is None:
            raise RigError(f"{self.source / 'go.mod'} requires no {self.main_dependency}")
        return match.group(1)

    def cache_key(self) -> str:
        """Names the content of the sources, so that a change is never served from the cache."""
        digest = hashlib.sha256()
        for path in sorted([self.source / "go.mod", self.source / "go.sum", *self.source.rglob("*.go")]):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.source)} {len(content)}\n".encode())
            digest.update(content)
        return f"{self.source.name}-{self.version}-{platform.machine()}-{digest.hexdigest()[:12]}"

    def directory(self, environ: Mapping[str, str] = os.environ) -> Path:
        return cache_directory(environ) / self.cache_key()

    def is_built(self, environ: Mapping[str, str] = os.environ) -> bool:
        directory = self.directory(environ)
        return all(os.access(directory / program, os.X_OK) for program in self.programs)

    def figures(self, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
        """What building it cost; empty where nobody measured."""
        try:
            read: dict[str, object] = json.loads((self.directory(environ) / FIGURES).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return read

    def ensure(self, *, progress: Progress, environ: Mapping[str, str] = os.environ) -> Path:
        """Where the programs are, built now if need be. Whoever comes second waits for the first."""
        target = self.directory(environ)
        if self.is_built(environ):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "build.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.milestone("another process is building; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_built(environ):
                self._build(target, progress=progress, environ=environ)
        return target

    def _build(self, target: Path, *, progress: Progress, environ: Mapping[str, str]) -> None:
        go = find_go(wanted=wanted_version(self.go_mod), cache=target.parent, environ=environ)
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix="building-"))
        try:
            Compilation(module=self, go=go, progress=progress).run(draft)
            shutil.rmtree(target, ignore_errors=True)
            draft.chmod(0o755)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def linker_flags(self) -> str:
        """Without a version every component calls itself v0.0.0-master, and clients draw wrong conclusions."""
        major, minor = self.version.removeprefix("v").split(".")[:2]
        values = {
            "gitVersion": self.version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
        }
        stamps = [f"-X {package}.{key}={value}" for package in self.stamp_version_into for key, value in values.items()]
        return " ".join(["-s", "-w", *stamps])


class Compilation:
    """One run of the compiler."""

    def __init__(self, *, module: GoModule, go: Go, progress: Progress) -> None:
        self._module = module
        self._go = go
        self._progress = progress
        # GOTOOLCHAIN=local: a compiler is never fetched by surprise. GOFLAGS of the machine may ask for -mod=vendor.
        fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        self._environment = {**os.environ, **go.environment, **fixed}

    def run(self, output: Path) -> None:
        module = self._module
        self._progress.milestone(f"building {module.title} with {self._go.version}: once, {module.cost}")
        began, used = time.monotonic(), _children_cpu_seconds()
        total = self._count()
        command = [str(self._go.executable), "build", "-v", "-trimpath", "-ldflags", module.linker_flags()]
        self._compile([*command, "-o", f"{output}/", "./..."], total=total)
        figures = {
            "version": module.version,
            "go": self._go.version,
            "wall_seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(_children_cpu_seconds() - used, 1),
            "bytes": sum(path.stat().st_size for path in output.iterdir()),
        }
        (output / FIGURES).write_text(json.dumps(figures) + "\n")
        self._progress.milestone(f"built in {figures['wall_seconds']} s, {figures['cpu_seconds']} s of CPU")

    def _count(self) -> int:
        """How many packages there are in all; fetches the modules on the way."""
        self._progress.update("fetching Go modules")
        answer = subprocess.run(
            [self._go.executable, "list", "-deps", "./..."],
            cwd=self._module.source,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise failure("the Go modules could not be fetched", answer.stderr.splitlines())
        return len(answer.stdout.splitlines())

    def _compile(self, command: list[str], *, total: int) -> None:
        said: list[str] = []
        compiled = 0
        process = subprocess.Popen(
            command, cwd=self._module.source, env=self._environment, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                text = line.strip()
                said.append(text)
                # A line that is one word names a package that is done; everything else is a complaint.
                compiled += " " not in text
                linking = " (linking)" if compiled >= total - 2 else ""
                self._progress.update(f"{compiled} of at most {total} packages compiled{linking}")
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            raise failure(f"building {self._module.title} failed", [text for text in said if " " in text])


def failure(problem: str, lines: Sequence[str]) -> RigError:
    """What the compiler said, judged by whether this machine or the sources are at fault."""
    last = "\n  ".join(line for line in lines[-6:] if line)
    problem = f"{problem}:\n  {last}"
    if any(sign in line for line in lines for sign in NETWORK_SIGNS):
        return CannotRunError(
            problem,
            fix="make the Go module proxy reachable (GOPROXY), or set RIG_BIN to a directory with the binaries",
        )
    if any("no space left" in line for line in lines):
        return CannotRunError(problem, fix="free 4 GB of disk, or point GOCACHE and XDG_CACHE_HOME to a larger one")
    return RigError(problem, fix="read the message above; `python -m rig build` tries again")


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def discard_private_caches(environ: Mapping[str, str] = os.environ) -> None:
    """Drop what a fetched compiler kept while it built: 3 GB that nobody else uses. Not while somebody builds."""
    directory = cache_directory(environ)
    caches = list(directory.glob(PRIVATE_CACHES))
    if not caches:
        return
    with (directory / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        for cache in caches:
            # Go makes its module cache read-only.
            for path in cache.rglob("*"):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
            shutil.rmtree(cache)
