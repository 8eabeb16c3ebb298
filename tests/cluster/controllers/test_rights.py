"""What the operator may do is what it does: everything that it has a right to is seen in the audit log, and no more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fairway.api import names, proxystatus
from fairway.api.proxystatus import Config, ConfigState, ProxyStatus, Route
from fairway.controllers import access
from tests.cluster.controllers.conftest import SERVERS, Operator, mcp_server, played, until
from tests.cluster.controllers.test_operator import TOOLS, deployment, made, ready_reason, server, settled, status_of
from tests.faultproxy import Answer, FaultProxy, Requests, Rule

DELEGATED = {
    # nobody can grant what they do not have: these are what proxies may do
    ("discovery.k8s.io", "endpointslices", "get"),
    ("discovery.k8s.io", "endpointslices", "watch"),
    ("", "pods", "get"),
    ("", "pods/attach", "create"),
    ("", "pods/attach", "get"),
    # where the admission of owner references is on, it asks for this; no request shows it
    ("fairway.dev", "mcpservers/finalizers", "update"),
}
EVERYTHING = {
    **TOOLS,
    "replicas": 2,
    "proxy": {"replicas": 2},
    "config": {"LEVEL": "debug"},
    "envFrom": [{"secretRef": {"name": "keys"}}],
    "permissionProfile": {"type": "configMap", "name": "profile", "key": "profile.json"},
    "toolConfigRef": {"name": "few"},
    "autoscaling": {"minReplicas": 2, "maxReplicas": 3},
    "ingress": {"enabled": True},
    "gatewayRoute": {"enabled": True, "parentRefs": [{"name": "gw"}]},
}


def granted():
    return {
        (group, resource, verb)
        for rule in (*access.cluster_rules(), *access.leader_rules())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(operator):
    """Group, resource and verb of all that was asked for and allowed. What an apply makes, it creates."""
    found = set()
    for event in (*operator.requests(), *operator.requests(stage="ResponseStarted")):
        asked, code = event.get("objectRef"), event.get("responseStatus", {}).get("code")
        if asked is not None and code not in (401, 403):
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            verbs = {event["verb"]} | ({"create"} if code == 201 else set())
            found |= {(asked.get("apiGroup", ""), resource, verb) for verb in verbs}
    return found


def ready_status(rig, namespace, name):
    conditions = status_of(rig, namespace, name).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == "Ready"), None)


def nudged(rig, namespace):
    pods = rig.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return any(names.ANNOTATION_RUNCONFIG_HASH in (p["metadata"].get("annotations") or {}) for p in pods)


@contextmanager
def outdated_proxy(namespace) -> Iterator[str]:
    """An admin port that tells of a RunConfig older than any; its address."""
    route = Route(name=f"{namespace}/hello", hash="old", ready=True)
    config = Config(state=ConfigState.OK)
    answer = proxystatus.encode(ProxyStatus(version=1, proxy_version="0", config=config, routes=(route,)))

    class Told(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    address = "127.78.0.1"
    with ThreadingHTTPServer((address, names.ADMIN_PORT), Told) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield address
        listening.shutdown()


def lists_are_all_it_gets(operator, tmp_path, request):
    """One more operator, in front of which an API server cannot stream what there is, and has to be asked for lists."""
    with FaultProxy.start(operator.kubeconfig, Rule(Requests(initial_events=True), Answer(422, "Invalid"))) as proxy:
        (tmp_path / "operator.yaml").touch()
        other = Operator(operator.rig, proxy.kubeconfig, tmp_path / "log", tmp_path / "operator.yaml")
        request.addfinalizer(other.kill)
        other.start()
        until("the lists", lambda: other.log.exists() and "caches are filled" in other.log.read_text(), seconds=60)
        other.stop()


def test_every_right_is_used_and_none_is_a_wildcard(operator, rig_api, rig_namespace, tmp_path, request):
    held = (
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"TOKEN": "x"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "profile"}, "data": {"profile.json": "{}"}},
        {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": {"name": "few"}, "spec": {}},
    )
    for obj in held:
        rig_api.api.apply(obj, namespace=rig_namespace)
    source = tmp_path / "tools.py"
    source.write_text(TOOLS["inlineTools"]["python"])
    with mcp_server(source) as port, outdated_proxy(rig_namespace) as proxy:
        rig_api.api.apply(server("bare", **TOOLS, port=port, proxy={"mode": "none"}), namespace=rig_namespace)
        made(rig_api, rig_namespace, **EVERYTHING)
        rig_api.api.apply(server("lines", image="w:1", transport="stdio"), namespace=rig_namespace)
        until("the other", lambda: ready_reason(rig_api, rig_namespace, "lines") == "Unschedulable", seconds=60)
        for ready in (True, False, True, False):  # news, and then the same again
            played(rig_api, rig_namespace, "bare", component="server", address="127.0.0.1", ready=ready)
            wanted = "True" if ready else "False"
            until(wanted, lambda wanted=wanted: ready_status(rig_api, rig_namespace, "bare") == wanted, seconds=30)
        played(rig_api, rig_namespace, "hello", component="proxy", address=proxy)
        until("the nudge", lambda: nudged(rig_api, rig_namespace), seconds=30)
        # as long as it serves anybody, it stays until the server itself does
        played(rig_api, rig_namespace, "hello", component="proxy", address=proxy, ready=False)
    lists_are_all_it_gets(operator, tmp_path, request)
    # and then all of it goes again
    rig_api.api.apply(server(**TOOLS, proxy={"mode": "none"}), namespace=rig_namespace)
    rig_api.api.merge(
        f"{SERVERS.format(rig_namespace)}/hello", {"spec": dict.fromkeys(EVERYTHING.keys() - {"inlineTools", "proxy"})}
    )
    rig_api.api.merge(f"{SERVERS.format(rig_namespace)}/lines", {"spec": {"transport": "streamable-http"}})
    until("no proxy", lambda: rig_api.api.find(deployment(rig_namespace, "hello-proxy")) is None)
    until("another workload", lambda: rig_api.api.find(deployment(rig_namespace, "lines")))
    settled(operator, rig_namespace)
    until("the same news again", lambda: ("events.k8s.io", "events", "patch") in used(operator))

    may, did = granted(), used(operator)
    assert not [right for right in may if "*" in right]
    assert may >= DELEGATED
    assert did & may == may - DELEGATED, f"never used: {sorted(may - DELEGATED - did)}"
    print(f"{len(may)} rights, {len(DELEGATED)} of them delegated, all others used")
