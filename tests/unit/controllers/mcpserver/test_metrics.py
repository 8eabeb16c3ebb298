from prometheus_client import CollectorRegistry

from fairway.controllers.mcpserver.creation import CreationErrors
from fairway.controllers.mcpserver.metrics import ServerMetrics
from fairway.controllers.resources import CATALOGUE, MCP_SERVER
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SERVICE
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.world import Applied, Rejection
from tests.unit.controllers.mcpserver.samples import server


def scraped(world, errors=None):
    registry = CollectorRegistry()
    registry.register(ServerMetrics(world.store, errors or CreationErrors()))
    return registry.get_sample_value


def named(name):
    obj = server()
    return {**obj, "metadata": {**obj["metadata"], "name": name}}


def test_servers_are_counted_as_they_come_change_and_go():
    world = MemoryWorld(catalogue=CATALOGUE)
    assert scraped(world)("mcpserver_total") == 0
    for name in "abc":
        world.put(named(name))
    world.set_status(MCP_SERVER.ref("team", "a"), {"phase": "Ready"})
    world.set_status(MCP_SERVER.ref("team", "b"), {"phase": "Failed"})
    value = scraped(world)
    assert value("mcpserver_total") == 3
    counted = {p: value("mcpserver_phase", {"phase": p}) for p in ("Ready", "Failed", "Pending", "Suspended")}
    assert counted == {"Ready": 1, "Failed": 1, "Pending": 1, "Suspended": 0}
    world.set_status(MCP_SERVER.ref("team", "b"), {"phase": "Ready"})
    world.delete(MCP_SERVER.ref("team", "c"))
    value = scraped(world)
    assert value("mcpserver_total") == 2
    assert value("mcpserver_phase", {"phase": "Ready"}) == 2
    assert value("mcpserver_phase", {"phase": "Failed"}) == 0


def test_only_what_could_not_be_made_at_all_is_a_creation_error():
    world = MemoryWorld(catalogue=CATALOGUE)
    world.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "there", "namespace": "team"}})
    errors = CreationErrors()
    refused = [DEPLOYMENT.ref("team", "x"), CONFIG_MAP.ref("team", "x")]
    errors.count(
        Applied(
            name_taken=(SERVICE.ref("team", "x"), SERVICE.ref("team", "there")),
            rejected=tuple(Rejection(ref, 422, "no") for ref in refused),
        ),
        world.store,
    )
    value = scraped(world, errors)
    assert value("mcpserver_service_creation_errors_total") == 1
    assert value("mcpserver_deployment_creation_errors_total") == 1
