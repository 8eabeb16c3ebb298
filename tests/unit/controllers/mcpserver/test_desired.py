from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fairway.api import runconfig
from fairway.controllers.mcpserver.desired import desired
from fairway.kube.resource import HTTP_ROUTE, SERVICE_MONITOR
from tests.unit.controllers.mcpserver.samples import SETTINGS, config_map, inputs, secret, server, tool_config

GOLDEN = Path(__file__).parents[3] / "golden" / "desired"

AUTHORITIES = config_map("authorities", **{"ca.crt": "-----"})

FIXTURES = {
    "inline-standalone": (server(), None),
    "image-none": (
        server(
            image="example.com/w:1",
            port=3000,
            replicas=2,
            proxy={"mode": "none"},
            env=[
                {"name": "MODE", "value": "x"},
                {"name": "MCP_PORT", "value": "3001"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            ],
        ),
        None,
        secret(token="t"),
    ),
    "image-filtered": (
        server(image="example.com/w:latest", toolConfigRef={"name": "few"}),
        tool_config(filter=["b", "a"], override={"a": {"name": "first"}}),
    ),
    "image-published": (
        server(
            image="w:1",
            replicas=3,
            autoscaling={
                "minReplicas": 2,
                "maxReplicas": 5,
                "targetCPUUtilization": 70,
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": "sessions"},
                            "target": {"type": "AverageValue", "averageValue": "10"},
                        },
                    }
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            },
            proxy={"replicas": 2, "port": 9090, "resources": {"limits": {"memory": "512Mi"}}},
            service={
                "type": "LoadBalancer",
                "port": 80,
                "extraPorts": [8080],
                "sessionAffinity": "ClientIP",
                "annotations": {"example.com/lb": "internal"},
            },
            ingress={
                "enabled": True,
                "className": "nginx",
                "host": "mcp.example.com",
                "path": "/weather",
                "tls": {"secretName": "cert"},
                "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "60"},
            },
            gatewayRoute={
                "enabled": True,
                "parentRefs": [{"name": "gw", "namespace": "infra", "sectionName": "https"}],
                "hostnames": ["mcp.example.com"],
                "timeout": "60s",
            },
        ),
        None,
    ),
    "image-stdio": (
        server(image="w:1", transport="stdio", command=["/bin/notes"], replicas=3, proxy={"replicas": 2}),
        None,
    ),
    "image-stdio-as-sse": (server(image="w:1", transport="stdio", proxy={"proxyMode": "sse"}), None),
    "image-sse": (server(image="w:1", transport="sse"), None),
    "image-sidecar": (
        server(
            image="w:1", replicas=2, proxy={"mode": "sidecar"}, ingress={"enabled": True}, toolConfigRef={"name": "few"}
        ),
        tool_config(filter=["a"]),
    ),
    "image-stateful": (server(image="w:1", workload="StatefulSet", replicas=2, proxy={"mode": "none"}), None),
    "secret-inline": (
        server(inlineTools={"secretKeyRef": {"name": "s", "key": "source"}}),
        None,
        secret(source="def add(a: int) -> int: ..."),
    ),
    "pypi-http": (
        server(
            package={"pypi": "mcp-server-time[all]", "version": "2025.9.25", "args": ["--port", "$(MCP_PORT)"]},
            transport="http",
        ),
        None,
        AUTHORITIES,
    ),
    "npm-http": (
        server(package={"npm": "@scope/server-x", "version": "1.2.3"}, command=["x"], transport="http"),
        None,
        AUTHORITIES,
    ),
    "pypi-stdio": (
        server(package={"pypi": "server-x", "version": "1.2.3"}, env=[{"name": "A", "value": "b"}]),
        None,
        AUTHORITIES,
    ),
    "npm-stdio": (server(package={"npm": "server-x", "version": "1.2.3", "args": ["--quiet"]}), None, AUTHORITIES),
    "service": (server(serviceRef={"name": "existing", "port": 80}, path="/api/mcp"), None),
    "remote": (server(remote={"url": "https://mcp.example.com/mcp"}), None),
    "image-everything": (
        server(
            image="registry.example.com/team/w",
            imageTag="1.4",
            registryOverride="mirror.example.com:5000/cache",
            imagePullSecrets=["regcred"],
            imagePullPolicy="Always",
            port=3000,
            path="/api/mcp",
            command=["/bin/serve"],
            args=["--name", "$(NAME)"],
            env=[
                {"name": "NAME", "value": "x"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            envFrom=[{"prefix": "C_", "configMapRef": {"name": "c"}}],
            secretName="s",
            config={"LOG_LEVEL": "debug", "app.toml": "a = 1\n", "NAME": "loses"},
            resources={"limits": {"memory": "1024Mi", "cpu": "0.5"}, "requests": {"memory": "0.5Gi"}},
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
                {"name": "certs", "secret": {"secretName": "s", "items": [{"key": "ca", "path": "ca.crt"}]}},
            ],
            volumeMounts=[
                {"name": "data", "mountPath": "/data"},
                {"name": "certs", "mountPath": "/certs/ca.crt", "subPath": "ca.crt", "readOnly": True},
            ],
            securityContext={"runAsUser": 1000, "readOnlyRootFilesystem": False},
            serviceAccountName="reader",
            podTemplate={
                "metadata": {"annotations": {"example.com/team": "a"}},
                "spec": {
                    "priorityClassName": "high",
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    "containers": [
                        {"name": "server", "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}}},
                        {"name": "helper", "image": "h:1", "resources": {"limits": {"memory": "0.5Gi"}}},
                    ],
                    "initContainers": [{"name": "wait", "image": "h:1", "imagePullPolicy": "Always"}],
                },
            },
            permissionProfile={"name": "network"},
            probes={
                "liveness": {"httpGet": {"path": "/health"}, "periodSeconds": 20},
                "readiness": {"httpGet": {"path": "/ready", "port": 9000}},
                "startup": {"failureThreshold": 30},
            },
        ),
        None,
        secret(ca="-----", MCP_HOST="::"),
        config_map(A="1"),
    ),
}


def objects(name):
    gathered = inputs(*FIXTURES[name])
    return desired(
        replace(gathered, served=frozenset({HTTP_ROUTE, SERVICE_MONITOR})) if "published" in name else gathered,
        SETTINGS,
    )


@pytest.mark.parametrize("name", FIXTURES)
def test_the_objects_are_as_reviewed(name, request):
    """After a wanted change: delete the golden file, run once, and review the difference."""
    path = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump_all(objects(name), sort_keys=True, width=120)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} did not exist; written, review and commit it")
    assert text == path.read_text()


@pytest.mark.parametrize("name", FIXTURES)
def test_nothing_is_null_or_empty_or_numeric_where_kubernetes_wants_text(name):
    def check(value, at):
        if isinstance(value, dict):
            assert value or at.endswith((".emptyDir", ".namespaceSelector")), at
            for key, inner in value.items():
                assert isinstance(key, str)
                check(inner, f"{at}.{key}")
        elif isinstance(value, list):
            assert value, at
            for index, inner in enumerate(value):
                check(inner, f"{at}[{index}]")
        else:
            assert value not in (None, "") or ".apiGroups[" in at, at

    for obj in objects(name):
        check(obj, f"{obj['kind']}/{obj['metadata']['name']}")


@pytest.mark.parametrize("name", FIXTURES)
def test_every_object_is_named_labelled_and_in_the_servers_namespace(name):
    for obj in objects(name):
        assert obj["metadata"]["namespace"] == "team"
        assert obj["metadata"]["name"].startswith("hello")
        assert obj["metadata"]["labels"]["fairway.dev/server"] == "hello"
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "fairway"


@pytest.mark.parametrize("name", FIXTURES)
def test_every_pod_is_one_that_the_restricted_standard_admits(name):
    for obj in objects(name):
        if obj["kind"] not in ("Deployment", "StatefulSet"):
            continue
        pod = obj["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if name == "image-everything":
                continue  # its user wants it otherwise
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


def test_only_the_proxy_gets_a_token_and_it_may_only_read_endpoints():
    by_kind = {(o["kind"], o["metadata"]["name"]): o for o in objects("inline-standalone")}
    assert by_kind["Deployment", "hello"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert by_kind["Role", "hello-proxy"]["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]


def test_without_a_proxy_nothing_of_a_proxy_is_made():
    kinds = [(o["kind"], o["metadata"]["name"]) for o in objects("image-none")]
    assert sorted(kinds) == [
        ("Deployment", "hello"),
        ("PodDisruptionBudget", "hello"),
        ("Service", "hello"),
        ("ServiceAccount", "hello"),
    ]


def test_the_number_of_replicas_changes_nothing_but_itself():
    one, two = (desired(inputs(server(image="x", replicas=n)), SETTINGS) for n in (2, 3))
    (first, second) = next((a, b) for a, b in zip(one, two, strict=True) if a != b)
    first["spec"]["replicas"] = second["spec"]["replicas"]
    assert first == second


def test_new_policy_changes_the_runconfig_and_no_pod():
    obj = server(image="x", toolConfigRef={"name": "few"})
    before = desired(inputs(obj, tool_config(filter=["a"])), SETTINGS)
    after = desired(inputs(obj, tool_config(filter=["b"])), SETTINGS)
    assert [a["kind"] for a, b in zip(before, after, strict=True) if a != b] == ["ConfigMap"]


def test_new_source_rolls_the_server_and_not_the_proxy():
    before = desired(inputs(server(inlineTools={"python": "def a(): ..."})), SETTINGS)
    after = desired(inputs(server(inlineTools={"python": "def b(): ..."})), SETTINGS)
    changed = [(a["kind"], a["metadata"]["name"]) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [("ConfigMap", "hello-tools"), ("Deployment", "hello")]


def test_the_order_in_which_a_filter_is_written_changes_nothing():
    obj = server(image="x", toolConfigRef={"name": "few"})
    assert desired(inputs(obj, tool_config(filter=["a", "b"])), SETTINGS) == desired(
        inputs(obj, tool_config(filter=["b", "a"])), SETTINGS
    )


def test_the_runconfig_is_one_that_a_proxy_reads():
    (config_map,) = [o for o in objects("image-filtered") if o["metadata"]["name"] == "hello-runconfig"]
    config, _ = runconfig.parse(config_map["data"]["runconfig.json"].encode())
    assert config.routes[0].tools.view().exposed("a") == "first"


def test_the_users_environment_wins_and_every_name_stands_once():
    (workload,) = [o for o in objects("image-none") if o["kind"] == "Deployment"]
    env = workload["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [variable["name"] for variable in env]
    assert len(names) == len(set(names))
    assert {"name": "MCP_PORT", "value": "3001"} in env
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}} in env


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("w", "Always"),
        ("w:latest", "Always"),
        ("w:1", "IfNotPresent"),
        ("localhost:5000/w", "Always"),
        ("localhost:5000/w:1", "IfNotPresent"),
        ("w@sha256:0", "IfNotPresent"),
        ("w:latest@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_is_what_the_kubelet_would_choose(image, policy):
    objs = desired(inputs(server(image=image)), SETTINGS)
    (workload,) = [o for o in objs if o["kind"] == "Deployment" and o["metadata"]["name"] == "hello"]
    assert workload["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_while_the_port_changes_the_pods_of_both_ports_are_reachable():
    """A policy that counts by number would shut out the pods that still listen on the old port."""
    for port in (8080, 3000):
        (policy,) = [o for o in desired(inputs(server(image="x", port=port)), SETTINGS) if o["kind"] == "NetworkPolicy"]
        assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": "mcp"}]


def test_a_proxy_that_starts_slowly_on_a_busy_node_is_not_killed_for_it():
    by_kind = {(o["kind"], o["metadata"]["name"]): o for o in objects("image-filtered")}
    proxy = by_kind["Deployment", "hello-proxy"]
    (container,) = proxy["spec"]["template"]["spec"]["containers"]
    startup = container["startupProbe"]
    assert startup["httpGet"]["path"] == "/healthz"
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 300


def test_a_proxy_asks_pods_that_are_not_ready_yet_unless_somebody_says_what_ready_means():
    def early(**spec):
        (found,) = [
            o
            for o in desired(inputs(server(image="w:1", **spec)), SETTINGS)
            if o["metadata"]["name"] == "hello-endpoints"
        ]
        return found["spec"].get("publishNotReadyAddresses", False)

    assert early()
    assert not early(probes={"readiness": {"httpGet": {"path": "/up"}}})
    assert not early(podTemplate={"spec": {"terminationGracePeriodSeconds": 60}})
