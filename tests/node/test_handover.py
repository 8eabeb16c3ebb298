"""What clients of a live server meet while it is changed: another mode, another transport, a restart. Nothing."""

import time
from typing import Any

import anyio.to_thread
import pytest

from rig.api import wait_for
from tests.installed import InstalledFairway, condition
from tests.node.calling import Crowd, crowd, until
from tests.node.manifests import PYTHON, from_image, load_python
from tests.packages import SERVER

pytestmark = pytest.mark.anyio

MODES = ("standalone", "sidecar", "standalone", "none", "sidecar", "none")
KINDS = "configmaps,services,roles,rolebindings,networkpolicies"
ON_LINES = {
    "image": PYTHON,
    "imagePullPolicy": "Never",
    "transport": "stdio",
    "args": [SERVER + "\nmain()\n"],
    "config": None,
}


async def changed(fairway: InstalledFairway, namespace: str, clients: Crowd, spec: dict[str, Any]) -> str:
    """Changes the spec, waits until that is so, and says how long it took and what failed meanwhile."""
    began, before = time.monotonic(), len(clients.calls)
    changed = await anyio.to_thread.run_sync(fairway.rig.api.merge, fairway.path(namespace, "hello"), {"spec": spec})
    generation = changed["metadata"]["generation"]

    async def is_so() -> bool:
        status = await anyio.to_thread.run_sync(fairway.status, namespace, "hello")
        return status.get("observedGeneration") == generation and condition(status, "Ready")[0] == "True"

    done = await until(is_so, seconds=90)
    await anyio.sleep(2)
    failed = [made.error for made in clients.calls[before:] if made.error]
    told = f"Ready after {done - began:.1f} s, {len(clients.calls) - before} calls, {len(failed)} failed {failed[:3]}"
    print(f"{spec.get('proxy') or spec.get('transport')}: {told}")
    return "; ".join(failed)


async def test_no_call_fails_while_the_proxy_comes_goes_and_moves(
    fairway: InstalledFairway, rig_node_namespace: str
) -> None:
    def start() -> str:
        fairway.apply(rig_node_namespace, from_image(proxy={"mode": "none"}))
        fairway.ready(rig_node_namespace, "hello")
        return f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"

    url = await anyio.to_thread.run_sync(start)
    async with crowd(url, *["echo"] * 8, pause=0.2, fresh=True, text="hi") as clients:
        for mode in MODES:
            assert not await changed(fairway, rig_node_namespace, clients, {"proxy": {"mode": mode}}), mode

    def left() -> list[str]:
        """What only a proxy needs."""
        listed = fairway.rig.kubectl(
            "-n", rig_node_namespace, "get", "-o", "name", "-l", "fairway.dev/server=hello", KINDS
        )
        return [name for name in listed.split() if name not in ("service/hello", "configmap/hello-config")]

    await anyio.to_thread.run_sync(lambda: wait_for("the rest to go", lambda: not left(), seconds=60))


async def test_no_call_fails_while_a_server_on_http_becomes_one_on_lines_and_back(
    fairway: InstalledFairway, rig_node_namespace: str
) -> None:
    over_http = from_image()["spec"]

    def start() -> str:
        load_python(fairway.rig)
        fairway.apply(rig_node_namespace, from_image())
        fairway.ready(rig_node_namespace, "hello")
        return f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"

    url = await anyio.to_thread.run_sync(start)
    async with crowd(url, *["echo"] * 8, pause=0.2, fresh=True, text="hi") as clients:
        assert not await changed(fairway, rig_node_namespace, clients, ON_LINES)
        back = {**over_http, "transport": "streamable-http", "imagePullPolicy": None}
        assert not await changed(fairway, rig_node_namespace, clients, back)


async def test_a_rollout_loses_no_call(fairway: InstalledFairway, rig_node_namespace: str) -> None:
    def start() -> str:
        fairway.apply(rig_node_namespace, from_image())
        fairway.ready(rig_node_namespace, "hello")
        return f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"

    url = await anyio.to_thread.run_sync(start)
    deployment = f"/apis/apps/v1/namespaces/{rig_node_namespace}/deployments/hello"
    async with crowd(url, *["echo"] * 8, pause=0.1, text="hi") as clients:
        for name in ("hello", "hello-proxy"):
            before = {pod["metadata"]["uid"] for pod in fairway.pods(rig_node_namespace)}
            await anyio.to_thread.run_sync(
                fairway.rig.kubectl, "-n", rig_node_namespace, "rollout", "restart", f"deployment/{name}"
            )
            await anyio.to_thread.run_sync(
                fairway.rig.kubectl,
                "-n",
                rig_node_namespace,
                "rollout",
                "status",
                f"deployment/{name}",
                "--timeout=90s",
            )
            await anyio.sleep(8)
            after = {pod["metadata"]["uid"] for pod in fairway.pods(rig_node_namespace)}
            assert len(after - before) == 1
            assert [made.error for made in clients.calls if made.error] == [], name
    assert fairway.rig.api.get(deployment)["status"]["readyReplicas"] == 1
