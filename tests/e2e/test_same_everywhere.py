"""The same manifests on a laptop without Kubernetes and on a cluster: same conditions, same tools, same answers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from mcp import Client

from tests.e2e.conftest import CLUSTER
from tests.e2e.laptop import TWO, UP_TWO
from tests.e2e.wiretrace import WireTrace
from tests.installed import InstalledFairway, condition

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]

NAMES = ("hello", "clock")
LAPTOP = "laptop"

# What a place may differ in: addresses, and the time at which things happened.
CONDITIONS = {
    "Ready": ("True", "Ready"),
    "Available": ("True", "HandshakeSucceeded"),
    "Progressing": ("False", "RolledOut"),
    "Degraded": ("False", "Healthy"),
    "WorkloadReady": ("True", "RolledOut"),
    "ServiceReady": ("True", "Applied"),
    "ProxyReady": ("True", "RolledOut"),
    "PolicyApplied": ("True", "Applied"),
    "ToolsDiscovered": ("True", "Discovered"),
}
EVERYWHERE: dict[str, dict[str, Any]] = {}
"""What each place said of each server; compared when both have been seen."""


class Place(Protocol):
    def status(self, name: str) -> Mapping[str, Any]:
        """Of a server that is Ready."""

    def address(self, name: str) -> str:
        """host:port for a client on this machine."""


@dataclass
class Laptop:
    """`fairway up`, as a person would start it."""

    directory: Path
    process: subprocess.Popen[bytes]

    def _server(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "fairway up has ended"
            try:
                found = json.loads((self.directory / "servers.json").read_text())["servers"][f"default/{name}"]
            except (OSError, ValueError, KeyError):
                found = {}
            if condition(found.get("status", {}), "Ready")[0] == "True":
                return found
            time.sleep(0.05)
        pytest.fail(f"{name} is not Ready: {found}")

    def status(self, name: str) -> Mapping[str, Any]:
        return self._server(name)["status"]

    def address(self, name: str) -> str:
        return self._server(name)["url"].removeprefix("http://").removesuffix("/mcp")


@dataclass
class Cluster:
    """The rig's node tier with the operator in a pod."""

    installed: InstalledFairway
    namespace: str

    def status(self, name: str) -> Mapping[str, Any]:
        return self.installed.ready(self.namespace, name)

    def address(self, name: str) -> str:
        return self.installed.address(self.namespace, name)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    directory = tmp_path_factory.mktemp("laptop")
    command = [sys.executable, "-m", "fairway", "up", *UP_TWO, "--state-dir", str(directory)]
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port-base", "17001"], stdout=output, stderr=output, env=dict(os.environ)
        )
    yield Laptop(directory, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == LAPTOP:
        yield request.getfixturevalue("laptop")
        return
    installed: InstalledFairway = request.getfixturevalue("fairway")
    namespace = installed.rig.namespace("same")
    manifests = [m for path in TWO for m in yaml.safe_load_all(path.read_text())]
    installed.apply(namespace, *manifests)
    yield Cluster(installed, namespace)
    installed.rig.delete_namespace(namespace)


@pytest.mark.parametrize("place", [LAPTOP, CLUSTER], indirect=True, scope="module")
async def test_a_client_of_either_era_lists_and_calls_tools_through_the_proxy(place: Place, request: Any) -> None:
    for name in NAMES:
        status = place.status(name)
        assert {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]} == CONDITIONS
        seen = {
            "phase": status["phase"],
            "ready": status["ready"],
            "replicas": status["replicas"],
            "selector": status["selector"],
            "server": status["server"],
            "tools": status["tools"],
        }
        for era, first in (("legacy", "initialize"), ("auto", "server/discover")):
            with WireTrace(place.address(name)) as wire:
                seen[era] = await used(wire.url, name, era)
            assert wire.methods[0] == first, wire.methods
            assert {"tools/list", "tools/call"} <= set(wire.methods)
            other = {"initialize", "server/discover"} - {first}
            assert not other & set(wire.methods), wire.methods
        EVERYWHERE.setdefault(name, {})[request.node.callspec.params["place"]] = seen
        places = list(EVERYWHERE[name].values())
        assert all(found == places[0] for found in places)


async def used(url: str, name: str, era: str) -> dict[str, Any]:
    """What a client sees and gets."""
    async with Client(url, mode=era) as client:
        tools = {t.name: (t.description, t.input_schema) for t in (await client.list_tools()).tools}
        if name == "hello":
            answer = await client.call_tool("add", {"a": 2, "b": 3})
            refused = await client.call_tool("add", {"a": "two", "b": 3})
        else:
            answer = await client.call_tool("current_time", {"timezone": "nowhere"})
            refused = await client.call_tool("current_time", {"timezone": 7})
        return {
            "tools": tools,
            "answer": [c.model_dump() for c in answer.content],
            "refused": (refused.is_error, [c.model_dump() for c in refused.content]),
        }
