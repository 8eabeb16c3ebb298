"""The warden and the leash: no process outlives its parent."""

import os
import select
import signal
import subprocess
import sys

import pytest

from fairway.process.warden import Warden

# a child in a group of its own, with a child of its own; both keep our pipe open until they are dead
SLEEPER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


def sleeper():
    reading, writing = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True, stdout=writing)
    os.close(writing)
    return child, reading


def nobody_holds(pipe, *, within):
    ready, _, _ = select.select([pipe], [], [], within)
    return bool(ready) and os.read(pipe, 1) == b""


def test_what_is_watched_is_killed_when_the_warden_closes_grandchildren_included():
    child, pipe = sleeper()
    with Warden() as warden:
        warden.watch(child.pid)
    assert child.wait(timeout=10) == -signal.SIGKILL
    assert nobody_holds(pipe, within=10)
    os.close(pipe)


def test_what_was_released_is_left_alone():
    kept, kept_pipe = sleeper()
    other, other_pipe = sleeper()
    with Warden() as warden:
        warden.watch(kept.pid)
        warden.watch(other.pid)
        warden.release(kept.pid)
    assert other.wait(timeout=10) == -signal.SIGKILL
    assert kept.poll() is None
    os.killpg(kept.pid, signal.SIGKILL)
    kept.wait()
    for pipe in (kept_pipe, other_pipe):
        os.close(pipe)


def test_it_ignores_the_signals_of_a_terminal_and_survives_being_killed_itself():
    with Warden() as warden:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(warden.pid, number)
        assert os.getsid(warden.pid) == warden.pid
    with Warden() as warden:
        os.kill(warden.pid, signal.SIGKILL)
        os.waitid(os.P_PID, warden.pid, os.WEXITED | os.WNOWAIT)
        warden.watch(123456)
        warden.watch(123457)


PARENT = """
import subprocess, sys, os
from fairway.process.warden import Warden
warden = Warden()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
warden.watch(child.pid)
print(child.pid, flush=True)
input()
"""


def test_a_killed_parent_takes_its_processes_with_it():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert int(parent.stdout.readline()) > 0
    parent.kill()
    parent.wait()
    # the children have our pipe as their output: its end is theirs
    assert nobody_holds(parent.stdout.fileno(), within=10)
    parent.stdin.close()
    parent.stdout.close()


LEASHED = """
import os, sys, time
from fairway.local import leash
leash.put_on(int(os.environ["PARENT"]))
print("leashed", flush=True)
time.sleep(60)
"""
LEASHER = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "PARENT": str(os.getpid())})
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_a_leashed_process_dies_with_its_parent_by_the_kernel_alone():
    parent = subprocess.Popen(
        [sys.executable, "-c", LEASHER, LEASHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout.readline() == "leashed\n"
    parent.kill()
    parent.wait()
    assert nobody_holds(parent.stdout.fileno(), within=10)
    parent.stdin.close()
    parent.stdout.close()


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    environment = {**os.environ, "PARENT": "1"}
    assert os.getpid() != 1
    ended = subprocess.run(
        [sys.executable, "-c", LEASHED], env=environment, capture_output=True, timeout=10, check=False
    )
    assert (ended.returncode, ended.stdout) == (137, b"")
