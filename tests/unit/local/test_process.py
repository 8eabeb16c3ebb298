"""Child processes: started, awaited, stopped with all that they started."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from fairway.local import leash
from fairway.local.process import CannotStart, Exit, Process

pytestmark = pytest.mark.anyio


class Ledger:
    """Keeper and register in one: what it holds now, and what it ever held."""

    def __init__(self):
        self.now = set()
        self.ever = []

    def watch(self, group):
        self.now.add(("group", group))
        self.ever.append(group)

    def release(self, group):
        self.now.discard(("group", group))

    def remember(self, pid):
        self.now.add(("pid", pid))

    def forget(self, pid):
        self.now.discard(("pid", pid))


@pytest.fixture
def ledger():
    return Ledger()


async def start(code, tmp_path, ledger, **env):
    return await Process.start(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], **env},
        directory=tmp_path,
        log=tmp_path / "log",
        keeper=ledger,
        register=ledger,
    )


async def said(path, word):
    """Returns once the log has the word in it."""
    async with asyncio.timeout(10):
        while not path.exists() or word not in path.read_text():  # noqa: ASYNC110  a file tells nobody
            await asyncio.sleep(0.005)


async def test_its_output_goes_to_the_log_and_its_code_comes_back(tmp_path, ledger):
    process = await start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path, ledger)
    assert await process.wait() == Exit(3)
    assert sorted((tmp_path / "log").read_text().split()) == ["err", "out"]
    assert ledger.ever == [process.pid]
    assert ledger.now == set()


async def test_it_gets_the_environment_given_and_the_leash(tmp_path, ledger):
    process = await start("import os; print(sorted(os.environ))", tmp_path, ledger, A="1")
    await process.wait()
    seen = (tmp_path / "log").read_text()
    assert leash.VARIABLE in seen
    assert "'A'" in seen
    assert "HOME" not in seen


async def test_it_is_asked_to_stop_and_may_end_in_order(tmp_path, ledger):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    process = await start(code, tmp_path, ledger)
    await said(tmp_path / "log", "up")
    assert await process.stop(grace=10) == Exit(0)
    assert "bye" in (tmp_path / "log").read_text()


async def test_one_that_does_not_listen_is_killed_after_its_grace(tmp_path, ledger):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = await start(code, tmp_path, ledger)
    await said(tmp_path / "log", "up")
    assert await process.stop(grace=0.05) == Exit(0, signal.SIGKILL)


async def test_what_it_leaves_behind_is_ended_with_it(tmp_path, ledger):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid)"
    )
    process = await start(code, tmp_path, ledger)
    await process.wait()
    child = int((tmp_path / "log").read_text())
    async with asyncio.timeout(10):
        while alive(child):  # noqa: ASYNC110  no child of ours: nobody tells us
            await asyncio.sleep(0.005)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


async def test_a_signal_is_told_from_a_code(tmp_path, ledger):
    process = await start("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tmp_path, ledger)
    assert await process.wait() == Exit(0, signal.SIGSEGV)


async def test_stopping_one_that_has_ended_says_how_it_ended(tmp_path, ledger):
    process = await start("import sys; sys.exit(4)", tmp_path, ledger)
    await process.wait()
    assert await process.stop(grace=1) == Exit(4)


async def test_waiting_can_be_given_up_without_harm(tmp_path, ledger):
    process = await start("input()", tmp_path, ledger)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance(await process.wait(), Exit)


async def test_a_program_that_is_not_there_cannot_be_started(tmp_path, ledger):
    with pytest.raises(CannotStart, match="there is no program"):
        await Process.start(
            ["/no/such/program"], env={}, directory=tmp_path, log=tmp_path / "log", keeper=ledger, register=ledger
        )
    assert ledger.ever == []


async def test_a_null_byte_cannot_be_passed_on(tmp_path, ledger):
    with pytest.raises(CannotStart, match="null"):
        await start("pass", tmp_path, ledger, A="a\0b")
