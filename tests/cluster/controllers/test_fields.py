"""Every field of a server, on a real API server: set, changed and taken out again; wrong, and put right again."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.resources import MCP_SERVER
from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.errors import BadRequest, Invalid
from fairway.kube.transport import Transport
from tests.cluster.controllers.state import KINDS, normal
from tests.faultproxy.endstate import difference
from tests.leaves import HOSTS, Case, cases, leaves, schema

pytestmark = pytest.mark.anyio
AT_ONCE = 8
SECONDS = 5.0
"""Until a wrong value is named."""
REGISTRY = next(host for host in HOSTS if "registryRef" in host)


class Field:
    """Servers in one namespace, and the user who writes them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def put(self, name: str, spec: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any] | None:
        """What the API server has now, or None if it refused."""
        metadata = {"name": name, "namespace": self.namespace}
        obj = {"apiVersion": MCP_SERVER.api_version, "kind": MCP_SERVER.kind, "metadata": metadata, "spec": spec}
        try:
            return await self.client.apply(MCP_SERVER, obj, force=True, field_manager="user", dry_run=dry_run)
        except (BadRequest, Invalid):
            return None

    async def told(self, put: dict[str, Any], *, seconds: float = 60.0) -> tuple[dict[str, Any], float]:
        """The status of this very generation, and how long it took."""
        began, name = time.monotonic(), put["metadata"]["name"]
        while time.monotonic() < began + seconds:
            live = await self.client.get(MCP_SERVER, self.namespace, name)
            assert live is not None
            status = live.get("status") or {}
            if status.get("observedGeneration") == put["metadata"]["generation"]:
                return status, time.monotonic() - began
            await asyncio.sleep(0.1)
        pytest.fail(f"{name} is not told of within {seconds:g} s: {put['spec']}")

    async def states(self) -> dict[str, dict[str, Any]]:
        """What there is of each server, by its name: kinds and objects, as if every server had the same name."""
        found: dict[str, dict[str, Any]] = {}
        for kind in KINDS:
            async for item in self.client.list(kind, namespace=self.namespace):
                owners = [o["name"] for o in item["metadata"].get("ownerReferences", ()) if o.get("controller")]
                owner = item["metadata"]["name"] if kind == MCP_SERVER else next(iter(owners), None)
                if owner is not None and (kind == MCP_SERVER or item["metadata"]["name"].startswith(owner)):
                    what = f"{kind.kind}/{item['metadata']['name'].replace(owner, 'it')}"
                    found.setdefault(owner, {})[what] = normal(item, it=owner)
        return found

    async def come_to(self, expected: dict[str, str], *, seconds: float = 120.0) -> None:
        """Until each server is as the one that it should be like."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.states()
            unlike = [name for name, like in expected.items() if found.get(name) != found[like]]
            if not unlike:
                return
            if time.monotonic() > deadline:
                name = unlike[0]
                what = difference(found.get(name), found[expected[name]])
                pytest.fail(f"{len(unlike)} of {len(expected)} differ, such as {name}:\n{what}")
            await asyncio.sleep(2)


@asynccontextmanager
async def field_of(rig, namespace) -> AsyncIterator[Field]:
    for kind, data in (("Secret", "stringData"), ("ConfigMap", "data")):
        held = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "held"}, data: {"key": '{"network": {}}'}}
        rig.api.apply(held, namespace=namespace)
    few = {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": {"name": "few"}, "spec": {}}
    rig.api.apply(few, namespace=namespace)
    transport = Transport(load_access(kubeconfig=rig.kubeconfig), user_agent="fairway-test")
    async with Client(transport, field_manager="user") as client:
        yield Field(client, namespace)


def changes() -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """A bare server, a field that it can have by itself, a value of it, and another one."""
    for host in HOSTS:
        source = next(iter(host))
        bare = {source: host[source]}
        for field in [] if host is REGISTRY else [name for name in host if name != source]:
            if not valid({**bare, field: host[field]}):
                continue
            others = (case.spec[field] for case in cases() if case.host is host and case.path[0] == field)
            yield bare, field, host[field], next((o for o in others if valid({**bare, field: o})), host[field])


def valid(spec: dict[str, Any]) -> bool:
    try:
        MCPServerSpec.model_validate(spec)
    except ValidationError:
        return False
    return True


@pytest.mark.timeout(400)
async def test_a_field_that_is_set_changed_and_taken_out_again_leaves_nothing_behind(operator, rig_api, rig_namespace):
    async with field_of(rig_api, rig_namespace) as place:
        wanted: dict[str, str] = {}
        references: dict[str, dict[str, Any]] = {}

        async def lived_through(name: str, *specs: dict[str, Any]) -> None:
            async with place.slots:
                for spec in specs:
                    put = await place.put(name, spec)
                    assert put is not None, spec
                    await place.told(put)

        lives = []
        for number, (bare, field, value, other) in enumerate(changes()):
            name = f"changed-{number:03}"
            like = f"never-{next(iter(bare)).lower()}-{sorted(map(str, HOSTS)).index(str(host_of(bare))):02}"
            references[like] = bare
            wanted[name] = like
            lives.append(lived_through(name, bare, {**bare, field: value}, {**bare, field: other}, bare))
        await asyncio.gather(*lives, *(lived_through(name, bare) for name, bare in references.items()))
        await place.come_to(wanted)
        print(f"{len(wanted)} fields set, changed and taken out")


def host_of(bare: dict[str, Any]) -> dict[str, Any]:
    ((source, value),) = bare.items()
    return next(host for host in HOSTS if host.get(source) == value)


async def wrong_and_right_again(place: Field, chosen: list[Case]) -> tuple[int, int, list[float]]:
    """How many were refused at once, how many were named, and how long that took."""
    refused, took, named = 0, [], 0
    like = {str(host): f"good-{number:02}" for number, host in enumerate(HOSTS) if host is not REGISTRY}
    for host in HOSTS:
        if host is not REGISTRY:
            put = await place.put(like[str(host)], host)
            assert put is not None, host
    wanted: dict[str, str] = {}

    async def one(number: int, case: Case) -> None:
        nonlocal refused, named
        name = f"wrong-{number:04}"
        async with place.slots:
            put = await place.put(name, case.spec)
            if put is None:
                refused += 1
                return
            status, seconds = await place.told(put)
            took.append(seconds)
            named += next(c["status"] for c in status["conditions"] if c["type"] == "Ready") != "True"
            back = await place.put(name, case.host)
            assert back is not None, case.name
            await place.told(back)
            wanted[name] = like[str(case.host)]

    await asyncio.gather(*(one(number, case) for number, case in enumerate(chosen)))
    await place.come_to(wanted, seconds=300)
    assert named == len(took)  # nothing runs here, so that nothing is Ready: each says why
    return refused, named, sorted(took)


def p99(took: list[float]) -> float:
    return took[min(len(took) - 1, len(took) * 99 // 100)]


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_wrong_value_is_refused_or_named_and_rolled_back_without_a_trace(operator, rig_api, rig_namespace):
    """One value of every sixth leaf, another kind of wrong each time; the long run has all of them."""
    by_leaf = [list(group) for _, group in itertools.groupby(cases(), key=lambda case: case.path)]
    chosen = [group[position % len(group)] for position, group in enumerate(by_leaf[::6])]
    async with field_of(rig_api, rig_namespace) as place:
        refused, named, took = await wrong_and_right_again(place, chosen)
    print(f"{len(chosen)} cases: {refused} refused, {named} named, p99 {p99(took):.1f} s")


async def test_the_api_server_refuses_or_bears_what_stands_in_any_leaf(rig_api, rig_namespace):
    """And so does our own reader, alike: what a laptop takes, a cluster takes."""
    refused, unlike, paths = 0, [], set()
    async with field_of(rig_api, rig_namespace) as place:

        async def one(number: int, case: Case) -> None:
            nonlocal refused
            async with place.slots:
                stored = await place.put(f"wrong-{number:04}", case.spec, dry_run=True)
            paths.add(case.path)
            refused += stored is None
            if (stored is not None) != valid(case.spec):
                unlike.append(case.name)

        counted = list(enumerate(cases()))
        await asyncio.gather(*(one(number, case) for number, case in counted))
    assert paths == {path for path, _ in leaves(schema())}
    assert unlike == []
    print(f"{len(paths)} leaves, {len(counted)} cases, {refused} refused at admission")


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_every_wrong_value_of_every_leaf_is_refused_or_named_in_time(operator, rig_api, rig_namespace):
    chosen = list(cases())
    async with field_of(rig_api, rig_namespace) as place:
        refused, named, took = await wrong_and_right_again(place, chosen)
    assert {case.path for case in chosen} == {path for path, _ in leaves(schema())}
    print(f"{len(chosen)} cases: {refused} refused, {named} named, p99 {p99(took):.1f} s, longest {took[-1]:.1f} s")
    assert p99(took) <= SECONDS
