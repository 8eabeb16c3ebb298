import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.process import Daemon, ProcessTable, end_processes, start_ticks, wait_for_exit

PYTHON = Path(sys.executable)


def daemon(name: str = "one", code: str = "import time; time.sleep(60)", **more: object) -> Daemon:
    return Daemon(name=name, argv=("shown-name", "-c", code), executable=PYTHON, **more)  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    made = ProcessTable(run=tmp_path / "run", logs=tmp_path / "log")
    yield made
    made.stop(made.names(), at_once=True)


def running_pid(table: ProcessTable, name: str = "one") -> int:
    pid = table.pid(name)
    assert pid is not None
    return pid


def test_a_daemon_is_started_once(table: ProcessTable) -> None:
    assert table.start(daemon())
    pid = running_pid(table)
    assert not table.start(daemon())
    assert table.pid("one") == pid
    assert table.names() == ["one"]


def test_a_daemon_with_other_arguments_replaces_the_old_one(table: ProcessTable) -> None:
    table.start(daemon())
    old = running_pid(table)
    assert table.start(daemon(code="import time; time.sleep(61)"))
    assert running_pid(table) != old
    assert start_ticks(old) is None


def test_a_daemon_is_restarted_when_a_file_that_it_read_has_changed(table: ProcessTable, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("a")
    assert table.start(daemon(inputs=(config,)))
    assert not table.start(daemon(inputs=(config,)))
    config.write_text("b")
    assert table.start(daemon(inputs=(config,)))


def test_a_daemon_that_ended_is_started_again(table: ProcessTable) -> None:
    table.start(daemon())
    record = json.loads(_pid_file(table).read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_for_exit(record["pid"], started=record["started"])
    assert table.pid("one") is None
    assert table.start(daemon())


def test_a_daemon_has_a_session_of_its_own(table: ProcessTable) -> None:
    table.start(daemon())
    pid = running_pid(table)
    assert os.getsid(pid) == pid


def test_what_a_daemon_says_is_logged(table: ProcessTable) -> None:
    table.start(daemon(code="import sys; print('out'); print('err', file=sys.stderr)"))
    record = json.loads(_pid_file(table).read_text())
    wait_for_exit(record["pid"], started=record["started"])
    assert {"out", "err"} <= set(table.log_tail("one").split())
    with pytest.raises(RigError, match=r"one stopped by itself[\s\S]*err"):
        table.require(["one"])


def test_stopping_asks_first(table: ProcessTable, tmp_path: Path) -> None:
    told = tmp_path / "told"
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    table.start(
        daemon(
            code=f"""
import pathlib, signal, sys
def on_term(*_):
    pathlib.Path({str(told)!r}).touch()
    sys.exit()
signal.signal(signal.SIGTERM, on_term)
open({str(ready)!r}, "w").close()
signal.pause()
"""
        )
    )
    ready.read_text()
    table.stop(["one"])
    assert told.exists()
    assert table.names() == []


def test_stopping_at_once_does_not_ask(table: ProcessTable, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    code = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(ready)!r}, "w").close()
signal.pause()
"""
    table.start(daemon(code=code))
    ready.read_text()
    pid = running_pid(table)
    table.stop(["one"], at_once=True)
    assert start_ticks(pid) is None


def test_a_recycled_pid_is_never_ended(table: ProcessTable) -> None:
    stranger = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)"])
    try:
        table.start(daemon())
        table.stop(["one"], at_once=True)
        # As if the pid had been given to somebody else since: the start time is another one.
        ticks = start_ticks(stranger.pid)
        assert ticks is not None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        _pid_file(table).write_text(
            json.dumps({"pid": stranger.pid, "started": ticks - 1, "boot": boot, "digest": "x"})
        )
        assert table.pid("one") is None
        table.stop(["one"], at_once=True)
        assert stranger.poll() is None
        # The same after a restart of the machine, when the numbers may coincide.
        _pid_file(table).write_text(
            json.dumps({"pid": stranger.pid, "started": ticks, "boot": "another", "digest": "x"})
        )
        table.stop(["one"], at_once=True)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "123", "{}", '{"pid": "x"}'])
def test_a_broken_pid_file_means_not_running(table: ProcessTable, content: str) -> None:
    _pid_file(table).parent.mkdir(parents=True, exist_ok=True)
    _pid_file(table).write_text(content)
    assert table.pid("one") is None
    table.stop(["one"])
    assert table.names() == []


def test_a_process_that_waits_to_be_reaped_does_not_run() -> None:
    child = subprocess.Popen([PYTHON, "-c", "pass"])
    handle = os.pidfd_open(child.pid)
    select.select([handle], [], [], 10)
    os.close(handle)
    assert start_ticks(child.pid) is None
    child.wait()


def test_memory_is_that_of_the_process(table: ProcessTable) -> None:
    table.start(daemon(code="x = bytearray(50 << 20); import time; time.sleep(60)"))
    deadline = threading.Event()
    for _ in range(200):
        if table.resident_megabytes()["one"] > 50:
            break
        deadline.wait(0.05)
    assert 50 < table.resident_megabytes()["one"] < 200


def test_processes_that_are_gone_are_no_error() -> None:
    child = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)"])
    end_processes([child.pid])
    assert child.wait() == -signal.SIGKILL
    end_processes([child.pid])


def test_waiting_for_a_process_ends_with_the_process() -> None:
    child = subprocess.Popen([PYTHON, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    ticks = start_ticks(child.pid)
    assert ticks is not None
    ended = threading.Event()

    def wait() -> None:
        wait_for_exit(child.pid, started=ticks)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not ended.wait(0.2)
    child.communicate()
    assert ended.wait(10)
    # Gone, or somebody else by now: nothing to wait for.
    wait_for_exit(child.pid, started=ticks)
    wait_for_exit(os.getpid(), started=0)


def _pid_file(table: ProcessTable) -> Path:
    return table.log_file("one").parent.parent / "run" / "one.pid"
