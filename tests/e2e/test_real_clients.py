"""Clients that people use, against a file of Python functions: served directly, and behind the proxy."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.conformance.loud import say, untested
from tests.conformance.packages import Package, UnavailableError, package
from tests.conformance.running import fairway_proxy, inline_tools

pytestmark = pytest.mark.e2e

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SOURCE = '''
"""Weather, made up."""

import time
from dataclasses import dataclass


@dataclass
class Report:
    city: str
    degrees: float
    sunny: bool = True


def report(city: str, days: int = 1) -> list[Report]:
    """Tells the weather.

    Args:
        city: where
        days: for how many days
    """
    if city == "Atlantis":
        raise ValueError("Atlantis is under water")
    return [Report(city, 20.5 + day) for day in range(days)]


def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


async def slow(seconds: float) -> str:
    """Takes its time."""
    import asyncio

    await asyncio.sleep(seconds)
    return "done"
'''


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("source") / "weather.py"
    file.write_text(SOURCE)
    with inline_tools(file) as url:
        yield url


@pytest.fixture(scope="module", params=["direct", "through the proxy"])
def url(request: pytest.FixtureRequest, served: str) -> Iterator[str]:
    with ExitStack() as stack:
        yield served if request.param == "direct" else stack.enter_context(fairway_proxy(served))


# the reference SDK


@pytest.fixture(scope="module")
def sdk(pytestconfig: pytest.Config) -> None:
    say(pytestconfig, f"client: mcp SDK {version('mcp')}")


@pytest.mark.anyio
@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_sdk_lists_calls_and_gets_errors(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:  # type: ignore[arg-type]
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["report", "add", "slow"]
        assert tools["report"].description == "Tells the weather."
        assert tools["report"].input_schema["properties"]["city"] == {"type": "string", "description": "where"}
        # the client checks structured results against the schema that it was shown
        result = await client.call_tool("report", {"city": "Ulm", "days": 2})
        assert result.structured_content == {
            "result": [
                {"city": "Ulm", "degrees": 20.5, "sunny": True},
                {"city": "Ulm", "degrees": 21.5, "sunny": True},
            ]
        }
        failed = await client.call_tool("report", {"city": "Atlantis"})
        assert (failed.is_error, texts(failed)) == (True, ["ValueError: Atlantis is under water"])
        wrong = await client.call_tool("add", {"a": "many"})
        assert wrong.is_error
        assert texts(wrong)[0].startswith("add: argument 'a'")
        with pytest.raises(MCPError, match="Unknown tool: nope"):
            await client.call_tool("nope", {})


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content]


@pytest.mark.anyio
@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_slow_calls_of_the_sdk_do_not_wait_for_one_another(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:  # type: ignore[arg-type]
        await client.list_tools()
        began = asyncio.get_running_loop().time()
        calls = [client.call_tool("slow", {"seconds": 1}) for _ in range(8)]
        results = await asyncio.gather(*calls, client.call_tool("add", {"a": 1}))
        assert [texts(one) for one in results] == [["done"]] * 8 + [["3"]]
        assert asyncio.get_running_loop().time() - began < 6  # one after the other it would be 8 s


# the Inspector

ERAS = ["legacy", "auto", "modern"]
Inspect = Callable[..., "Said"]


@dataclass(frozen=True)
class Said:
    """What the Inspector printed: its answer, and the error it names."""

    code: int
    result: dict[str, Any]
    error: dict[str, Any]


@pytest.fixture(scope="module")
def inspector(pytestconfig: pytest.Config) -> Package:
    try:
        installed = package("inspector")
    except UnavailableError as error:
        untested(pytestconfig, f"the MCP Inspector, in three eras: {error}")
    said = json.loads((installed.modules / "@modelcontextprotocol/inspector/package.json").read_text())
    node = subprocess.run([installed.node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    say(pytestconfig, f"client: MCP Inspector {said['version']} on node {node}")
    return installed


@pytest.fixture
def inspect(inspector: Package, url: str, tmp_path: Path) -> Inspect:
    def inspect(era: str, *arguments: str) -> Said:
        script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        options = ["--cli", url, "--protocol-era", era, "--format", "json"]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(tmp_path), "NO_COLOR": "1"}
        command = inspector.command(script, *options, *arguments)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        printed = {"result": {}, "error": {}}
        for line in (done.stdout + done.stderr).splitlines():
            if line.startswith("{"):
                printed |= json.loads(line)
        return Said(done.returncode, **printed)

    return inspect


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_the_tools(inspect: Inspect, era: str) -> None:
    said = inspect(era, "--method", "tools/list")
    assert said.code == 0, said
    assert [tool["name"] for tool in said.result["tools"]] == ["report", "add", "slow"]
    assert said.result["tools"][0]["inputSchema"]["required"] == ["city"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_calls_a_tool_in_the_era_it_was_told(inspect: Inspect, era: str) -> None:
    said = inspect(era, "--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=40")
    assert said.code == 0, said
    assert said.result["structuredContent"] == {"result": 42}
    told = said.result.get("_meta", {}).get(SERVER_INFO, {}).get("name")
    assert told == (None if era == "legacy" else "weather")


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_tells_a_tools_error(inspect: Inspect, era: str) -> None:
    said = inspect(era, "--method", "tools/call", "--tool-name", "report", "--tool-arg", "city=Atlantis")
    assert (said.code, said.error.get("code")) == (5, "tool_is_error")
    assert said.result["content"] == [{"type": "text", "text": "ValueError: Atlantis is under water"}]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_does_not_find_a_tool_that_is_not_there(inspect: Inspect, era: str) -> None:
    said = inspect(era, "--method", "tools/call", "--tool-name", "nope")
    assert (said.code, said.error.get("code")) == (5, "tool_not_found")
