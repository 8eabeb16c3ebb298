"""Processes that outlive the command that started them, remembered well enough never to end a stranger."""

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError

STOP_GRACE_SECONDS = 8.0


@dataclass(frozen=True)
class Daemon:
    """One process to be: `argv[0]` is the name it shows, `executable` the file that runs."""

    name: str
    argv: tuple[str, ...]
    executable: Path
    environment: tuple[tuple[str, str], ...] = ()
    # Files read at the start alone: other content means another process.
    inputs: tuple[Path, ...] = ()

    @property
    def digest(self) -> str:
        contents = [path.read_bytes() for path in self.inputs]
        told = (self.argv, str(self.executable), self.environment, contents)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Record:
    """What the pid file says. A pid alone names whoever has it today; with boot and start time it names one process."""

    pid: int
    started: int
    boot: str
    digest: str


def boot_identity() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None if it is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself contain spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


class ProcessTable:
    """The daemons of one rig: a pid file and a log file each."""

    def __init__(self, *, run: Path, logs: Path) -> None:
        self._run = run
        self._logs = logs

    def log_file(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._run.glob("*.pid"))

    def pid(self, name: str) -> int | None:
        """The pid of the daemon if it still is the process that was started here."""
        record = self._record(name)
        return record.pid if record and self._lives(record) else None

    def start(self, daemon: Daemon) -> bool:
        """Start it unless it runs already; one that runs with other arguments is restarted. True if it was started."""
        record = self._record(daemon.name)
        if record and self._lives(record):
            if record.digest == daemon.digest:
                return False
            # Not asked: kube-apiserver would wait for its watchers, and nothing here loses data by being killed.
            self.stop([daemon.name], at_once=True)
        for directory in (self._run, self._logs):
            directory.mkdir(parents=True, exist_ok=True)
        with self.log_file(daemon.name).open("ab") as log:
            # A session of its own: ctrl-c in the terminal that said `up` is not meant for the cluster.
            process = subprocess.Popen(
                daemon.argv,
                executable=daemon.executable,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **dict(daemon.environment)},
                cwd="/",
            )
        process.returncode = 0  # Not ours to wait for: silences the warning about a child left running.
        ticks = start_ticks(process.pid)
        written = {"pid": process.pid, "started": ticks or 0, "boot": boot_identity(), "digest": daemon.digest}
        self._pid_file(daemon.name).write_text(json.dumps(written))
        return True

    def require(self, names: Iterable[str]) -> None:
        """Fail with the end of the log if one of the daemons is no longer there."""
        for name in names:
            if self.pid(name) is None:
                raise RigError(f"{name} stopped by itself; the end of {self.log_file(name)}:\n{self.log_tail(name)}")

    def log_tail(self, name: str, *, lines: int = 8) -> str:
        try:
            text = self.log_file(name).read_bytes()[-20000:].decode(errors="replace")
        except FileNotFoundError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in text.strip().splitlines()[-lines:])

    def stop(self, names: Sequence[str], *, at_once: bool = False) -> None:
        """End these daemons together: asked first, after the grace killed; `at_once` skips the asking."""
        open_handles: dict[str, int] = {}
        try:
            for name in names:
                handle = self._handle(name)
                if handle is not None:
                    open_handles[name] = handle
            _end(list(open_handles.values()), at_once=at_once)
        finally:
            for handle in open_handles.values():
                os.close(handle)
        for name in names:
            record = self._record(name)
            if record:
                # A child of this very process would stay a zombie.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(record.pid, os.WNOHANG)
            self._pid_file(name).unlink(missing_ok=True)

    def resident_megabytes(self) -> Mapping[str, float]:
        """Resident memory of each daemon that runs."""
        sizes = {}
        for name in self.names():
            pid = self.pid(name)
            if pid is None:
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                sizes[name] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        return sizes

    def _pid_file(self, name: str) -> Path:
        return self._run / f"{name}.pid"

    def _record(self, name: str) -> Record | None:
        try:
            data = json.loads(self._pid_file(name).read_text())
            return Record(int(data["pid"]), int(data["started"]), str(data["boot"]), str(data["digest"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def _lives(record: Record) -> bool:
        return record.boot == boot_identity() and start_ticks(record.pid) == record.started

    def _handle(self, name: str) -> int | None:
        """A handle on the process itself, which no other process can inherit."""
        record = self._record(name)
        if record is None:
            return None
        try:
            handle = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return None
        if self._lives(record):
            return handle
        os.close(handle)
        return None


def end_processes(pids: Iterable[int]) -> None:
    """Kill these processes at once and see them gone."""
    handles = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    try:
        _end(handles, at_once=True)
    finally:
        for handle in handles:
            os.close(handle)


def wait_for_exit(pid: int, *, started: int) -> None:
    """Return when that process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(pid) == started:
            select.select([handle], [], [])
    finally:
        os.close(handle)


def _end(handles: Sequence[int], *, at_once: bool) -> None:
    left = list(handles)
    for number, patience in ((signal.SIGTERM, STOP_GRACE_SECONDS), (signal.SIGKILL, STOP_GRACE_SECONDS)):
        if at_once and number == signal.SIGTERM:
            continue
        for handle in left:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
        deadline = time.monotonic() + patience
        while left and (remaining := deadline - time.monotonic()) > 0:
            ended, _, _ = select.select(left, [], [], remaining)
            left = [handle for handle in left if handle not in ended]
        if not left:
            return
    raise RigError(
        "a process did not end after SIGKILL; the kernel still holds it", fix="look at `ps -eo pid,stat,cmd`"
    )
