"""Pods as real processes of this very program."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager

import pytest

from fairway.kube.resource import CONFIG_MAP, POD
from fairway.local.kubelet import Kubelet, Machine
from fairway.local.launch import inherited_environment
from fairway.local.pod import is_ready
from fairway.local.ports import PortBook
from fairway.local.statedir import StateDirectory
from fairway.mcp.http import HttpClient
from fairway.process.pace import RestartPace
from fairway.process.warden import Warden
from tests.unit.local.objects import deployment, new_world, put_pod

pytestmark = pytest.mark.anyio

TOOLS = "def add(a: int, b: int) -> int:\n    return a + b\n"
TOOLS_ARGS = ["tools", "--file", "/etc/tools/tools.py", "--port", "8080"]


class Node:
    """A kubelet with all that it needs, and the world that it runs."""

    def __init__(self, tmp_path):
        self.world = new_world()
        self.state = StateDirectory(tmp_path / "state")
        self.http = HttpClient()
        self.drained = []
        self.as_command = False

    @asynccontextmanager
    async def running(self):
        with self.state as state, Warden() as warden:
            self.book = PortBook(state.ports)
            machine = Machine(
                image="i",
                place=state,
                keeper=warden,
                http=self.http,
                drained=self._drained,
                pace=RestartPace(first=0.01, longest=0.02),
                inherited=inherited_environment(os.environ),
                as_command=lambda pod: self.as_command,
                containers=lambda: "",
            )
            kubelet = Kubelet(self.world, machine, mine=lambda _: True)
            task = asyncio.create_task(kubelet.run())
            try:
                yield self
            finally:
                await kubelet.stop(grace=5)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await self.http.aclose()
                assert list(state.pids.iterdir()) == []

    async def _drained(self, pod):
        self.drained.append(pod["metadata"]["name"])

    def put(self, owner, **options):
        self.port = self.book.any_free()
        self.pod = put_pod(self.world, owner, host_port=self.port, **options)
        return self.pod

    async def until(self, holds):
        """The pod's status, as soon as it is as wanted."""
        changed = asyncio.Event()
        unsubscribe = self.world.subscribe(POD, lambda _: changed.set())
        try:
            async with asyncio.timeout(20):
                while True:
                    pod = self.world.store.get(POD, "default", self.pod["metadata"]["name"])
                    if pod is not None and pod.get("status") and holds(pod):
                        return pod
                    changed.clear()
                    await changed.wait()
        finally:
            unsubscribe()

    async def until_gone(self):
        changed = asyncio.Event()
        unsubscribe = self.world.subscribe(POD, lambda _: changed.set())
        try:
            async with asyncio.timeout(20):
                while self.world.store.get(POD, "default", self.pod["metadata"]["name"]) is not None:
                    changed.clear()
                    await changed.wait()
        finally:
            unsubscribe()


def container(pod):
    return pod["status"]["containerStatuses"][0]


def tools_deployment(**more):
    return deployment(
        args=TOOLS_ARGS,
        volumes=[{"name": "t", "configMap": {"name": "tools"}}],
        mounts=[{"name": "t", "mountPath": "/etc/tools"}],
        **more,
    )


def config_map(name, data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_a_tools_pod_becomes_ready_serves_and_stops(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": TOOLS}))
        node.put(tools_deployment())
        pod = await node.until(is_ready)
        assert pod["status"]["podIP"] == "127.0.0.1"
        assert "running" in container(pod)["state"]
        answer = await node.http.request("GET", f"http://127.0.0.1:{node.port}/ready")
        assert answer.status == 200
        run = node.state.run / pod["metadata"]["name"]
        assert (run / "volumes/t/tools.py").read_text() == TOOLS
        node.world.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await node.until_gone()
        assert node.drained == [pod["metadata"]["name"]]
        assert not run.exists()


async def test_a_missing_secret_is_waited_for_and_named(node):
    async with node.running():
        variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
        node.put(deployment(args=["version"], env=[variable]))
        pod = await node.until(lambda pod: "waiting" in container(pod)["state"])
        assert container(pod)["state"]["waiting"] == {
            "reason": "CreateContainerConfigError",
            "message": "env TOKEN asks for key k of Secret s, but there is no Secret s",
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVzaA=="}}
        node.world.put(secret)
        await node.until(lambda pod: container(pod).get("lastState"))


async def test_a_crash_shows_its_code_and_its_last_words_and_is_started_again(node):
    async with node.running():
        node.put(deployment(args=["no-such-verb"]))
        pod = await node.until(lambda pod: container(pod)["restartCount"] == 2 and "waiting" in container(pod)["state"])
        assert container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        ended = container(pod)["lastState"]["terminated"]
        assert ended["exitCode"] == 2
        assert "no-such-verb" in ended["message"]
        log = node.state.log_of(pod["metadata"]["name"]).read_text()
        assert log.count("container server ended with code 2") >= 3


async def test_a_broken_tools_file_says_its_line_through_the_termination_log(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": "import nothing_like_it\n"}))
        node.put(tools_deployment())
        pod = await node.until(lambda pod: container(pod).get("lastState"))
        assert container(pod)["lastState"]["terminated"]["exitCode"] == 1
        message = container(pod)["lastState"]["terminated"]["message"]
        assert message.startswith("tools.py:1: ModuleNotFoundError")


async def test_a_program_that_ends_well_is_started_again_as_well(node):
    async with node.running():
        node.put(deployment(args=["version"]))
        pod = await node.until(lambda pod: container(pod)["restartCount"] >= 1)
        assert container(pod)["lastState"]["terminated"]["reason"] == "Completed"


async def test_a_killed_container_is_unready_at_once_and_ready_again(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": TOOLS}))
        node.put(tools_deployment())
        await node.until(is_ready)
        (pid,) = [int(path.name) for path in node.state.pids.iterdir()]
        os.kill(pid, 9)
        pod = await node.until(lambda pod: not is_ready(pod))
        assert container(pod)["lastState"]["terminated"]["exitCode"] == 137
        pod = await node.until(is_ready)
        assert container(pod)["restartCount"] == 1


async def test_a_taken_port_is_said_and_waited_for(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": TOOLS}))
        port = node.book.any_free()
        with socket.create_server(("127.0.0.1", port)):
            node.pod = put_pod(node.world, tools_deployment(), host_port=port)
            pod = await node.until(lambda pod: container(pod)["state"].get("waiting", {}).get("reason") == "PortTaken")
            assert str(port) in container(pod)["state"]["waiting"]["message"]
        await node.until(is_ready)


async def test_mounted_files_follow_their_config_map(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": TOOLS}))
        node.put(tools_deployment())
        pod = await node.until(is_ready)
        node.world.put(config_map("tools", {"tools.py": TOOLS, "more.py": "x"}))
        assert (node.state.run / pod["metadata"]["name"] / "volumes/t/more.py").read_text() == "x"
        node.world.delete(CONFIG_MAP.ref("default", "tools"))
        assert (node.state.run / pod["metadata"]["name"] / "volumes/t/tools.py").exists()


async def test_a_pod_that_vanishes_from_the_world_is_stopped_without_waiting_for_clients(node):
    async with node.running():
        node.world.put(config_map("tools", {"tools.py": TOOLS}))
        node.put(tools_deployment())
        pod = await node.until(is_ready)
        node.world.delete(POD.ref("default", pod["metadata"]["name"]))
        async with asyncio.timeout(20):
            while list(node.state.pids.iterdir()):  # noqa: ASYNC110  a directory tells nobody
                await asyncio.sleep(0.005)
        assert node.drained == []
