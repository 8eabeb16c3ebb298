"""The node tier: real pods, names, services and limits, and nothing left behind."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig import remains
from rig.api import condition_of, wait_for
from rig.machine import cgroup_hierarchies
from rig.network import NAMESPACES, processes_in
from rig.process import ProcessTable, start_ticks
from rig.pyimage import python_image
from rig.state import REPOSITORY, State
from rig.testcluster import RigCluster

IMAGE = "localhost/fairway-rig-test:1"
ANSWER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.uname().nodename.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
print("listening", flush=True)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""


@pytest.fixture(scope="session")
def node(rig_node: RigCluster) -> RigCluster:
    rig_node.load_image(python_image(reference=IMAGE, entrypoint=["python", "-c"]))
    return rig_node


def pod(name: str, *, code: str = ANSWER, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": [code]}
    container |= spec.pop("container", {})
    body = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=2) as response:
        return str(response.read().decode())


def fetched(url: str) -> str | None:
    try:
        return fetch(url)
    except (urllib.error.URLError, OSError):
        return None


def ended(cluster: RigCluster, namespace: str, name: str) -> dict[str, Any]:
    """How the pod's container ended."""

    def state() -> dict[str, Any] | None:
        found = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        for container in found.get("status", {}).get("containerStatuses", []):
            terminated = container["state"].get("terminated")
            if terminated:
                return dict(terminated)
        return None

    return wait_for(f"the pod {name} to end", state, seconds=60)


def test_a_pod_runs_and_its_log_can_be_read(node: RigCluster, rig_node_namespace: str) -> None:
    node.api.apply(pod("web"), namespace=rig_node_namespace)
    ready = node.wait_for_pod(rig_node_namespace, "web")
    # The machine reaches pods directly.
    assert wait_for("an answer", lambda: fetched(f"http://{ready['status']['podIP']}:8080/"), seconds=10) == "web"
    assert node.kubectl("-n", rig_node_namespace, "logs", "web").startswith("listening")


def test_commands_run_in_pods_and_their_exit_code_counts(node: RigCluster, rig_node_namespace: str) -> None:
    node.api.apply(pod("web"), namespace=rig_node_namespace)
    node.wait_for_pod(rig_node_namespace, "web")
    code = "import os, sys; print(os.getuid(), sys.stdin.read())"
    command = ["-n", rig_node_namespace, "exec", "-i", "web", "--", "python", "-c", code]
    assert node.kubectl(*command, stdin="hello") == "65532 hello\n"


def test_services_and_their_names_lead_to_pods(node: RigCluster, rig_node_namespace: str) -> None:
    for manifest in (pod("web"), service("web"), service("headless", clusterIP="None", selector={"app": "web"})):
        node.api.apply(manifest, namespace=rig_node_namespace)
    address = node.wait_for_pod(rig_node_namespace, "web")["status"]["podIP"]
    names = ["web", f"web.{rig_node_namespace}.svc.cluster.local", "headless"]
    code = f"""
import socket, time, urllib.request
def until(question):
    for _ in range(100):
        try:
            return question()
        except OSError:
            time.sleep(0.1)
    return question()
def fetch(name):
    port = ":8080" if name == "headless" else ""
    return urllib.request.urlopen("http://" + name + port, timeout=1).read()
print([until(lambda: fetch(name)) for name in {names!r}])
print(sorted(address[4][0] for address in socket.getaddrinfo("headless", 80, socket.AF_INET, socket.SOCK_STREAM)))
try:
    socket.getaddrinfo("example.com", 80)
except socket.gaierror as error:
    print("unknown" if error.errno == socket.EAI_NONAME else error)
"""
    node.api.apply(pod("client", code=code, restartPolicy="Never"), namespace=rig_node_namespace)
    outcome = ended(node, rig_node_namespace, "client")
    said = node.kubectl("-n", rig_node_namespace, "logs", "client")
    assert outcome["exitCode"] == 0, said
    assert said.splitlines() == ["[b'web', b'web', b'web']", f"['{address}']", "unknown"]


def test_the_machine_reaches_services(node: RigCluster, rig_node_namespace: str) -> None:
    for manifest in (pod("web"), service("web", type="NodePort")):
        node.api.apply(manifest, namespace=rig_node_namespace)
    node.wait_for_pod(rig_node_namespace, "web")
    served = node.api.get(f"/api/v1/namespaces/{rig_node_namespace}/services/web")["spec"]
    nodes = node.api.items("/api/v1/nodes")
    (address,) = [entry["address"] for entry in nodes[0]["status"]["addresses"] if entry["type"] == "InternalIP"]
    for url in (f"http://{served['clusterIP']}/", f"http://{address}:{served['ports'][0]['nodePort']}/"):
        assert wait_for(f"an answer at {url}", lambda url=url: fetched(url), seconds=15) == "web"  # type: ignore[misc]


def test_a_container_over_its_memory_limit_is_killed(node: RigCluster, rig_node_namespace: str) -> None:
    greedy = pod(
        "greedy",
        code="x = bytearray(200 << 20)",
        restartPolicy="Never",
        container={"resources": {"limits": {"memory": "48Mi"}}},
    )
    node.api.apply(greedy, namespace=rig_node_namespace)
    outcome = ended(node, rig_node_namespace, "greedy")
    assert (outcome["reason"], outcome["exitCode"]) == ("OOMKilled", 137)


def test_the_kubelet_syncs_as_rarely_as_in_production(node: RigCluster) -> None:
    (name,) = [item["metadata"]["name"] for item in node.api.items("/api/v1/nodes")]
    config = node.api.get(f"/api/v1/nodes/{name}/proxy/configz")["kubeletconfig"]
    assert config["syncFrequency"] == "1m0s"


def test_an_image_that_is_nowhere_is_reported_and_not_waited_for(node: RigCluster, rig_node_namespace: str) -> None:
    manifest = pod("missing", container={"image": "localhost/not-there:1"})
    node.api.apply(manifest, namespace=rig_node_namespace)

    def reason() -> str | None:
        found = node.api.get(f"/api/v1/namespaces/{rig_node_namespace}/pods/missing")
        for container in found.get("status", {}).get("containerStatuses", []):
            waiting = container["state"].get("waiting", {})
            if waiting.get("reason") == "ErrImageNeverPull":
                return str(waiting["message"])
        return None

    assert "localhost/not-there:1" in wait_for("the reason", reason, seconds=30)


def policy(name: str, target: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": target}}, **spec},
    }


def connects(cluster: RigCluster, namespace: str, client: str, address: str, port: int) -> bool:
    code = f"""
import socket
try:
    socket.create_connection(({address!r}, {port}), timeout=1).close()
    print("open")
except OSError:
    print("closed")
"""
    return cluster.kubectl("-n", namespace, "exec", client, "--", "python", "-c", code) == "open\n"


@pytest.fixture
def enforced(node: RigCluster) -> RigCluster:
    if not node.enforces_network_policies:
        reason = "UNTESTED: NetworkPolicies are not enforced here"
        (pytest.fail if os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1" else pytest.skip)(reason)
    return node


def test_a_policy_admits_the_clients_it_names_and_no_others(enforced: RigCluster, rig_node_namespace: str) -> None:
    namespace, cluster = rig_node_namespace, enforced
    for manifest in (pod("web"), pod("friend"), pod("stranger"), service("web")):
        cluster.api.apply(manifest, namespace=namespace)
    address = cluster.wait_for_pod(namespace, "web")["status"]["podIP"]
    served = cluster.api.get(f"/api/v1/namespaces/{namespace}/services/web")["spec"]["clusterIP"]
    for client in ("friend", "stranger"):
        cluster.wait_for_pod(namespace, client)
        for where, port in ((address, 8080), (served, 80)):
            wait_for(
                f"{client} to reach {where}",
                functools.partial(connects, cluster, namespace, client, where, port),
                seconds=20,
            )

    admit = [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": 8080}]}]
    cluster.api.apply(policy("web", "web", ingress=admit), namespace=namespace)

    wait_for("the policy to hold", lambda: not connects(cluster, namespace, "stranger", address, 8080), seconds=20)
    assert not connects(cluster, namespace, "stranger", served, 80)
    assert fetched(f"http://{address}:8080/") is None, "the machine is a stranger too"
    assert connects(cluster, namespace, "friend", address, 8080)
    assert connects(cluster, namespace, "friend", served, 80)

    cluster.api.delete(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/web")
    wait_for("the policy to go", lambda: connects(cluster, namespace, "stranger", address, 8080), seconds=20)


def test_a_policy_keeps_a_pod_from_calling_out(enforced: RigCluster, rig_node_namespace: str) -> None:
    namespace, cluster = rig_node_namespace, enforced
    for manifest in (pod("web"), pod("caged")):
        cluster.api.apply(manifest, namespace=namespace)
    address = cluster.wait_for_pod(namespace, "web")["status"]["podIP"]
    cluster.wait_for_pod(namespace, "caged")
    wait_for("a connection", lambda: connects(cluster, namespace, "caged", address, 8080), seconds=20)
    # Names resolve, and nothing else: the rule that profiles of MCP servers are made of.
    dns = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"port": 53, "protocol": "UDP"}],
    }
    cluster.api.apply(policy("caged", "caged", policyTypes=["Egress"], egress=[dns]), namespace=namespace)

    wait_for("the policy to hold", lambda: not connects(cluster, namespace, "caged", address, 8080), seconds=20)
    code = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    resolved = cluster.kubectl("-n", namespace, "exec", "caged", "--", "python", "-c", code)
    api = cluster.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    assert resolved == f"{api}\n"
    assert not connects(cluster, namespace, "caged", api, 443), "the API server is outside of the cage"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets of a node have no room for the long name that a test's own directory has."""
    with tempfile.TemporaryDirectory(prefix="rig-") as directory:
        yield Path(directory)


@pytest.mark.skipif(bool(os.environ.get("RIG_KUBECONFIG")), reason="starts a cluster of its own")
def test_nothing_is_left_when_the_owner_is_killed(node: RigCluster, short_path: Path) -> None:
    state = State(root=short_path / "rig")
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    subprocess.run(
        [sys.executable, "-m", "rig", "up", "--node", "--owner", str(owner.pid)],
        env={**os.environ, "RIG_STATE": str(state.root)},
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    settings = state.settings()
    assert settings is not None
    table = ProcessTable(run=state.run, logs=state.logs)
    pids = {pid: start_ticks(pid) for name in table.names() if (pid := table.pid(name))}
    pids |= {pid: start_ticks(pid) for pid in [*processes_in(settings), *remains.processes_in_cgroups(settings)]}
    assert len(pids) > len(table.names()), "shims and pods are processes too"
    assert remains.mounts_below([state.root, settings.sockets])

    owner.send_signal(signal.SIGKILL)
    owner.wait()

    def all_gone() -> bool:
        # The last one is the guard itself.
        return not any(started and start_ticks(pid) == started for pid, started in pids.items())

    wait_for("every process to end", all_gone, seconds=30)
    assert not state.root.exists()
    assert not remains.mounts_below([state.root, settings.sockets])
    assert not (NAMESPACES / settings.netns).exists()
    assert not Path(f"/sys/class/net/{settings.link}").exists()
    assert not settings.sockets.exists()
    for hierarchy in cgroup_hierarchies():
        assert not remains.cgroup_directory(hierarchy, settings).exists()
    # The other rig on this machine was not disturbed.
    (one,) = node.api.items("/api/v1/nodes")
    assert condition_of(one, "Ready") == "True"
    assert json.loads(node.kubectl("get", "nodes", "-o", "json"))["items"]
