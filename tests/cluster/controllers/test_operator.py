"""The operator against a real API server: objects, ownership, repair, and no write without need."""

import time

import pytest

from tests.cluster.controllers.conftest import SERVERS, until

TOOLS = {"inlineTools": {"python": "def add(a: int, b: int) -> int:\n    return a + b\n"}}


def server(name="hello", **spec):
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": name},
        "spec": spec or TOOLS,
    }


def status_of(rig, namespace, name="hello"):
    return rig.api.get(f"{SERVERS.format(namespace)}/{name}").get("status") or {}


def ready_reason(rig, namespace, name="hello"):
    conditions = status_of(rig, namespace, name).get("conditions") or ()
    return next((c["reason"] for c in conditions if c["type"] == "Ready"), None)


def core(namespace, plural, name):
    return f"/api/v1/namespaces/{namespace}/{plural}/{name}"


def deployment(namespace, name):
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


def made(rig, namespace, **spec):
    """A server that the operator has made all objects of, and whose pods (there is no node) will never run."""
    rig.api.apply(server(**spec), namespace=namespace)
    until("Unschedulable", lambda: ready_reason(rig, namespace) == "Unschedulable", seconds=60)


def settled(operator, namespace):
    """Until the operator has had nothing to write for a second."""
    count = -1
    while count != len(operator.writes(namespace)):
        count = len(operator.writes(namespace))
        time.sleep(1)


def test_every_object_is_made_owned_and_described(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    uid = rig_api.api.get(f"{SERVERS.format(rig_namespace)}/hello")["metadata"]["uid"]
    for path in (
        core(rig_namespace, "services", "hello"),
        core(rig_namespace, "services", "hello-endpoints"),
        core(rig_namespace, "configmaps", "hello-runconfig"),
        core(rig_namespace, "configmaps", "hello-tools"),
        core(rig_namespace, "serviceaccounts", "hello"),
        core(rig_namespace, "serviceaccounts", "hello-proxy"),
        deployment(rig_namespace, "hello"),
        deployment(rig_namespace, "hello-proxy"),
        f"/apis/networking.k8s.io/v1/namespaces/{rig_namespace}/networkpolicies/hello",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{rig_namespace}/roles/hello-proxy",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{rig_namespace}/rolebindings/hello-proxy",
    ):
        (owner,) = rig_api.api.get(path)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("MCPServer", uid, True)


def test_one_server_costs_one_write_an_object_and_at_most_three_of_status(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    settled(operator, rig_namespace)
    writes = operator.writes(rig_namespace)
    objects = [w for w in writes if not w.endswith("/status")]
    assert len(objects) == 13, objects
    assert len(set(objects)) == 13, objects
    assert len(writes) - len(objects) <= 3, writes


def test_a_foreign_object_of_the_same_name_is_named_and_left_untouched(operator, rig_api, rig_namespace):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hello"},
        "spec": {"ports": [{"port": 1, "targetPort": 1, "protocol": "TCP"}]},
    }
    before = rig_api.api.apply(foreign, namespace=rig_namespace)
    rig_api.api.apply(server(), namespace=rig_namespace)
    until("NameTaken", lambda: ready_reason(rig_api, rig_namespace) == "NameTaken")
    assert "Service/hello" in status_of(rig_api, rig_namespace)["message"]
    assert rig_api.api.get(core(rig_namespace, "services", "hello")) == before
    assert rig_api.api.find(deployment(rig_namespace, "hello"))
    rig_api.api.delete(core(rig_namespace, "services", "hello"))
    until("the name to be free", lambda: ready_reason(rig_api, rig_namespace) == "Unschedulable", seconds=20)


def test_a_foreign_object_that_wears_our_labels_is_left_untouched_too(operator, rig_api, rig_namespace):
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hello-runconfig", "labels": {"app.kubernetes.io/managed-by": "fairway"}},
        "data": {"mine": "yes"},
    }
    before = rig_api.api.apply(foreign, namespace=rig_namespace)
    rig_api.api.apply(server(), namespace=rig_namespace)
    until("NameTaken", lambda: ready_reason(rig_api, rig_namespace) == "NameTaken")
    assert rig_api.api.get(core(rig_namespace, "configmaps", "hello-runconfig")) == before


def test_what_somebody_changes_or_deletes_by_hand_is_put_right(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    rig_api.api.delete(core(rig_namespace, "services", "hello"))
    rig_api.api.merge(core(rig_namespace, "configmaps", "hello-tools"), {"data": {"tools.py": "evil"}})
    rig_api.api.merge(deployment(rig_namespace, "hello"), {"spec": {"replicas": 7}})
    until("the Service", lambda: rig_api.api.find(core(rig_namespace, "services", "hello")))
    until(
        "the source",
        lambda: "add" in rig_api.api.get(core(rig_namespace, "configmaps", "hello-tools"))["data"]["tools.py"],
    )
    until("the replicas", lambda: rig_api.api.get(deployment(rig_namespace, "hello"))["spec"]["replicas"] == 1)


@pytest.mark.parametrize(
    ("plural", "spec"), [("deployments", TOOLS), ("statefulsets", {"image": "w:1", "transport": "stdio"})]
)
def test_a_workload_that_somebody_deletes_is_made_anew(operator, rig_api, rig_namespace, plural, spec):
    made(rig_api, rig_namespace, **spec)
    path = f"/apis/apps/v1/namespaces/{rig_namespace}/{plural}/hello"
    before = rig_api.api.get(path)["metadata"]["uid"]
    rig_api.api.delete(path)
    until("another one", lambda: (rig_api.api.find(path) or {"metadata": {"uid": before}})["metadata"]["uid"] != before)


def test_replicas_follow_kubectl_scale(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    rig_api.api.merge(f"{SERVERS.format(rig_namespace)}/hello/scale", {"spec": {"replicas": 3}})
    until("3 replicas", lambda: rig_api.api.get(deployment(rig_namespace, "hello"))["spec"]["replicas"] == 3)


def test_taking_the_proxy_away_prunes_what_belonged_to_it(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    rig_api.api.merge(f"{SERVERS.format(rig_namespace)}/hello", {"spec": {"proxy": {"mode": "none"}}})
    until("no proxy", lambda: not rig_api.api.find(deployment(rig_namespace, "hello-proxy")))
    until("no RunConfig", lambda: not rig_api.api.find(core(rig_namespace, "configmaps", "hello-runconfig")))
    assert rig_api.api.find(core(rig_namespace, "configmaps", "hello-tools"))
    selector = rig_api.api.get(core(rig_namespace, "services", "hello"))["spec"]["selector"]
    assert selector["fairway.dev/component"] == "server"


def test_deleting_the_server_takes_everything_with_it(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    rig_api.api.delete(f"{SERVERS.format(rig_namespace)}/hello")
    until("no Deployment", lambda: not rig_api.api.find(deployment(rig_namespace, "hello")), seconds=30)
    until("no Service", lambda: not rig_api.api.find(core(rig_namespace, "services", "hello")), seconds=30)


def test_a_syntax_error_is_a_condition_with_its_line(operator, rig_api, rig_namespace):
    rig_api.api.apply(server(inlineTools={"python": "x = 1\ndef (:\n"}), namespace=rig_namespace)
    until("InlineToolsInvalid", lambda: ready_reason(rig_api, rig_namespace) == "InlineToolsInvalid")
    assert "line 2" in status_of(rig_api, rig_namespace)["message"]
    assert rig_api.api.find(deployment(rig_namespace, "hello")) is None


def test_a_tool_config_that_comes_later_is_noticed_and_so_is_its_change(operator, rig_api, rig_namespace):
    rig_api.api.apply(server(**TOOLS, toolConfigRef={"name": "few"}), namespace=rig_namespace)
    until("ToolConfigNotFound", lambda: ready_reason(rig_api, rig_namespace) == "ToolConfigNotFound")
    config = {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": {"name": "few"}}
    path = core(rig_namespace, "configmaps", "hello-runconfig")
    for chosen in ("add", "subtract"):
        rig_api.api.apply({**config, "spec": {"filter": [chosen]}}, namespace=rig_namespace)
        until(
            chosen,
            lambda wanted=chosen: (
                wanted in (rig_api.api.find(path) or {"data": {"runconfig.json": ""}})["data"]["runconfig.json"]
            ),
        )
    users = until(
        "users",
        lambda: (
            rig_api.api.get(f"/apis/fairway.dev/v1alpha1/namespaces/{rig_namespace}/mcptoolconfigs/few").get("status")
            or {}
        ).get("users"),
    )
    assert users == ["hello"]


def test_a_secret_is_waited_for_and_its_rotation_replaces_the_pods(operator, rig_api, rig_namespace):
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}
    rig_api.api.apply(server(**TOOLS, env=[variable]), namespace=rig_namespace)
    until("SecretMissing", lambda: ready_reason(rig_api, rig_namespace) == "SecretMissing")
    assert "key token of Secret keys" in status_of(rig_api, rig_namespace)["message"]
    assert status_of(rig_api, rig_namespace)["phase"] == "Waiting"

    def digest():
        found = rig_api.api.find(deployment(rig_namespace, "hello"))
        return found and found["spec"]["template"]["metadata"]["annotations"]["fairway.dev/inputs-digest"]

    assert digest() is None
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"token": "hunter2"}}
    rig_api.api.apply(secret, namespace=rig_namespace)
    first = until("the Deployment", digest)
    rig_api.api.merge(core(rig_namespace, "secrets", "keys"), {"stringData": {"token": "hunter3"}})
    until("new pods", lambda: digest() != first)
    second = digest()
    rig_api.api.merge(core(rig_namespace, "secrets", "keys"), {"stringData": {"unused": "x"}})
    settled(operator, rig_namespace)
    assert digest() == second
    assert "hunter" not in operator.log.read_text()


def test_suspending_and_resuming_costs_two_writes_and_one_of_status_each(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    settled(operator, rig_namespace)
    before = len(operator.writes(rig_namespace))
    rig_api.api.merge(f"{SERVERS.format(rig_namespace)}/hello", {"spec": {"suspend": True}})
    until("Suspended", lambda: status_of(rig_api, rig_namespace).get("phase") == "Suspended")
    settled(operator, rig_namespace)
    written = operator.writes(rig_namespace)[before:]
    assert sorted(w for w in written if not w.endswith("/status")) == [
        "patch deployments/hello",
        "patch deployments/hello-proxy",
    ]
    assert rig_api.api.get(deployment(rig_namespace, "hello"))["spec"]["replicas"] == 0


def test_autoscaling_takes_over_the_replicas_that_there_are(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace, **TOOLS, replicas=5)
    path = f"{SERVERS.format(rig_namespace)}/hello"
    rig_api.api.merge(path, {"spec": {"autoscaling": {"maxReplicas": 10}}})
    scaler = f"/apis/autoscaling/v2/namespaces/{rig_namespace}/horizontalpodautoscalers/hello"
    until("the autoscaler", lambda: rig_api.api.find(scaler))
    settled(operator, rig_namespace)
    found = rig_api.api.get(deployment(rig_namespace, "hello"))
    assert found["spec"]["replicas"] == 5
    # from now on somebody else's number stands
    rig_api.api.merge(f"{deployment(rig_namespace, 'hello')}/scale", {"spec": {"replicas": 7}})
    until("7 wanted", lambda: status_of(rig_api, rig_namespace).get("ready") == "0/7")
    settled(operator, rig_namespace)
    assert rig_api.api.get(deployment(rig_namespace, "hello"))["spec"]["replicas"] == 7
    rig_api.api.merge(path, {"spec": {"autoscaling": None}})
    until("its own again", lambda: rig_api.api.get(deployment(rig_namespace, "hello"))["spec"]["replicas"] == 5)
    until("no autoscaler", lambda: rig_api.api.find(scaler) is None)


def test_what_an_ingress_controller_publishes_is_told(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace, **TOOLS, ingress={"enabled": True, "host": "a.example.com"})
    path = f"/apis/networking.k8s.io/v1/namespaces/{rig_namespace}/ingresses/hello"
    assert rig_api.api.get(path)["spec"]["rules"][0]["host"] == "a.example.com"

    def condition():
        found = status_of(rig_api, rig_namespace).get("conditions") or ()
        return next(((c["status"], c["reason"]) for c in found if c["type"] == "IngressReady"), None)

    assert condition() == ("False", "IngressNotPublished")
    rig_api.api.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}})
    until("published", lambda: condition() == ("True", "Applied"))
    assert status_of(rig_api, rig_namespace)["externalURLs"] == ["http://a.example.com/mcp"]


def test_a_restart_on_a_converged_state_writes_nothing_and_so_does_idling(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    settled(operator, rig_namespace)
    before = operator.writes(rig_namespace)
    operator.stop()
    operator.start()
    until("the restart", lambda: operator.log.read_text().count("caches are filled") == operator.starts)
    time.sleep(5)
    assert operator.writes(rig_namespace) == before


def test_nothing_that_the_operator_asks_for_is_forbidden_to_it(operator, rig_api, rig_namespace):
    made(rig_api, rig_namespace)
    refused = [
        f"{e['verb']} {e['requestURI']}: {e['responseStatus'].get('message')}"
        for e in operator.requests()
        if e.get("responseStatus", {}).get("code") in (401, 403)
        and "is being terminated" not in e["responseStatus"].get("message", "")
    ]
    assert refused == []
