"""A stdio server in a pod, reached by the proxy through attach, with no more rights than that needs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fairway.api.runconfig import Attach, Limits, Upstream
from fairway.proxy.bridge.core import Bridge
from rig.process import ProcessTable
from rig.testcluster import RigCluster, run_rig
from tests.node.test_rig import node, pod  # noqa: F401  the fixture, which loads the image
from tests.unit.proxy.serving import Proxy, proxy, route, until
from tests.unit.proxy.test_stdio import Client, modern, said

pytestmark = pytest.mark.anyio

SERVER = (Path(__file__).parents[1] / "unit/proxy/bridge/line_server.py").read_text()
POD = "notes-0"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "resourceNames": [POD], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/attach"], "resourceNames": [POD], "verbs": ["get", "create"]},
]


@pytest.fixture
def namespace(node: RigCluster, rig_node_namespace: str, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """Where the pod will be, and where we may attach to it."""
    metadata = {"name": "notes-proxy"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", **metadata}
    subjects = [{"kind": "ServiceAccount", "name": "notes-proxy", "namespace": rig_node_namespace}]
    rbac = "rbac.authorization.k8s.io/v1"
    for manifest in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": RULES},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects},
    ):
        node.api.apply(manifest, namespace=rig_node_namespace)
    kubeconfig = node.service_account_kubeconfig(rig_node_namespace, "notes-proxy")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return rig_node_namespace


def start_server(node: RigCluster, namespace: str, **container: Any) -> None:  # noqa: F811
    settings = {"name": "server", "stdin": True, **container}
    node.api.apply(pod(POD, code=SERVER, container=settings, restartPolicy="Always"), namespace=namespace)


def serving(namespace: str) -> AbstractAsyncContextManager[Proxy]:
    upstream = Upstream(transport="stdio", attach=Attach(namespace=namespace, pod=POD))
    return proxy(route(upstream=upstream, limits=Limits(max_body=8 << 20)), ready=False)


@pytest.fixture
async def running(node: RigCluster, namespace: str) -> AsyncIterator[Proxy]:  # noqa: F811
    """A proxy, started together with its server."""
    async with serving(namespace) as served:
        start_server(node, namespace)
        await until(lambda: served.live().upstream.has_good, seconds=60)
        yield served


def bridge(served: Proxy) -> Bridge:
    (endpoint,) = served.live().upstream.endpoints
    assert endpoint.bridge is not None
    return endpoint.bridge


def attachments(served: Proxy) -> int:
    (endpoint,) = served.live().upstream.endpoints
    return endpoint.lines.starts


def why(served: Proxy) -> str:
    (endpoint,) = served.live().status().endpoints
    return endpoint.message


async def greetings(client: Client) -> int:
    """How often the process that runs now was greeted."""
    sent = said((await client.call("sent")).message)
    return sum(message.get("method") == "initialize" for message in sent)


async def test_clients_of_both_eras_call_a_server_that_only_knows_lines(running: Proxy) -> None:
    client = await Client.open(running)
    assert said((await client.call("echo", text="hi")).message) == {"text": "hi"}
    body, headers = modern("tools/call", {"name": "echo", "arguments": {"text": "ho"}})
    reply = await running.ask(body, headers)
    assert said(reply.message) == {"text": "ho"}
    assert await greetings(client) == 1
    assert attachments(running) == 1


async def test_large_messages_pass_whole_both_ways(running: Proxy) -> None:
    client = await Client.open(running)
    text = "".join(chr(ord("a") + number % 26) for number in range(7 << 20))
    assert said((await client.call("echo", text=text)).message) == {"text": text}
    blob = (await client.call("blob", size=24 << 20)).message["result"]["content"][0]["text"]
    assert blob == "y" * (24 << 20)


async def test_an_api_server_that_is_killed_in_mid_call_costs_that_call_and_no_greeting(
    node: RigCluster,  # noqa: F811
    running: Proxy,
) -> None:
    if node.state is None:
        pytest.skip("only an API server that the rig started is killed")
    client = await Client.open(running)
    process = said((await client.call("pid")).message)
    calls = [await client.start("slow", request_id=number, seconds=600) for number in range(20)]
    await until(lambda: len(bridge(running).link.pending) == 20)
    pid = ProcessTable(run=node.state.run, logs=node.state.logs).pid("kube-apiserver")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for number, call in enumerate(calls):
        reply = await asyncio.wait_for(call.reply(), 10)
        assert reply.message["id"] == number
        assert f"the connection to the pod {POD} broke" in reply.message["error"]["message"]
    refused = await client.call("echo", text="meanwhile")
    assert refused.status == 503
    assert "retry-after" in refused.headers
    await asyncio.to_thread(run_rig, "up", "--node", "--quiet", state=node.state)
    await until(lambda: running.live().upstream.has_good, seconds=30)
    assert said((await client.call("echo", text="after")).message) == {"text": "after"}
    assert said((await client.call("pid")).message) == process
    assert await greetings(client) == 1
    assert attachments(running) == 2


async def test_a_container_that_dies_is_greeted_anew_and_sessions_stay(running: Proxy) -> None:
    client = await Client.open(running)
    waiting = await client.start("slow", request_id="w", seconds=600)
    dying = await client.start("crash", request_id="d")
    for call in (waiting, dying):
        reply = await asyncio.wait_for(call.reply(), 20)
        assert POD in reply.message["error"]["message"]
    await until(lambda: running.live().upstream.has_good, seconds=60)
    assert said((await client.call("echo", text="again")).message) == {"text": "again"}
    assert await greetings(client) == 1
    await asyncio.wait_for((await client.start("crash", request_id="d")).reply(), 20)
    # the kubelet waits ten seconds now, and it is said what for
    await until(lambda: "exit code 7" in why(running), seconds=20)
    await until(lambda: running.live().upstream.has_good, seconds=60)
    assert await greetings(client) == 1


async def test_a_pod_that_is_made_anew_is_found(node: RigCluster, namespace: str, running: Proxy) -> None:  # noqa: F811
    client = await Client.open(running)
    node.api.delete(f"/api/v1/namespaces/{namespace}/pods/{POD}")
    await until(lambda: "there is no pod" in why(running), seconds=30)
    start_server(node, namespace)
    await until(lambda: running.live().upstream.has_good, seconds=60)
    assert await greetings(client) == 1


async def test_the_proxy_that_comes_and_the_one_that_goes_do_not_get_each_others_answers(
    namespace: str, running: Proxy
) -> None:
    async with serving(namespace) as second:
        await until(lambda: second.live().upstream.has_good, seconds=30)
        clients = [await Client.open(running), await Client.open(second)]
        for _ in range(30):
            asked = [client.call("echo", who=number) for number, client in enumerate(clients)]
            assert [said(reply.message) for reply in await asyncio.gather(*asked)] == [{"who": 0}, {"who": 1}]


async def test_what_is_in_the_way_is_said(node: RigCluster, namespace: str) -> None:  # noqa: F811
    async with serving(namespace) as served:
        await until(lambda: f"there is no pod {POD}" in why(served), seconds=20)
        start_server(node, namespace, stdin=False)
        await until(lambda: "takes no input: it has to say stdin: true" in why(served), seconds=20)


async def test_a_missing_right_is_named(node: RigCluster, namespace: str) -> None:  # noqa: F811
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/notes-proxy"
    node.api.delete(path)
    async with serving(namespace) as served:
        await until(lambda: f'pods "{POD}" is forbidden' in why(served), seconds=20)
