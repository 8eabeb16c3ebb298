"""The quickstart on a laptop without Kubernetes and on a cluster: same conditions, same tools, same answers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from fairway.local import control
from rig.pyimage import python_image
from tests.e2e.conftest import CLUSTER
from tests.e2e.laptop import QUICKSTART, free_port_base, heed_signals
from tests.e2e.wiretrace import WireTrace
from tests.installed import InstalledFairway, condition
from tests.packages import repacked

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]

LAPTOP = "laptop"
SCRIPTS = "docker.io/library/python:3.13-slim"
"""What `notes` asks for: any Python will do, and this one needs no registry."""

# The tool of each server, its arguments, and others that it refuses.
Call = tuple[str, dict[str, Any]]
CALLS: dict[str, tuple[Call, Call]] = {
    "hello": (("add", {"a": 2, "b": 3}), ("add", {"a": "two", "b": 3})),
    "time": (
        ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "nowhere", "time": "12:00", "target_timezone": "UTC"}),
    ),
    "clock": (("now", {"timezone": "UTC"}), ("get_current_time", {"timezone": "UTC"})),
    "notes": (("add_note", {"text": "buy milk"}), ("no_such_tool", {})),
    "vault": (("read", {"name": "motto"}), ("write", {"name": "motto", "value": "carpe diem"})),
}
# What a place may differ in: addresses, and the time at which things happened.
TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+|[A-Z][a-z]+day\b")
EVERYWHERE: dict[str, dict[str, Any]] = {}
"""What each place said of each server; compared when both have been seen."""


class Place(Protocol):
    token: str
    """Lets its bearer in where somebody has to show one."""

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
        deadline = time.monotonic() + 90
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

    @property
    def token(self) -> str:
        return (self.directory / "token").read_text().strip()

    @property
    def issuer(self) -> dict[str, Any]:
        """Whom `vault` trusts."""
        objects = control.ask(self.directory, {"do": "objects"})["objects"]
        return next(o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "fairway-local-issuer")

    def packages(self) -> dict[str, bytes]:
        """Everything that was fetched, for a cluster that sees no index."""
        self.status("time")
        (site,) = self.directory.glob("packages/*/env/lib/python*/site-packages")
        return repacked(site)


@dataclass
class Cluster:
    """The rig's node tier with the operator in a pod."""

    installed: InstalledFairway
    namespace: str
    token: str = field(repr=False)

    def status(self, name: str) -> Mapping[str, Any]:
        return self.installed.ready(self.namespace, name, seconds=120)

    def address(self, name: str) -> str:
        return self.installed.address(self.namespace, name)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    directory = tmp_path_factory.mktemp("laptop")
    command = [sys.executable, "-m", "fairway", "up", "-f", str(QUICKSTART), "--state-dir", str(directory)]
    # the time zone of its machine is part of what `time` says of its tools
    environment = {**os.environ, "TZ": "UTC"}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port-base", str(free_port_base())],
            stdout=output,
            stderr=output,
            env=environment,
            preexec_fn=heed_signals,
        )
    yield Laptop(directory, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.fixture(scope="module")
def cluster(laptop: Laptop, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With the same manifests, and what the laptop brings along: packages, an image, and an issuer of tokens."""
    installed: InstalledFairway = request.getfixturevalue("fairway")
    installed.serve_packages(laptop.packages())
    installed.rig.load_image(python_image(reference=SCRIPTS, entrypoint=["python"]))
    namespace = installed.rig.namespace("same")
    issuer = laptop.issuer
    installed.apply(namespace, {**issuer, "metadata": {"name": issuer["metadata"]["name"]}})
    manifests = [m for path in sorted(QUICKSTART.glob("*.yaml")) for m in yaml.safe_load_all(path.read_text())]
    installed.apply(namespace, *manifests)
    yield Cluster(installed, namespace, laptop.token)
    installed.rig.delete_namespace(namespace)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", [LAPTOP, CLUSTER])
async def test_the_quickstart_is_the_same_everywhere(request: pytest.FixtureRequest, place: str, name: str) -> None:
    here: Place = request.getfixturevalue(place)
    status = here.status(name)
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Available"] == ("True", "HandshakeSucceeded")
    kept = ("phase", "ready", "replicas", "selector", "transport", "server", "tools")
    seen = {"conditions": conditions, **{part: status.get(part) for part in kept}}
    for era, first in (("legacy", "initialize"), ("auto", "server/discover")):
        with WireTrace(here.address(name)) as wire:
            seen[era] = await used(wire.url, name, era, here.token if name == "vault" else "")
        assert wire.methods[0] == first, wire.methods
        assert {"tools/list", "tools/call"} <= set(wire.methods)
        other = {"initialize", "server/discover"} - {first}
        assert not other & set(wire.methods), wire.methods
    if name == "vault":
        seen["outside"] = httpx2.post(f"http://{here.address(name)}/mcp", json={}).status_code
        assert seen["outside"] == 401
    before = EVERYWHERE.setdefault(name, seen)
    assert seen == before


def test_every_server_of_the_quickstart_is_compared() -> None:
    kinds = [m for path in QUICKSTART.glob("*.yaml") for m in yaml.safe_load_all(path.read_text())]
    assert {m["metadata"]["name"] for m in kinds if m["kind"] == "MCPServer"} == set(CALLS)


@asynccontextmanager
async def client_of(url: str, era: str, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


async def used(url: str, name: str, era: str, token: str) -> dict[str, Any]:
    """What a client sees and gets."""
    good, bad = CALLS[name]
    async with client_of(url, era, token) as client:
        tools = {t.name: (t.description, t.input_schema) for t in (await client.list_tools()).tools}
        answer = await client.call_tool(*good)
        assert not answer.is_error, answer
        try:
            refused = said(await client.call_tool(*bad))
        except MCPError as error:
            refused = {"error": str(error)}
        return {"tools": tools, "answer": said(answer), "refused": refused}


def said(result: Any) -> dict[str, Any]:
    texts = [TIMES.sub("*", json.dumps(c.model_dump())) for c in result.content]
    return {"is_error": result.is_error, "content": texts}
