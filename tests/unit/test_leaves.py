"""Whatever stands in any field of a server, it is refused, or named, or made: nothing ends in a traceback."""

import pytest
from pydantic import ValidationError

from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.contents import ContentReader
from fairway.controllers.resources import CATALOGUE, MCP_SERVER
from fairway.controllers.wiring import controllers
from fairway.kube.resource import CONFIG_MAP, SECRET
from fairway.runtime.memory import MemoryWorld
from tests.leaves import HOSTS, cases, leaves, schema
from tests.unit.controllers.mcpserver.samples import SETTINGS, config_map, secret, server, tool_config

pytestmark = pytest.mark.anyio


def catalogue():
    entries = config_map("fairway-runtimes", **{"runtimes.yaml": "python: {image: w, paramsEnvVar: P}"})
    return {**entries, "metadata": {**entries["metadata"], "namespace": "fairway-system"}}


HELD = (
    config_map("held", key='{"network": {}}'),
    catalogue(),
    secret("held", key="x" * 40),
    tool_config(filter=["a"]),
)


class Place:
    """A world in memory in which one server at a time is reconciled once."""

    def __init__(self):
        self.world = MemoryWorld(catalogue=CATALOGUE)
        for obj in HELD:
            self.world.put(obj)
        contents = ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=self._whole)
        self.wired = controllers(settings=SETTINGS, ask=self._nobody, nudge=self._nobody, contents=contents)
        for controller in self.wired.all:
            for resource, indexes in controller.indexes.items():
                self.world.store.register(resource, indexes=indexes)

    async def came_to(self, spec):
        """The status and the objects of a server with this spec."""
        stored = self.world.put(server(**spec))
        controller = next(c for c in self.wired.all if c.resource == MCP_SERVER)
        outcome = await controller.reconcile(stored, self.world)
        made = {str(ref): obj for ref, obj in self._children(stored)}
        self.world.delete(MCP_SERVER.ref("team", "hello"))
        return outcome.status, made

    def _children(self, owner):
        for obj in self.world.store.owned_by(owner["metadata"]["uid"]):
            kept = {k: v for k, v in obj.items() if k not in ("metadata", "status")}
            if obj["kind"] != "Secret":
                yield CATALOGUE.ref(obj), kept | {"labels": obj["metadata"].get("labels")}

    async def _whole(self, resource, namespace, name):
        return self.world.store.get(resource, namespace, name)

    async def _nobody(self, *_):
        raise AssertionError("there are no pods")


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: next(iter(host)))
async def test_the_servers_that_the_cases_are_made_from_are_good(host):
    if "registryRef" in host:
        pytest.skip("no registries yet")
    MCPServerSpec.model_validate(host)
    status, made = await Place().came_to(host)
    assert status["conditions"][0]["reason"] != "InvalidSpec", status["message"]
    assert any(ref.startswith("Service/") for ref in made), status["message"]


async def test_every_leaf_bears_or_refuses_whatever_stands_there():
    counted, refused, paths = 0, 0, set()
    place = Place()
    for case in cases():
        counted += 1
        paths.add(case.path)
        try:
            MCPServerSpec.model_validate(case.spec)
        except ValidationError:
            refused += 1
            continue
        try:
            status, _ = await place.came_to(case.spec)
        except Exception as error:
            pytest.fail(f"{case.name}: {error!r}")
        assert status["conditions"], case.name
    assert paths == {path for path, _ in leaves(schema())}
    print(f"{len(paths)} leaves, {counted} cases, {refused} refused at once")


async def test_a_field_that_is_set_and_taken_out_again_leaves_nothing_behind():
    """Every optional field by itself, out of each server that has it."""
    place = Place()
    for host in HOSTS:
        if "registryRef" in host:
            continue
        source = next(iter(host))
        bare = {source: host[source]}
        never_set = await place.came_to(bare)
        for field in host.keys() - {source}:
            stored = place.world.put(server(**bare, **{field: host[field]}))
            controller = next(c for c in place.wired.all if c.resource == MCP_SERVER)
            try:
                MCPServerSpec.model_validate({**bare, field: host[field]})
            except ValidationError:
                continue  # goes with others only
            await controller.reconcile(stored, place.world)
            status, made = await place.came_to(bare)
            assert made == never_set[1], field
            before, after = ({c["type"]: c["reason"] for c in s["conditions"]} for s in (never_set[0], status))
            assert after == before, field
