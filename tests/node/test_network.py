"""Who reaches whom: NetworkPolicies of generated servers, enforced by a real network."""

import json
import os
from collections.abc import Iterator

import anyio
import pytest
from mcp import Client

from rig.api import wait_for
from rig.testcluster import RigCluster
from tests.installed import InstalledFairway, condition
from tests.node.manifests import PYTHON, inline, load_python

REACH = """
import socket


def reached(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
"""
LISTENER = "from http.server import *\nThreadingHTTPServer(('', 8080), SimpleHTTPRequestHandler).serve_forever()"


@pytest.fixture(scope="module")
def enforced(rig_node: RigCluster) -> RigCluster:
    if not rig_node.enforces_network_policies:
        reason = "UNTESTED: NetworkPolicies are not enforced here"
        (pytest.fail if os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1" else pytest.skip)(reason)
    return rig_node


@pytest.fixture(scope="module")
def servers(enforced: RigCluster, fairway: InstalledFairway) -> Iterator[tuple[InstalledFairway, str]]:
    load_python(enforced)
    namespace = enforced.namespace("network")
    document = json.dumps({"network": {"outbound": {"allow_host": ["192.0.2.0/24"], "allow_port": [8080]}}})
    container = {"name": "c", "image": PYTHON, "imagePullPolicy": "Never", "args": [LISTENER]}
    container["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    fairway.apply(
        namespace,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "profile"}, "data": {"p.json": document}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "listener"}, "spec": {"containers": [container]}},
        inline("open", code=REACH),
        inline("caged", code=REACH, permissionProfile={"type": "builtin", "name": "none"}),
        inline("free", code=REACH, permissionProfile={"type": "builtin", "name": "network"}),
        inline("some", code=REACH, permissionProfile={"type": "configMap", "name": "profile", "key": "p.json"}),
    )
    enforced.wait_for_pod(namespace, "listener")
    for name in ("open", "caged", "free", "some"):
        status = fairway.ready(namespace, name, seconds=120)
        wanted = ("", "") if name == "open" else ("True", "Applied")
        assert condition(status, "PermissionsApplied") == wanted
    yield fairway, namespace
    enforced.delete_namespace(namespace)


def reached(fairway: InstalledFairway, namespace: str, name: str, host: str, port: int) -> bool:
    async def ask() -> bool:
        async with Client(f"http://{fairway.address(namespace, name)}/mcp") as client:
            answer = await client.call_tool("reached", {"host": host, "port": port})
            return bool((answer.structured_content or {})["result"])

    return anyio.run(ask)


def address_of(fairway: InstalledFairway, namespace: str, pod: str) -> str:
    return str(fairway.rig.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["status"]["podIP"])


def test_a_pod_reaches_the_proxy_and_not_the_server_behind_it(servers: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = servers
    (behind,) = fairway.pods(namespace, "free", component="server")
    host, _, port = fairway.address(namespace, "free").partition(":")
    # nodes learn of a Service's endpoints a moment after the API server does, and refuse connections until then
    wait_for("the Service to lead there", lambda: reached(fairway, namespace, "open", host, int(port)), seconds=20)
    assert not reached(fairway, namespace, "open", behind["status"]["podIP"], 8080)


@pytest.mark.parametrize(("name", "expected"), [("open", True), ("free", True), ("caged", False), ("some", False)])
def test_a_server_reaches_what_its_profile_allows(
    servers: tuple[InstalledFairway, str], name: str, expected: bool
) -> None:
    fairway, namespace = servers
    assert reached(fairway, namespace, name, address_of(fairway, namespace, "listener"), 8080) == expected


def test_the_network_profile_leaves_out_the_api_server(servers: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = servers
    (address,) = fairway.rig.api.get("/api/v1/namespaces/default/endpoints/kubernetes")["subsets"]
    host, port = address["addresses"][0]["ip"], address["ports"][0]["port"]
    assert reached(fairway, namespace, "open", host, port)
    assert not reached(fairway, namespace, "free", host, port)


def test_a_profile_reaches_its_users_live(servers: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = servers
    listener = address_of(fairway, namespace, "listener")
    document = json.dumps({"network": {"outbound": {"allow_host": [listener], "allow_port": [8080]}}})
    fairway.rig.api.merge(f"/api/v1/namespaces/{namespace}/configmaps/profile", {"data": {"p.json": document}})
    wait_for("the way to be open", lambda: reached(fairway, namespace, "some", listener, 8080), seconds=30)
    assert not reached(fairway, namespace, "caged", listener, 8080)
