"""The CRDs as a real API server understands them, and in agreement with our own reading of a manifest."""

import json

import pytest
from pydantic import ValidationError

from fairway.api.mcpserver import MCPServer
from fairway.api.mcptoolconfig import MCPToolConfig
from rig.api import ApiError

SERVERS = "/apis/fairway.dev/v1alpha1/namespaces/{}/mcpservers"
CONFIGS = "/apis/fairway.dev/v1alpha1/namespaces/{}/mcptoolconfigs"
CODE = {"python": "def a(): ..."}


def server(name="hello", **spec):
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}


def config(**spec):
    metadata = {"name": "few"}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": metadata, "spec": spec}


def accepted(rig, namespace, obj):
    """What the API server would store, or None if it refuses the object as invalid."""
    path = (SERVERS if obj["kind"] == "MCPServer" else CONFIGS).format(namespace)
    try:
        return rig.api.post(path + "?dryRun=All&fieldValidation=Strict", obj)
    except ApiError as error:
        assert error.status in (400, 422), error
        return None


SERVER_CASES = {
    "an image": server(image="a"),
    "inline tools": server(inlineTools=CODE),
    "both sources": server(image="a", inlineTools=CODE),
    "no source": server(port=1),
    "empty image": server(image=""),
    "white space in image": server(image="a b"),
    "port 0": server(image="a", port=0),
    "port 65535": server(image="a", port=65535),
    "port 65536": server(image="a", port=65536),
    "negative replicas": server(image="a", replicas=-1),
    "zero replicas": server(image="a", replicas=0),
    "unknown transport": server(image="a", transport="carrier-pigeon"),
    "unknown proxy mode": server(image="a", proxy={"mode": "sidecar"}),
    "filter without proxy": server(image="a", proxy={"mode": "none"}, toolConfigRef={"name": "x"}),
    "filter with proxy": server(image="a", proxy={"mode": "standalone"}, toolConfigRef={"name": "x"}),
    "bad reference": server(image="a", toolConfigRef={"name": "X_"}),
    "env": server(image="a", env=[{"name": "A", "value": "b"}, {"name": "B"}]),
    "env twice": server(image="a", env=[{"name": "A"}, {"name": "A"}]),
    "env with equals sign": server(image="a", env=[{"name": "A=B"}]),
    "env name beyond ASCII": server(image="a", env=[{"name": "ä"}]),
    "env name with a space": server(image="a", env=[{"name": "a b"}]),
    "env value of many lines": server(image="a", env=[{"name": "A", "value": "b\nc\tä"}]),
    "env value with a null byte": server(image="a", env=[{"name": "A", "value": "b\0c"}]),
    "env from secret": server(image="a", env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
    "env from nowhere": server(image="a", env=[{"name": "A", "valueFrom": {}}]),
    "env from both": server(
        image="a",
        env=[{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    ),
    "unknown field": server(image="a", toolsConfigRef={"name": "x"}),
    "longest name": server(name="a" * 52, image="a"),
    "name too long": server(name="a" * 53, image="a"),
    "name with dot": server(name="a.b", image="a"),
    "name with digit first": server(name="1a", image="a"),
    "huge source": server(inlineTools={"python": "#" * 262145}),
    "no spec": {k: v for k, v in server(image="a").items() if k != "spec"},
    "null spec": {**server(), "spec": None},
    "text for a number": server(image="a", replicas="two"),
}
CONFIG_CASES = {
    "nothing": config(),
    "filter": config(filter=["a", "b"]),
    "empty filter": config(filter=[]),
    "filter twice": config(filter=["a", "a"]),
    "empty name": config(filter=[""]),
    "rename": config(override={"a": {"name": "b"}}),
    "describe": config(override={"a": {"description": "b"}}),
    "override with nothing": config(override={"a": {}}),
    "override with unknown field": config(override={"a": {"name": "b", "title": "c"}}),
}


def ours_says(obj) -> bool:
    model = MCPServer if obj["kind"] == "MCPServer" else MCPToolConfig
    try:
        model.model_validate({k: v for k, v in obj.items() if k not in ("apiVersion", "kind")})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("obj", [*SERVER_CASES.values(), *CONFIG_CASES.values()], ids=[*SERVER_CASES, *CONFIG_CASES])
def test_the_api_server_and_our_own_reader_judge_alike(rig_api, rig_namespace, obj):
    assert (accepted(rig_api, rig_namespace, obj) is not None) == ours_says(obj)


def test_the_api_server_fills_in_the_defaults_that_our_reader_assumes(rig_api, rig_namespace):
    stored = accepted(rig_api, rig_namespace, server(image="a"))
    assert stored is not None
    assumed = MCPServer.model_validate({"metadata": {"name": "hello"}, "spec": {"image": "a"}})
    assert stored["spec"] == assumed.spec.to_object()


def test_a_server_is_scaled_by_the_scale_subresource_and_shown_by_kubectl(rig_api, rig_namespace):
    path = SERVERS.format(rig_namespace)
    rig_api.api.post(path, server(image="a"))
    status = {"status": {"replicas": 1, "selector": "a=b", "phase": "Ready", "ready": "1/1"}}
    rig_api.api.merge(f"{path}/hello/status", status)
    scale = rig_api.api.merge(f"{path}/hello/scale", {"spec": {"replicas": 3}})
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    assert rig_api.api.get(f"{path}/hello")["spec"]["replicas"] == 3
    table = rig_api.api.request("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    columns = [c["name"] for c in json.loads(table)["columnDefinitions"] if not c["priority"]]
    assert columns == ["Name", "Ready", "Status", "Transport", "Tools", "Replicas", "URL", "Age"]


def test_every_rule_of_the_crds_was_affordable_to_the_api_server(rig_api):
    for plural in ("mcpservers", "mcptoolconfigs"):
        crd = rig_api.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.fairway.dev")
        conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"
