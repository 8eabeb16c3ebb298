"""`fairway up` killed at any moment of its life: no process is left, no port stays taken, and the next one works."""

import ctypes
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.laptop import Laptop, children_of, until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc").exists(), reason="UNTESTED without /proc: orphans could not be counted"),
]

INLINE = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {{name: {name}}}
spec:
  proxy: {{mode: {mode}}}
  inlineTools:
    python: |
      import subprocess
      child = subprocess.Popen(["sleep", "600"])
      def answer() -> str:
          return "yes"
"""
# A program that knows nothing of us, and would go on for ever.
COMMAND = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {{name: {name}, annotations: {{fairway.dev/local: command}}}}
spec:
  image: python:3
  transport: stdio
  command: [/bin/sh, -c, "sleep 600 & while :; do read -r line || sleep 600; done"]
"""
READY = ("inline", "bare")
PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def orphans_come_here() -> Iterator[None]:
    """Whoever loses its parent becomes our child, wherever it hides: sessions and groups of its own are no way out."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def orphans(before: set[int]) -> set[int]:
    """Children of ours that we did not have, and that live."""
    for pid in children_of(os.getpid()) - before:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return children_of(os.getpid()) - before


def command_lines(pids: set[int]) -> list[str]:
    found = []
    for pid in pids:
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def taken(base: int) -> list[int]:
    """Ports of the ten from `base` on which somebody answers."""
    found = []
    for port in range(base, base + 10):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    laptop.write("m/inline.yaml", INLINE.format(name="inline", mode="standalone"))
    laptop.write("m/bare.yaml", INLINE.format(name="bare", mode="none"))
    for name in ("one", "two", "three"):
        laptop.write(f"m/{name}.yaml", COMMAND.format(name=name))
    yield laptop
    laptop.close()


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_nothing_is_left_wherever_it_was_killed_and_the_next_one_works(laptop: Laptop, kills: int):
    chance = random.Random()
    began = time.monotonic()
    laptop.up("-f", "m").until_ready(*READY)
    start_takes = time.monotonic() - began
    urls = {name: laptop.url(name) for name in READY}
    moments = []
    with orphans_come_here():
        for kill in range(kills):
            assert laptop.process is not None
            before = children_of(os.getpid()) - {laptop.process.pid}
            # in order of the kill: at work, while it stops, while it starts
            if kill % 3 == 1:
                laptop.process.send_signal(signal.SIGINT)
            moment = chance.uniform(0, 1.2 * start_takes if kill % 3 == 2 else 0.5)
            moments.append((kill % 3, round(moment, 3)))
            time.sleep(moment)
            laptop.process.kill()
            laptop.process.wait()
            try:
                until(lambda before=before: not orphans(before), "nobody is left", within=10)
            except AssertionError as error:
                pytest.fail(f"{error}, after {moments}: {command_lines(orphans(before))}")
            assert taken(laptop.base) == [], moments
            laptop.up("-f", "m")
            if kill % 3 != 1:  # the one after is to be killed at its start
                laptop.until_ready(*READY)
                assert {name: laptop.url(name) for name in READY} == urls, moments
                assert "taken by another program" not in laptop.output
    assert laptop.until_ready(*READY).run("call", "inline", "answer").stdout == "yes\n"
    assert laptop.stop() == 0
