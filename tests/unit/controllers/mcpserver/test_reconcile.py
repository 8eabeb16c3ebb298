import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from fairway.api import runconfig
from fairway.api.names import RUNCONFIG_KEY
from fairway.api.proxystatus import Route, Server, Tools
from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver import turns
from fairway.controllers.mcpserver.observation import Observation
from fairway.controllers.mcpserver.observer import Pace
from fairway.controllers.mcpserver.reconcile import HeldBack
from fairway.controllers.resources import CATALOGUE, MCP_SERVER, MCP_TOOL_CONFIG
from fairway.controllers.wiring import controllers
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, NETWORK_POLICY, POD, SECRET, SERVICE
from fairway.runtime.memory import MemoryWorld
from tests.unit.controllers.mcpserver.samples import SETTINGS, endpoint, pod, secret, server, tool_config

pytestmark = pytest.mark.anyio


class Cluster:
    """A world in memory with the real controllers in it, and pods that a test makes up."""

    def __init__(self):
        self.world = MemoryWorld(catalogue=CATALOGUE.plus((SECRET,)))
        self.nudged = []
        self.observer = None
        self.hash = None

    async def ask(self, target):
        endpoints = tuple(replace(endpoint(), uid=uid) for uid, ready, _ in target.backends if ready)
        return Observation(
            target,
            route=Route(
                name=f"{target.namespace}/{target.server}",
                hash=self.hash or target.expected,
                ready=bool(endpoints),
                endpoints=endpoints,
                server=Server(name="calc") if endpoints else None,
                tools=Tools(count=1, names=("add",)) if endpoints else None,
            ),
        )

    async def nudge(self, pod, wanted):
        self.nudged.append((pod["metadata"]["name"], wanted))

    async def whole_object(self, resource, namespace, name):
        return self.world.store.get(resource, namespace, name)

    def get(self, resource, name):
        return self.world.store.get(resource, "team", name)

    def run_pods(self, name="hello"):
        """Plays the kubelet for one server."""
        for component, port in (("server", "mcp"), ("proxy", "admin")):
            made = pod(f"{name}-{component}-1", port=port)
            made |= {"apiVersion": "v1", "kind": "Pod"}
            made["metadata"]["labels"] = {"fairway.dev/server": name, "fairway.dev/component": component}
            self.world.put(made)
        for deployment in (name, f"{name}-proxy"):
            generation = self.get(DEPLOYMENT, deployment)["metadata"]["generation"]
            status = {"observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
            self.world.set_status(DEPLOYMENT.ref("team", deployment), status)

    async def until(self, what, *, resource=MCP_SERVER, name="hello"):
        """Waits for the object's status to satisfy `what`, and returns it."""
        async with asyncio.timeout(5):
            while True:
                status = (self.get(resource, name) or {}).get("status") or {}
                if what(status):
                    return status
                await asyncio.sleep(0.005)

    async def changes(self, found):
        """Waits for something to be found, and returns it."""
        async with asyncio.timeout(5):
            while True:
                if value := found():
                    return value
                await asyncio.sleep(0.005)

    async def ready(self, **reason):
        def is_so(status):
            condition = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
            return all(condition.get(k) == v for k, v in reason.items())

        return await self.until(is_so)


@asynccontextmanager
async def running(settings=SETTINGS, *, after=None):
    cluster = after or Cluster()
    wired = controllers(
        settings=settings,
        ask=cluster.ask,
        nudge=cluster.nudge,
        contents=ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=cluster.whole_object),
        pace=Pace(first=0.005, unsettled_at_most=0.01),
    )
    cluster.observer = wired.observer
    for one in () if after else wired.all:
        for resource, indexes in one.indexes.items():
            cluster.world.store.register(resource, indexes=indexes)
    tasks = [asyncio.create_task(one.run(cluster.world, grace=0.1)) for one in wired.all]
    try:
        yield cluster
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await wired.observer.stop()


async def test_a_server_becomes_ready_once_its_pods_run_and_answer():
    async with running() as cluster:
        cluster.world.put(server())
        pending = await cluster.ready(status="False", reason="Pending")
        assert pending["phase"] == "Pending"
        cluster.run_pods()
        status = await cluster.ready(status="True")
        assert status["phase"] == "Ready"
        assert status["tools"]["names"] == ["add"]
        assert cluster.nudged == []


async def test_after_an_upgrade_proxies_take_the_newer_image_one_after_the_other(monkeypatch):
    monkeypatch.setattr(turns, "WAIT", 0.01)

    def image_of(cluster, name):
        return cluster.get(DEPLOYMENT, f"{name}-proxy")["spec"]["template"]["spec"]["containers"][0]["image"]

    def named(name):
        made = server()
        made["metadata"] |= {"name": name, "uid": name}
        return made

    names = ("a", "b", "c")
    async with running() as old:
        for name in names:
            old.world.put(named(name))
            await old.until(lambda s: s.get("conditions"), name=name)
            old.run_pods(name)
    newer = dataclasses.replace(SETTINGS, image="fairway:newer", proxy_rollouts=1)
    async with running(newer, after=old) as cluster:

        def upgraded():
            return [name for name in names if image_of(cluster, name) == newer.image]

        done = []
        while len(done) < len(names):
            await cluster.changes(lambda: len(upgraded()) > len(done))
            await asyncio.sleep(0.05)
            (taken,) = set(upgraded()) - set(done)
            done.append(taken)
            cluster.run_pods(taken)


async def test_a_policy_is_not_lifted_for_clients_that_were_never_served_another_way():
    async with running() as cluster:
        cluster.world.put(server(image="w:1", proxy={"mode": "none"}))
        await cluster.ready(reason="Pending")
        cluster.world.put(server(image="w:1"))
        policy = await cluster.changes(lambda: cluster.get(NETWORK_POLICY, "hello"))
        await asyncio.sleep(0.05)
        assert cluster.get(NETWORK_POLICY, "hello") == policy


async def test_an_object_that_belongs_to_somebody_else_is_left_alone_and_taken_over_when_it_goes():
    async with running() as cluster:
        foreign = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hello", "namespace": "team"},
            "spec": {"ports": [{"port": 1}]},
        }
        cluster.world.put(foreign)
        cluster.world.put(server())
        status = await cluster.ready(reason="NameTaken")
        assert "Service/hello" in status["message"]
        assert cluster.get(SERVICE, "hello")["spec"] == {"ports": [{"port": 1}]}
        assert cluster.get(DEPLOYMENT, "hello") is not None
        cluster.world.delete(SERVICE.ref("team", "hello"))
        await cluster.ready(reason="Pending")
        assert cluster.get(SERVICE, "hello")["spec"]["ports"][0]["port"] == 8080


async def test_nothing_is_made_while_the_tool_config_is_missing_and_all_is_once_it_comes():
    async with running() as cluster:
        cluster.world.put(server(image="x", toolConfigRef={"name": "few"}))
        status = await cluster.ready(reason="ToolConfigNotFound")
        assert status["phase"] == "Waiting"
        assert cluster.get(DEPLOYMENT, "hello-proxy") is None
        cluster.world.put(tool_config(filter=["a"]))
        await cluster.ready(reason="Pending")
        users = await cluster.until(lambda s: s.get("users"), resource=MCP_TOOL_CONFIG, name="few")
        assert users["users"] == ["hello"]


async def test_a_tool_config_that_goes_widens_nothing():
    async with running() as cluster:
        cluster.world.put(tool_config(filter=["a"]))
        cluster.world.put(server(image="x", toolConfigRef={"name": "few"}))
        await cluster.ready(reason="Pending")
        before = cluster.get(CONFIG_MAP, "hello-runconfig")
        cluster.world.delete(MCP_TOOL_CONFIG.ref("team", "few"))
        await cluster.ready(reason="ToolConfigNotFound")
        assert cluster.get(CONFIG_MAP, "hello-runconfig") == before


async def test_new_policy_reaches_the_runconfig_and_nudges_the_proxy_that_runs_the_old_one():
    async with running() as cluster:
        cluster.world.put(tool_config(filter=["a"]))
        cluster.world.put(server(image="x", toolConfigRef={"name": "few"}))
        await cluster.ready(reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        cluster.hash = runconfig.parse(_runconfig(cluster))[1]["team/hello"]
        cluster.world.put(tool_config(filter=["b"]))
        status = await cluster.ready(status="False", reason="Pending")
        assert status["phase"] == "PartiallyReady"
        config, hashes = runconfig.parse(_runconfig(cluster))
        assert config.routes[0].tools.filter == ("b",)
        assert ("hello-proxy-1", hashes["team/hello"]) in cluster.nudged
        cluster.hash = None
        await cluster.ready(status="True")


def _runconfig(cluster):
    return cluster.get(CONFIG_MAP, "hello-runconfig")["data"][RUNCONFIG_KEY].encode()


async def test_taking_the_proxy_away_takes_away_all_that_belonged_to_it():
    async with running() as cluster:
        cluster.world.put(server(image="x"))
        await cluster.ready(reason="Pending")
        assert cluster.get(DEPLOYMENT, "hello-proxy") is not None
        cluster.world.put(server(image="x", proxy={"mode": "none"}))
        await cluster.until(lambda _: cluster.get(DEPLOYMENT, "hello-proxy") is None)
        assert cluster.get(CONFIG_MAP, "hello-runconfig") is None
        assert cluster.get(SERVICE, "hello")["spec"]["selector"]["fairway.dev/component"] == "server"


async def test_one_broken_server_stops_no_other():
    async with running() as cluster:
        broken = server(inlineTools={"python": "def ("})
        broken["metadata"] |= {"name": "broken"}
        cluster.world.put(broken)
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        status = await cluster.until(lambda s: s.get("phase") == "Failed", name="broken")
        assert "line 1" in status["message"]


async def test_a_server_that_is_deleted_leaves_nothing():
    async with running() as cluster:
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        cluster.world.delete(MCP_SERVER.ref("team", "hello"))
        for resource in (DEPLOYMENT, SERVICE, CONFIG_MAP):
            assert cluster.world.store.list(resource, "team") == ()


async def test_a_server_whose_deletion_waits_for_its_objects_says_so_and_nothing_else_changes():
    async with running() as cluster:
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        made = cluster.get(DEPLOYMENT, "hello")
        going = server()
        going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
        cluster.world.put(going)
        status = await cluster.until(lambda s: s.get("phase") == "Terminating")
        assert "waits for its objects" in status["message"]
        assert cluster.get(DEPLOYMENT, "hello") == made


async def test_a_converged_world_stands_still():
    async with running() as cluster:
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        changes = []
        for resource in cluster.world.store.resources:
            cluster.world.subscribe(resource, changes.append)
        await asyncio.sleep(0.1)
        assert changes == []


async def test_a_server_whose_only_pod_crashes_is_not_available_any_more():
    async with running() as cluster:
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        crashed = pod("hello-server-1", ready=False, state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=2)
        cluster.world.set_status(POD.ref("team", "hello-server-1"), crashed["status"])
        status = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 0, "updatedReplicas": 1}
        cluster.world.set_status(DEPLOYMENT.ref("team", "hello"), status)
        found = await cluster.until(lambda s: s["conditions"][1]["status"] == "False")
        assert found["ready"] == "0/1"


def test_progress_waits_for_more_and_news_does_not():
    now = 0.0
    held = HeldBack(clock=lambda: now, seconds=2.0)
    started = {"phase": "Pending", "message": "a"}
    assert held.wait("u", {}, started) == 0
    assert held.wait("u", started, started | {"message": "b"}) == 2
    now = 1.5
    assert held.wait("u", started, started | {"message": "c"}) == 0.5
    assert held.wait("u", started, started | {"phase": "Ready"}) == 0
    assert held.wait("u", started, started | {"message": "d"}) == 2
    now = 3.5
    assert held.wait("u", started, started | {"message": "d"}) == 0


async def test_the_pods_of_a_deleted_server_are_asked_no_more():
    async with running() as cluster:
        cluster.world.put(server())
        await cluster.ready(reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        assert cluster.observer.watching == 1
        cluster.world.delete(MCP_SERVER.ref("team", "hello"))
        assert cluster.observer.watching == 0


async def test_what_runs_is_still_observed_while_the_tool_config_is_missing():
    async with running() as cluster:
        cluster.world.put(tool_config(filter=["add"]))
        cluster.world.put(server(image="x", toolConfigRef={"name": "few"}))
        await cluster.ready(reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        cluster.world.delete(MCP_TOOL_CONFIG.ref("team", "few"))
        status = await cluster.ready(reason="ToolConfigNotFound")
        by_type = {c["type"]: c["status"] for c in status["conditions"]}
        assert (by_type["Available"], by_type["PolicyApplied"], status["ready"]) == ("True", "True", "1/1")
        healthy = cluster.get(POD, "hello-server-1")["status"]
        crashed = pod("hello-server-1", ready=False, state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=2)
        cluster.world.set_status(POD.ref("team", "hello-server-1"), crashed["status"])
        await cluster.until(lambda s: {c["type"]: c["status"] for c in s["conditions"]}["Available"] == "False")
        cluster.world.set_status(POD.ref("team", "hello-server-1"), healthy)
        await cluster.until(lambda s: {c["type"]: c["status"] for c in s["conditions"]}["Available"] == "True")


async def test_a_secret_that_is_missing_is_waited_for_and_one_that_changes_replaces_the_pods():
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    async with running() as cluster:
        cluster.world.put(server(image="w", env=[variable]))
        status = await cluster.ready(status="False", reason="SecretMissing")
        assert status["phase"] == "Waiting"
        assert "Secret s" in status["message"]
        assert cluster.get(DEPLOYMENT, "hello") is None
        assert cluster.get(DEPLOYMENT, "hello-proxy") is not None
        cluster.world.put(secret(token="a"))
        await cluster.ready(status="False", reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        before = cluster.get(DEPLOYMENT, "hello")["metadata"]["generation"]
        changed = asyncio.Event()
        cluster.world.subscribe(DEPLOYMENT, lambda _: changed.set())
        cluster.world.put(secret(token="b"))
        await asyncio.wait_for(changed.wait(), 5)
        assert cluster.get(DEPLOYMENT, "hello")["metadata"]["generation"] == before + 1


async def test_a_secret_that_goes_is_named_and_the_pods_run_on():
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    async with running() as cluster:
        cluster.world.put(secret(token="a"))
        cluster.world.put(server(image="w", env=[variable]))
        await cluster.ready(status="False", reason="Pending")
        cluster.run_pods()
        await cluster.ready(status="True")
        deployment = cluster.get(DEPLOYMENT, "hello")
        cluster.world.delete(SECRET.ref("team", "s"))
        status = await cluster.ready(status="False", reason="SecretMissing")
        assert next(c for c in status["conditions"] if c["type"] == "Available")["status"] == "True"
        assert cluster.get(DEPLOYMENT, "hello") is deployment


async def test_a_suspended_server_says_so():
    async with running() as cluster:
        cluster.world.put(server(image="w", suspend=True))
        status = await cluster.ready(status="False", reason="Suspended")
        assert status["phase"] == "Suspended"
        assert status["ready"] == "0/0"
