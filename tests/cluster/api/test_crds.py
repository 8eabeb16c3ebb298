"""The CRDs as a real API server understands them, and in agreement with our own reading of a manifest."""

import json

import pytest
from pydantic import ValidationError

from fairway.api.mcpserver import MCPServer
from fairway.api.mcptoolconfig import MCPToolConfig
from fairway.api.quantity import value_of
from rig.api import ApiError
from tests.unit.api.test_quantity import SPELLINGS

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
    "unknown proxy mode": server(image="a", proxy={"mode": "beside"}),
    "stdio": server(image="a", transport="stdio"),
    "http for short": server(image="a", transport="http"),
    "stdio in a sidecar": server(image="a", transport="stdio", proxy={"mode": "sidecar"}),
    "stdio without a proxy": server(image="a", transport="stdio", proxy={"mode": "none"}),
    "stdio in a deployment": server(image="a", transport="stdio", workload="Deployment"),
    "stdio in a stateful set": server(image="a", transport="stdio", workload="StatefulSet"),
    "stdio over TLS": server(image="a", transport="stdio", upstreamTLS={}),
    "a python package": server(package={"pypi": "mcp-server-time", "version": "2025.9.25"}),
    "a python package with extras": server(package={"pypi": "a[b,c-d]", "version": "1!2.0.post1+x.y"}),
    "a node package": server(package={"npm": "@scope/server-x", "version": "1.2.3-rc.1", "args": ["--stdio"]}),
    "a package without a version": server(package={"pypi": "a"}),
    "a package in no version in particular": server(package={"npm": "a", "version": "latest"}),
    "a package in a range of versions": server(package={"npm": "a", "version": "1 - 2"}),
    "a package with an option for a name": server(package={"pypi": "--index-url", "version": "1"}),
    "a node package with an option for a name": server(package={"npm": "-g", "version": "1"}),
    "a package from a file": server(package={"npm": "../a", "version": "1"}),
    "a package from two indexes": server(package={"pypi": "a", "npm": "a", "version": "1"}),
    "a package from none": server(package={"version": "1"}),
    "arguments beside a package": server(package={"pypi": "a", "version": "1"}, args=["--x"]),
    "a package, which speaks stdio, in a sidecar": server(
        package={"pypi": "a", "version": "1"}, proxy={"mode": "sidecar"}
    ),
    "a package that speaks http in a sidecar": server(
        package={"pypi": "a", "version": "1"}, transport="http", proxy={"mode": "sidecar"}
    ),
    "tools from a secret": server(inlineTools={"secretKeyRef": {"name": "s", "key": "tools.py"}}),
    "tools from nowhere": server(inlineTools={}),
    "tools from two places": server(inlineTools={**CODE, "secretKeyRef": {"name": "s", "key": "k"}}),
    "tools over stdio": server(inlineTools=CODE, transport="stdio"),
    "a runtime": server(runtime={"name": "kubernetes", "params": "--read-only\n"}),
    "a runtime without a name": server(runtime={"params": ""}),
    "a registry": server(registryRef={"registry": "r", "server": "io.github.a/b"}),
    "remote": server(remote={"url": "https://mcp.example.com/mcp?a=b", "headers": [{"name": "X-A", "value": "b"}]}),
    "remote at an address": server(remote={"url": "http://[fd00::1]:8080", "allowPrivate": True}),
    "remote with a password": server(remote={"url": "https://me:secret@example.com/mcp"}),
    "remote with a fragment": server(remote={"url": "https://example.com/mcp#top"}),
    "remote by ftp": server(remote={"url": "ftp://example.com/"}),
    "remote with a secret header": server(
        remote={
            "url": "https://a",
            "headers": [{"name": "Authorization", "secretKeyRef": {"name": "s", "key": "k"}}],
        }
    ),
    "remote with a header without value": server(remote={"url": "https://a", "headers": [{"name": "A"}]}),
    "remote with the host header": server(remote={"url": "https://a", "headers": [{"name": "Host", "value": "b"}]}),
    "remote with a header of two lines": server(
        remote={"url": "https://a", "headers": [{"name": "A", "value": "b\r\nC: d"}]}
    ),
    "remote with a header twice": server(
        remote={"url": "https://a", "headers": [{"name": "A-b", "value": "b"}, {"name": "a-B", "value": "c"}]}
    ),
    "remote without a proxy": server(remote={"url": "https://a"}, proxy={"mode": "none"}),
    "remote over stdio": server(remote={"url": "https://a"}, transport="stdio"),
    "remote over sse": server(remote={"url": "https://a/sse"}, transport="sse"),
    "remote with a path": server(remote={"url": "https://a"}, path="/x"),
    "remote with a command": server(remote={"url": "https://a"}, command=["a"]),
    "remote with an empty environment": server(remote={"url": "https://a"}, env=[]),
    "remote with an environment": server(remote={"url": "https://a"}, env=[{"name": "A"}]),
    "remote in the clear with certificates": server(remote={"url": "http://a"}, upstreamTLS={}),
    "remote with certificates": server(remote={"url": "https://a"}, upstreamTLS={"caBundleRef": {"name": "c"}}),
    "a service": server(serviceRef={"name": "existing", "port": 80}, path="/v1/mcp"),
    "a service with a sidecar": server(serviceRef={"name": "existing", "port": 80}, proxy={"mode": "sidecar"}),
    "a service with a pod template": server(serviceRef={"name": "existing", "port": 80}, podTemplate={}),
    "a service with a name that is none": server(serviceRef={"name": "a.b", "port": 80}),
    "a sidecar": server(image="a", proxy={"mode": "sidecar"}),
    "a sidecar on the server's port": server(image="a", port=9000, proxy={"mode": "sidecar", "port": 9000}),
    "a sidecar's default port taken": server(image="a", port=8091, proxy={"mode": "sidecar"}),
    "the server on the sidecar's admin port": server(image="a", port=8081, proxy={"mode": "sidecar"}),
    "two sidecars a pod": server(image="a", proxy={"mode": "sidecar", "replicas": 2}),
    "TLS": server(image="a", proxy={"proxyMode": "sse", "tls": {"secretName": "t"}}),
    "TLS without a proxy": server(image="a", proxy={"mode": "none", "tls": {"secretName": "t"}}),
    "authorities without a proxy": server(image="a", proxy={"mode": "none"}, upstreamTLS={}),
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
    "a tag beside a tag": server(image="a:1", imageTag="2"),
    "a tag for an image in a registry with a port": server(image="a:5000/b", imageTag="2"),
    "a registry with a path": server(image="a", registryOverride="r.example.com:5000/team"),
    "a registry with a scheme": server(image="a", registryOverride="https://r"),
    "quantities": server(image="a", resources={"requests": {"cpu": 2, "memory": "64Mi"}, "limits": {"cpu": "0.5"}}),
    "a quantity with a space": server(image="a", resources={"limits": {"memory": "1 Gi"}}),
    "a volume": server(image="a", volumes=[{"name": "v", "emptyDir": {}}]),
    "a volume of two kinds": server(image="a", volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
    "a volume of our own": server(image="a", volumes=[{"name": "tools", "emptyDir": {}}]),
    "a mount": server(image="a", volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "a/b"}]),
    "a mount that climbs": server(image="a", volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "../b"}]),
    "two mounts at one path": server(
        image="a", volumeMounts=[{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v"}]
    ),
    "config": server(image="a", config={"LEVEL": "debug", "app.toml": ""}),
    "config with a path for a key": server(image="a", config={"a/b": ""}),
    "config with a number": server(image="a", config={"a": 1}),
    "root": server(image="a", securityContext={"runAsUser": 0}),
    "root that is not": server(image="a", securityContext={"runAsUser": 0, "runAsNonRoot": True}),
    "privileged": server(image="a", securityContext={"privileged": True}),
    "privileged and not": server(image="a", securityContext={"privileged": True, "allowPrivilegeEscalation": False}),
    "probes": server(image="a", probes={"liveness": {"httpGet": {"port": "mcp"}}, "startup": {}}),
    "a probe of two kinds": server(image="a", probes={"readiness": {"tcpSocket": {}, "grpc": {"port": 1}}}),
    "a liveness probe that must succeed twice": server(image="a", probes={"liveness": {"successThreshold": 2}}),
    "env from everything": server(image="a", envFrom=[{"secretRef": {"name": "s"}}], secretName="t"),
    "env from nothing": server(image="a", envFrom=[{"prefix": "A_"}]),
    "a field of the pod": server(
        image="a", env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "an unknown field of the pod": server(
        image="a", env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}]
    ),
    "a pod template": server(image="a", podTemplate={"spec": {"hostNetwork": True, "anything": [1, {"a": None}]}}),
    "a pod template that is a list": server(image="a", podTemplate={"spec": []}),
    "a built-in profile": server(image="a", permissionProfile={"name": "none"}),
    "a built-in profile that is none": server(image="a", permissionProfile={"name": "some"}),
    "a profile in a config map": server(image="a", permissionProfile={"type": "configMap", "name": "p", "key": "k"}),
    "a profile without a key": server(image="a", permissionProfile={"type": "configMap", "name": "p"}),
    "published": server(
        image="a",
        service={"type": "NodePort", "port": 80, "extraPorts": [8080]},
        ingress={"enabled": True, "host": "a.example.com", "publicPathPrefix": "/x/", "tls": {}},
        gatewayRoute={"enabled": True, "parentRefs": [{"name": "gw"}], "timeout": "1m30s"},
        autoscaling={"maxReplicas": 3, "targetCPUUtilization": 50},
    ),
    "a port twice": server(image="a", service={"port": 80, "extraPorts": [80]}),
    "the proxy on the admin port": server(image="a", proxy={"port": 8081}),
    "autoscaling upside down": server(image="a", autoscaling={"minReplicas": 3, "maxReplicas": 2}),
    "a host that is none": server(image="a", ingress={"host": "a_b"}),
    "suspended": server(image="a", suspend=True),
    "pull secrets twice": server(image="a", imagePullSecrets=["a", "a"]),
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


def test_an_api_server_leaves_a_quantity_as_we_spell_it(rig_api, rig_namespace):
    """It spells some anew, and which differs from field to field; ours must stay, or every look would find drift."""
    hard = {f"count/k{position}.example.com": stored for position, stored in enumerate(SPELLINGS.values())}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    for name, stored in tuple(hard.items()):
        if value_of(stored).denominator != 1:
            hard[name] = "1"  # nobody counts halves of objects
    made = rig_api.api.post(f"/api/v1/namespaces/{rig_namespace}/resourcequotas?dryRun=All", quota)
    assert made["spec"]["hard"] == hard
    for stored in SPELLINGS.values():
        volume = {"name": "v", "emptyDir": {"sizeLimit": stored}}
        resources = {"limits": {"cpu": stored}} if value_of(stored) * 1000 >= 1 else {}
        container = {"name": "c", "image": "i", "resources": resources}
        spec = {"containers": [container], "volumes": [volume], "serviceAccountName": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        kept = rig_api.api.post(f"/api/v1/namespaces/{rig_namespace}/pods?dryRun=All", pod)["spec"]
        assert kept["volumes"][0]["emptyDir"]["sizeLimit"] == stored
        assert kept["containers"][0]["resources"].get("limits", {}) == resources.get("limits", {})


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


def test_a_filter_that_is_emptied_by_a_server_side_apply_stays_an_empty_filter(rig_api, rig_namespace):
    """No filter means every tool: the field must not go with its last item."""
    for names in (["add"], []):
        config = {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "MCPToolConfig",
            "metadata": {"name": "only"},
            "spec": {"filter": names},
        }
        live = rig_api.api.apply(config, namespace=rig_namespace)
        assert live["spec"]["filter"] == names
