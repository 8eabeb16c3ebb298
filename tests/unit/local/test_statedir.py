"""The state directory: one at a time, and clean at the start."""

import os
import signal
import subprocess
import sys

import pytest

from fairway.local.statedir import LOGS_KEPT, InUse, StateDirectory, identity_of


def test_a_second_one_is_refused_with_the_pid_of_the_first(tmp_path):
    with StateDirectory(tmp_path / "s"), pytest.raises(InUse) as refused, StateDirectory(tmp_path / "s"):
        pass
    assert f"process {os.getpid()}" in str(refused.value)
    assert "--state-dir" in str(refused.value)


def test_it_can_be_had_again_after_it_was_left(tmp_path):
    for _ in range(2):
        with StateDirectory(tmp_path / "s") as state:
            assert state.run.is_dir()


def test_what_a_killed_run_left_is_gone_and_ports_and_logs_stay(tmp_path):
    with StateDirectory(tmp_path) as state:
        pass
    for path in (state.run / "pod/volumes", state.proxy / "config"):
        path.mkdir(parents=True)
    state.servers.write_text("{}")
    state.ports.write_text('{"default/hello": 7001}')
    state.log_of("old").write_text("x")
    with StateDirectory(tmp_path) as again:
        assert list(again.run.iterdir()) == []
        assert not again.proxy.exists()
        assert not again.servers.exists()
        assert again.ports.exists()
        assert again.log_of("old").exists()


def test_a_process_of_a_killed_run_is_ended_at_the_next_start(tmp_path):
    with StateDirectory(tmp_path):
        pass
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / "pids" / str(left.pid)).write_text(identity_of(left.pid))
        with StateDirectory(tmp_path) as state:
            assert left.wait(timeout=10) == -signal.SIGKILL
            assert list(state.pids.iterdir()) == []
    finally:
        left.kill()
        left.wait()


def test_a_process_that_only_has_the_same_pid_is_left_alone(tmp_path):
    with StateDirectory(tmp_path):
        pass
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / "pids" / str(other.pid)).write_text("another boot 12345")
        (tmp_path / "pids" / "not-a-pid").write_text("x")
        with StateDirectory(tmp_path):
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_identity_lasts_as_long_as_its_process():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(process.pid)
    assert identity
    assert identity_of(process.pid) == identity
    process.communicate(b"\n")
    assert identity_of(process.pid) is None


def test_only_the_newest_logs_are_kept(tmp_path):
    with StateDirectory(tmp_path) as state:
        for number in range(LOGS_KEPT + 5):
            state.log_of(f"l{number}").write_text("x")
            os.utime(state.log_of(f"l{number}"), (number, number))
    with StateDirectory(tmp_path) as state:
        left = {path.stem for path in state.logs.iterdir()}
    assert left == {f"l{number}" for number in range(5, LOGS_KEPT + 5)}


def test_git_never_sees_it(tmp_path):
    with StateDirectory(tmp_path / "s") as state:
        assert (state.path / ".gitignore").read_text() == "*\n"


def test_others_cannot_read_what_pods_mount(tmp_path):
    with StateDirectory(tmp_path) as state:
        assert state.run.stat().st_mode & 0o077 == 0
        assert state.logs.stat().st_mode & 0o077 == 0
