import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.mcpserver import workload
from fairway.controllers.mcpserver.desired import desired
from tests.unit.controllers.mcpserver.samples import SETTINGS, inputs, server


def pod(**spec):
    objects = desired(inputs(server(image="w", **spec)), SETTINGS)
    (workload,) = [o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "hello"]
    return workload["spec"]["template"]["spec"]


def container(**spec):
    return pod(**spec)["containers"][0]


def test_config_is_files_and_variables_and_one_document():
    objects = desired(inputs(server(image="w", config={"LEVEL": "a", "app.toml": "x = 1"})), SETTINGS)
    (config,) = [o for o in objects if o["metadata"]["name"] == "hello-config"]
    assert config["data"]["LEVEL"] == "a"
    assert config["data"]["app.toml"] == "x = 1"
    assert json.loads(config["data"]["config.json"]) == {
        "server": {"name": "hello", "transport": "streamable-http", "port": 8080},
        "config": {"LEVEL": "a", "app.toml": "x = 1"},
    }
    env = {v["name"]: v for v in container(config={"LEVEL": "a", "app.toml": "x"})["env"]}
    assert env["LEVEL"]["valueFrom"] == {"configMapKeyRef": {"name": "hello-config", "key": "LEVEL"}}
    assert env["MCP_CONFIG_FILE"]["value"] == "/etc/mcp/config.json"
    assert "app.toml" not in env


def test_an_explicit_variable_goes_before_config_and_config_before_our_defaults():
    env = {
        v["name"]: v for v in container(config={"A": "1", "MCP_HOST": "::"}, env=[{"name": "A", "value": "2"}])["env"]
    }
    assert env["A"] == {"name": "A", "value": "2"}
    assert "valueFrom" in env["MCP_HOST"]


def test_a_limit_below_our_default_request_is_no_contradiction():
    assert container(resources={"limits": {"memory": "16Mi"}})["resources"] == {
        "requests": {"cpu": "20m"},
        "limits": {"memory": "16Mi"},
    }
    assert container(resources={"requests": {"cpu": "2"}})["resources"] == {"requests": {"cpu": "2", "memory": "64Mi"}}


def test_a_probe_asks_the_servers_port_unless_it_says_otherwise():
    probes = {"liveness": {"httpGet": {"path": "/h"}}, "startup": {}, "readiness": {"tcpSocket": {"port": 9}}}
    made = container(probes=probes)
    assert made["livenessProbe"] == {"httpGet": {"path": "/h", "port": "mcp", "scheme": "HTTP"}}
    assert made["startupProbe"] == {"tcpSocket": {"port": "mcp"}}
    assert made["readinessProbe"] == {"tcpSocket": {"port": 9}}
    assert container(probes={"readiness": {"exec": {"command": ["true"]}}})["readinessProbe"] == {
        "exec": {"command": ["true"]}
    }
    assert "livenessProbe" not in container()


def test_root_is_told_to_the_node_so_that_it_does_not_refuse_what_the_user_wants():
    assert container(securityContext={"runAsUser": 0})["securityContext"]["runAsNonRoot"] is False


def test_a_capability_is_added_to_none():
    made = container(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}})
    assert made["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


def test_a_privileged_container_may_escalate_or_the_api_server_would_refuse_it():
    assert container(securityContext={"privileged": True})["securityContext"]["allowPrivilegeEscalation"] is True


def test_a_volume_called_tmp_or_a_mount_there_takes_the_place_of_ours():
    own = pod(volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}])
    assert own["volumes"] == [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    mounted = pod(volumes=[{"name": "d", "emptyDir": {}}], volumeMounts=[{"name": "d", "mountPath": "/tmp/"}])
    assert [m["name"] for m in mounted["containers"][0]["volumeMounts"]] == ["d"]


def test_a_named_account_is_not_made_and_decides_on_its_token_itself():
    spec = {"image": "w", "serviceAccountName": "reader"}
    objects = desired(inputs(server(**spec)), SETTINGS)
    assert ("ServiceAccount", "hello") not in {(o["kind"], o["metadata"]["name"]) for o in objects}
    assert "automountServiceAccountToken" not in pod(serviceAccountName="reader")


def test_where_the_platform_chooses_the_user_none_is_named():

    chosen = replace(SETTINGS, run_as_user=None)
    objects = desired(inputs(server(image="w")), chosen)
    for made in objects:
        if made["kind"] == "Deployment":
            context = made["spec"]["template"]["spec"]["securityContext"]
            assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_suspending_stops_every_pod_and_keeps_every_object():
    running, stopped = (desired(inputs(server(image="w", suspend=s)), SETTINGS) for s in (False, True))
    assert [o["metadata"]["name"] for o in running] == [o["metadata"]["name"] for o in stopped]
    assert {o["spec"]["replicas"] for o in stopped if o["kind"] == "Deployment"} == {0}


def test_the_restart_annotation_replaces_the_servers_pods_and_not_the_proxys():
    obj = server(image="w")
    obj["metadata"]["annotations"] = {"fairway.dev/restarted-at": "now"}
    changed = [
        a["metadata"]["name"]
        for a, b in zip(desired(inputs(obj), SETTINGS), desired(inputs(server(image="w")), SETTINGS), strict=True)
        if a != b
    ]
    assert changed == ["hello"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"volumes": [{"name": "v"}]}, "volume: set exactly one of emptyDir"),
        ({"volumes": [{"name": "tools", "emptyDir": {}}]}, "belong to Fairway"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}, "given twice"),
        ({"volumeMounts": [{"name": "v", "mountPath": "data"}]}, "mountPath"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/d", "subPath": "../x"}]}, "subPath"),
        ({"envFrom": [{}]}, "envFrom: set exactly one of"),
        ({"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}, "runAsUser 0 is root"),
        ({"securityContext": {"seccompProfile": {"type": "Localhost"}}}, "localhostProfile"),
        ({"probes": {"liveness": {"successThreshold": 2}}}, "successThreshold"),
        ({"probes": {"liveness": {"httpGet": {}, "tcpSocket": {}}}}, "at most one of"),
        ({"config": {"../x": "1"}}, "config"),
        ({"resources": {"limits": {"memory": "1 GB"}}}, "not a quantity"),
        ({"path": "mcp"}, "path"),
        ({"imagePullSecrets": ["a", "a"]}, "given twice"),
    ],
)
def test_a_wrong_value_is_refused_by_name(spec, said):
    with pytest.raises(ValidationError, match=said):
        MCPServerSpec.model_validate({"image": "w", **spec})


def test_a_server_that_is_to_end_still_serves_until_everybody_knows():
    def hook(**spec):
        (made,) = workload.objects(inputs(server(image="w", **spec)), SETTINGS)
        return made["spec"]["template"]["spec"]["containers"][0].get("lifecycle")

    def with_grace(seconds):
        return {"podTemplate": {"spec": {"terminationGracePeriodSeconds": seconds}}}

    assert hook() == {"preStop": {"sleep": {"seconds": 6}}}
    assert hook(transport="stdio") is None
    assert hook(**with_grace(3)) == {"preStop": {"sleep": {"seconds": 3}}}
    assert hook(**with_grace(0)) is None
    own = {"lifecycle": {"preStop": {"exec": {"command": ["drain"]}}}}
    template = {"podTemplate": {"spec": {"containers": [{"name": "server", **own}]}}}
    assert hook(**template) == own["lifecycle"]


def test_a_server_beside_its_sidecar_may_listen_on_loopback_alone():
    assert "readinessProbe" not in container(proxy={"mode": "sidecar"})
    own = {"readiness": {"httpGet": {"path": "/up"}}}
    assert container(proxy={"mode": "sidecar"}, probes=own)["readinessProbe"]["httpGet"]["path"] == "/up"
