"""MCPServers whose pods really run: what becomes Ready, what never does, and what a client meets meanwhile."""

import time
import urllib.error
import urllib.request

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.installed import InstalledFairway, condition
from tests.node.manifests import from_code, inline, load_python, tool_config

pytestmark = pytest.mark.anyio

TOOLS = "def add(a: int, b: int) -> int:\n    return a + b\n\n\ndef sub(a: int, b: int) -> int:\n    return a - b\n"
WEB_SERVER = """
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
ThreadingHTTPServer(("", 8080), SimpleHTTPRequestHandler).serve_forever()
"""


def server(**spec):
    return inline(code=(spec.pop("inlineTools", None) or {"python": TOOLS})["python"], **spec)


def dies_with(reason):
    return lambda status: condition(status, "Ready") == ("False", reason)


async def test_a_plain_web_server_is_never_available_and_the_status_says_what_it_answered(
    fairway: InstalledFairway, rig_node_namespace: str
):
    load_python(fairway.rig)
    fairway.apply(rig_node_namespace, from_code("hello", WEB_SERVER))
    status = fairway.until(rig_node_namespace, "hello", "NotMCP", dies_with("NotMCP"))
    assert condition(status, "Available") == ("False", "NotMCP")
    assert condition(status, "WorkloadReady")[0] == "True"
    assert "POST /mcp answered 501" in status["message"]
    assert status["phase"] == "Failed"
    history = []
    for _ in range(25):
        history.append(condition(fairway.status(rig_node_namespace, "hello"), "Available")[0])
        await anyio.sleep(0.2)
    assert set(history) == {"False"}
    with pytest.raises(urllib.error.URLError):  # the proxy never became ready, so that the Service has no endpoint
        url = f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"
        await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(url, timeout=3))


async def test_without_a_proxy_clients_reach_the_server_itself(fairway: InstalledFairway, rig_node_namespace: str):
    fairway.apply(rig_node_namespace, server(proxy={"mode": "none"}))
    status = fairway.ready(rig_node_namespace, "hello")
    assert status["tools"]["names"] == ["add", "sub"]
    assert condition(status, "ProxyReady") == ("", "")
    async with Client(f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp") as client:
        assert (await client.call_tool("sub", {"a": 2, "b": 3})).structured_content == {"result": -1}


async def test_a_missing_secret_is_named_and_once_it_comes_the_server_gets_its_value(
    fairway: InstalledFairway, rig_node_namespace: str
):
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "later", "key": "token"}}}
    code = "import os\n\n\ndef length() -> int:\n    return len(os.environ['TOKEN'])\n"
    fairway.apply(rig_node_namespace, server(inlineTools={"python": code}, env=[variable]))
    status = fairway.until(rig_node_namespace, "hello", "SecretMissing", dies_with("SecretMissing"))
    assert "key token of Secret later" in status["message"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "data": {"token": "czNjcjN0"}}
    fairway.apply(rig_node_namespace, secret)
    fairway.ready(rig_node_namespace, "hello", seconds=90)
    async with Client(f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp") as client:
        assert (await client.call_tool("length", {})).structured_content == {"result": 6}


async def test_new_policy_reaches_the_running_proxy_and_a_removed_tool_cannot_be_called(
    fairway: InstalledFairway, rig_node_namespace: str
):
    fairway.apply(rig_node_namespace, tool_config("add"), server(toolConfigRef={"name": "few"}))
    fairway.ready(rig_node_namespace, "hello")
    url = f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"
    proxies = pods(fairway, rig_node_namespace, "proxy")
    async with Client(url) as client:
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
        with pytest.raises(MCPError):
            await client.call_tool("sub", {"a": 2, "b": 3})
    started = time.monotonic()
    fairway.apply(rig_node_namespace, tool_config("sub", sub={"name": "minus"}))

    def enforced(status):
        return status.get("tools", {}).get("names") == ["minus"] and condition(status, "Ready")[0] == "True"

    fairway.until(rig_node_namespace, "hello", "the new policy", enforced)
    print(f"policy enforced everywhere after {time.monotonic() - started:.1f} s")
    async with Client(url) as client:
        assert [t.name for t in (await client.list_tools()).tools] == ["minus"]
        assert (await client.call_tool("minus", {"a": 2, "b": 3})).structured_content == {"result": -1}
        for gone in ("add", "sub"):
            with pytest.raises(MCPError):
                await client.call_tool(gone, {"a": 2, "b": 3})
    assert pods(fairway, rig_node_namespace, "proxy") == proxies, "policy is reloaded, not rolled out"


async def test_a_workload_of_the_cluster_calls_with_its_own_token(fairway: InstalledFairway, rig_node_namespace: str):
    allowed = f'permit(principal == Client::"system:serviceaccount:{rig_node_namespace}:default", action, resource);'
    guarded = {"auth": {"oidc": {"type": "kubernetes"}}, "authz": {"cedar": {"policies": [allowed]}}}
    fairway.apply(rig_node_namespace, server(inlineTools={"python": TOOLS}, **guarded))
    url = fairway.ready(rig_node_namespace, "hello")["url"]

    def called(audience: str | None) -> int:
        """The status of a call with a token for this audience, or without one."""
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}'
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if audience is not None:
            spec = {"audiences": [audience]}
            path = f"/api/v1/namespaces/{rig_node_namespace}/serviceaccounts/default/token"
            made = fairway.rig.api.post(
                path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            )
            headers["Authorization"] = f"Bearer {made['status']['token']}"
        where = f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp"
        try:
            with urllib.request.urlopen(urllib.request.Request(where, body, headers), timeout=10) as answer:
                assert b'"result":5' in answer.read().replace(b" ", b"")
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert called(url) == 200
    assert called(None) == 401
    assert called("https://else.example.org") == 401


async def test_replicas_share_the_calls_and_scaling_rolls_nothing(fairway: InstalledFairway, rig_node_namespace: str):
    code = "import os\n\n\ndef whoami() -> str:\n    return os.uname().nodename\n"
    fairway.apply(rig_node_namespace, server(inlineTools={"python": code}))
    fairway.ready(rig_node_namespace, "hello")
    (first,) = pods(fairway, rig_node_namespace, "server")
    fairway.rig.api.merge(
        f"/apis/fairway.dev/v1alpha1/namespaces/{rig_node_namespace}/mcpservers/hello/scale", {"spec": {"replicas": 2}}
    )
    fairway.until(rig_node_namespace, "hello", "2/2", lambda s: s.get("ready") == "2/2" and s["phase"] == "Ready")
    assert first in pods(fairway, rig_node_namespace, "server")
    answers = set()
    for _ in range(8):
        async with Client(f"http://{fairway.address(rig_node_namespace, 'hello')}/mcp") as client:
            answers.add((await client.call_tool("whoami", {})).structured_content["result"])
    assert answers == set(pods(fairway, rig_node_namespace, "server"))


def pods(fairway: InstalledFairway, namespace: str, component: str) -> list[str]:
    """Names of the pods of one component that are not on their way out."""
    found = fairway.rig.api.items(
        f"/api/v1/namespaces/{namespace}/pods?labelSelector=fairway.dev%2Fcomponent%3D{component}"
    )
    return sorted(p["metadata"]["name"] for p in found if not p["metadata"].get("deletionTimestamp"))
