"""The directory in which local mode keeps its ports, logs and running state; one `fairway up` at a time."""

import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from fairway.local.box import RUNTIMES, Box

LOGS_KEPT = 50


class InUse(Exception):
    """Another `fairway up` holds the directory."""

    def __init__(self, path: Path, pid: str) -> None:
        who = f" (process {pid})" if pid else ""
        super().__init__(
            f"{path} is in use by another `fairway up`{who}; stop that one, or give this one --state-dir of its own"
        )


class StateDirectory:
    """Holds the lock while entered. What a killed run left behind is cleaned up on entry."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.ports = self.path / "ports.json"
        self.servers = self.path / "servers.json"
        self.logs = self.path / "logs"
        self.run = self.path / "run"
        self.pids = self.path / "pids"
        self.proxy = self.path / "proxy"
        self.packages = self.path / "packages"
        """Servers that are packages, kept for the next run."""
        self.ended_leftovers = False
        """Whether a killed run had left processes behind, which were ended on entry."""
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        self.pids.mkdir(mode=0o700, exist_ok=True)
        self._end_leftovers()
        self._clear()
        self.run.mkdir(mode=0o700)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        self._drop_old_logs()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        if self._lock is not None:
            self._lock.close()  # the file stays: removing it would let two others lock different ones

    def log_of(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def remember(self, pid: int) -> None:
        """Notes a child, so that the next start can end it should this run and its warden both be killed."""
        (self.pids / str(pid)).write_text(identity_of(pid) or "")

    def remember_box(self, box: Box) -> None:
        """Notes a container, which is no child of ours and would outlive us."""
        (self.pids / box.name).write_text(box.runtime)

    def forget_box(self, box: Box) -> None:
        (self.pids / box.name).unlink(missing_ok=True)

    def forget(self, pid: int) -> None:
        (self.pids / str(pid)).unlink(missing_ok=True)

    def _locked(self) -> IO[str]:
        file = (self.path / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = file.read().strip()
            file.close()
            raise InUse(self.path, pid) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def _end_leftovers(self) -> None:
        for note in self.pids.iterdir():
            identity = note.read_text()
            if note.name.startswith("fairway-") and identity in RUNTIMES:
                Box(identity, note.name, "").remove()
                self.ended_leftovers = True
            if note.name.isdecimal() and identity and identity_of(int(note.name)) == identity:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(int(note.name), signal.SIGKILL)
                    self.ended_leftovers = True
            note.unlink()

    def _clear(self) -> None:
        self.servers.unlink(missing_ok=True)
        for directory in (self.run, self.proxy):
            shutil.rmtree(directory, ignore_errors=True)

    def _drop_old_logs(self) -> None:
        logs = sorted(self.logs.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
        for log in logs[LOGS_KEPT:]:
            log.unlink(missing_ok=True)


def identity_of(pid: int) -> str | None:
    """Tells a process from a later one with the same pid; None if there is no such process."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        return f"{boot} {stat.rpartition(')')[2].split()[19]}"  # start time in ticks since boot
    listed = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def shown_path(path: Path) -> str:
    """Relative where that is shorter, since people copy it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
