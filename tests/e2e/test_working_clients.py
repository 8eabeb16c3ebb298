"""Clients that people use, in the middle of a call: told how far it is, cancelling it, gone without a word."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import Client

from tests.conformance.loud import say, untested
from tests.conformance.packages import Package, UnavailableError, modules, package
from tests.conformance.running import fairway_bridge, fairway_proxy, printed_url
from tests.e2e.wiretrace import WireTrace

pytestmark = pytest.mark.e2e

SERVER = (sys.executable, "-W", "ignore", "-m", "tests.conformance.working_server")
MODES = ["legacy", "auto", "2026-07-28"]
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def direct() -> Iterator[str]:
    with printed_url(*SERVER) as url:
        yield url


@pytest.fixture(scope="module", params=["direct", "through the proxy", "through the bridge"])
def url(request: pytest.FixtureRequest, direct: str) -> Iterator[str]:
    if request.param == "direct":
        yield direct
        return
    bridged = request.param == "through the bridge"
    front: AbstractContextManager[str] = fairway_bridge(*SERVER, "stdio") if bridged else fairway_proxy(direct)
    with front as where:
        yield where


async def counts(client: Client) -> dict[str, int]:
    found = (await client.call_tool("counts", {})).structured_content
    assert found is not None
    return found


async def until(client: Client, **wanted: int) -> None:
    """Waits for the work to have become that, in addition to what it was."""
    async with asyncio.timeout(20):
        while (now := await counts(client)) | wanted != now:  # noqa: ASYNC110  it is in another process
            await asyncio.sleep(0.02)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_hears_how_far_a_call_is(url: str, mode: str) -> None:
    heard: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _: str | None) -> None:
        heard.append((done, total))

    async with Client(url, mode=mode) as client:
        result = await client.call_tool("work", {}, progress_callback=progress)
    assert result.content[0].text == "worked"  # type: ignore[union-attr]
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_a_server_hears_that_the_sdk_cancels(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        before = await counts(client)
        call = asyncio.create_task(client.call_tool("work", {"pause": 10}))
        await until(client, began=before["began"] + 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(client, cancelled=before["cancelled"] + 1, ended=before["ended"])


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_what_one_client_cancels_is_nothing_to_another(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client, Client(url, mode=mode) as other:
        before = await counts(client)
        staying = asyncio.create_task(other.call_tool("work", {"pause": 0.3}))
        going = asyncio.create_task(client.call_tool("work", {"pause": 0.3}))
        await until(client, began=before["began"] + 2)
        going.cancel()
        assert (await staying).content[0].text == "worked"  # type: ignore[union-attr]
        await until(client, cancelled=before["cancelled"] + 1, ended=before["ended"] + 1)


# the Inspector


class Inspector:
    """Calls the tool that works, in one era."""

    def __init__(self, installed: Package, url: str, home: Path) -> None:
        self._installed, self._url, self._home = installed, url, home

    @property
    def address(self) -> str:
        return urlsplit(self._url).netloc

    def at(self, url: str) -> "Inspector":
        return Inspector(self._installed, url, self._home)

    def start(self, era: str, *arguments: str) -> "subprocess.Popen[str]":
        options = ["--cli", self._url, "--protocol-era", era, "--format", "json", "--method", "tools/call"]
        command = self._installed.command(INSPECTOR, *options, "--tool-name", *arguments)
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self._home), "NO_COLOR": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, process_group=0)

    def call(self, era: str, *arguments: str) -> dict[str, Any]:
        process = self.start(era, *arguments)
        said, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return json.loads(said)["result"]


@pytest.fixture
def inspector(pytestconfig: pytest.Config, url: str, tmp_path: Path) -> Inspector:
    try:
        return Inspector(package("inspector"), url, tmp_path)
    except UnavailableError as error:
        untested(pytestconfig, f"calls of the MCP Inspector, in three eras: {error}")


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_the_inspector_is_told_how_far_its_call_is(inspector: Inspector, era: str) -> None:
    with WireTrace(inspector.address) as wire:
        result = inspector.at(wire.url).call(era, "work", "--tool-metadata", "progressToken=mine")
        # the program shows no progress, so what came to it has to tell
        heard = [(each["progressToken"], each["progress"]) for each in wire.heard("notifications/progress")]
    assert result["structuredContent"] == {"result": "worked"}
    assert heard == [("mine", 1), ("mine", 2), ("mine", 3), ("mine", 4)]


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_a_server_hears_that_the_inspector_is_gone(inspector: Inspector, era: str) -> None:
    """Only in the modern era that says that the call is not wanted; in the other it goes on."""
    before = inspector.call(era, "counts")["structuredContent"]
    process = inspector.start(era, "work", "--tool-arg", "pause=1")
    wait_for(inspector, era, {"began": before["began"] + 1})
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    outcome = "ended" if era == "legacy" else "cancelled"
    wait_for(inspector, era, {outcome: before[outcome] + 1})


def wait_for(inspector: Inspector, era: str, wanted: dict[str, int]) -> None:
    end = time.monotonic() + 30
    while (now := inspector.call(era, "counts")["structuredContent"]) | wanted != now:
        assert time.monotonic() < end, (now, wanted)


# Claude Code


def test_claude_code_connects(direct: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    try:
        program = next(modules("claude").glob("@anthropic-ai/claude-code-*/claude"))
    except UnavailableError as error:
        untested(pytestconfig, f"Claude Code: {error}")
    # it shall talk to nobody but these servers
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(tmp_path), "NO_COLOR": "1", **quiet}

    def claude(*arguments: str) -> str:
        command = [program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    say(pytestconfig, f"client: Claude Code {claude('--version').split()[0]}")
    with fairway_proxy(direct) as proxied, fairway_bridge(*SERVER, "stdio") as bridged:
        for name, where in (("direct", direct), ("proxied", proxied), ("bridged", bridged)):
            claude("mcp", "add", "--transport", "http", name, where)
        claude("mcp", "add", "--transport", "http", "nowhere", "http://127.0.0.1:1/mcp")
        listed = dict(line.split(":", 1) for line in claude("mcp", "list").splitlines() if " - " in line)
    assert listed.keys() == {"direct", "proxied", "bridged", "nowhere"}
    assert {name: "Connected" in said for name, said in listed.items()} == {
        "direct": True,
        "proxied": True,
        "bridged": True,
        "nowhere": False,
    }
