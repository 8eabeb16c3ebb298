"""The parsers under a million inputs each that look for trouble; and what breaks them is found."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.budget import in_ci
from tests.fuzz.planted import BUGS
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
RUNS = 1_000_000
UNTIL_FOUND = 300_000
PATIENCE = 1500

pytestmark = [
    pytest.mark.timeout(PATIENCE + 60),
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None and not in_ci(),
        reason="UNTESTED: the parsers are not fuzzed, as atheris is made for Linux on x86-64 only",
    ),
]


def start(target: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", target, *more]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def executions(said: str) -> int:
    found = re.search(r"number_of_executed_units: (\d+)", said)
    return int(found[1]) if found else 0


def test_a_million_inputs_find_nothing_wrong_with_any_parser(capsys):
    began = time.monotonic()
    before = os.times()
    running = {target: start(target, str(RUNS)) for target in TARGETS}
    said = {target: process.communicate(timeout=PATIENCE)[0] for target, process in running.items()}
    used = os.times().children_user - before.children_user
    with capsys.disabled():
        counts = ", ".join(f"{target} {executions(text)}" for target, text in said.items())
        print(f"\nexecuted: {counts}; {used:.0f} s of CPU in {time.monotonic() - began:.0f} s")
    for target, process in running.items():
        assert process.returncode == 0, said[target][-4000:]
        assert executions(said[target]) >= RUNS


def test_every_bug_that_is_planted_is_found(capsys):
    names, missed = sorted(BUGS), []
    for pair in (names[at : at + 2] for at in range(0, len(names), 2)):
        running = {name: start(BUGS[name].target, str(UNTIL_FOUND), "--plant", name) for name in pair}
        for name, process in running.items():
            said = process.communicate(timeout=PATIENCE)[0]
            if process.returncode == 0 or "Wrong: " not in said:
                missed.append(name)
            with capsys.disabled():
                print(f"\n{name}: {'found' if name not in missed else 'missed'} after {executions(said)}", end="")
    assert missed == []
    assert len(names) >= 5
