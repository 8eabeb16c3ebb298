from dataclasses import replace

import pytest
from pydantic import ValidationError

from fairway.api import runconfig
from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.mcpserver.desired import desired
from fairway.controllers.mcpserver.publishing import external_urls, problem
from fairway.kube.resource import HTTP_ROUTE, SERVICE_MONITOR
from tests.unit.controllers.mcpserver.samples import SETTINGS, inputs, server


def made(kind, name="hello", settings=SETTINGS, served=(), **spec):
    gathered = replace(inputs(server(image="w", **spec)), served=frozenset(served))
    objects = desired(gathered, settings)
    return next((o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)), None)


def rule(**ingress):
    settings = ingress.pop("settings", SETTINGS)
    (found,) = made("Ingress", settings=settings, ingress={"enabled": True, **ingress})["spec"]["rules"]
    return found.get("host"), found["http"]["paths"][0]["path"]


HOSTED = replace(SETTINGS, ingress_host="mcp.example.com")


@pytest.mark.parametrize(
    ("ingress", "host", "path"),
    [
        ({}, None, "/team/hello/mcp"),
        ({"host": "a.example.com"}, "a.example.com", "/mcp"),
        ({"publicPathPrefix": "/pay/"}, None, "/pay/mcp"),
        ({"publicPathPrefix": "pay", "path": "/explicit"}, None, "/explicit"),
        ({"host": "a.example.com", "path": "/x"}, "a.example.com", "/x"),
        ({"settings": HOSTED}, "mcp.example.com", "/team/hello/mcp"),
        ({"settings": HOSTED, "host": "b.example.com"}, "b.example.com", "/mcp"),
        ({"settings": HOSTED, "publicPathPrefix": "pay"}, None, "/pay/mcp"),
    ],
)
def test_an_explicit_path_wins_over_a_prefix_and_the_operators_host_is_for_those_who_say_nothing(ingress, host, path):
    assert rule(**ingress) == (host, path)


def test_the_proxy_answers_at_the_published_path_so_that_nothing_has_to_be_rewritten():
    config_map = made("ConfigMap", "hello-runconfig", ingress={"enabled": True}, gatewayRoute={"enabled": True})
    config, _ = runconfig.parse(config_map["data"]["runconfig.json"].encode())
    assert config.routes[0].listen.paths == ("/mcp", "/team/hello/mcp")


@pytest.mark.parametrize(
    ("class_name", "settings", "own", "expected"),
    [
        ("traefik", SETTINGS, {}, {"traefik.ingress.kubernetes.io/router.entrypoints": "web"}),
        (
            "traefik",
            replace(SETTINGS, ingress_entrypoints="websecure", ingress_tls=True),
            {},
            {
                "traefik.ingress.kubernetes.io/router.entrypoints": "websecure",
                "traefik.ingress.kubernetes.io/router.tls": "true",
            },
        ),
        (
            "nginx",
            SETTINGS,
            {"nginx.ingress.kubernetes.io/ssl-redirect": "true"},
            {
                "nginx.ingress.kubernetes.io/proxy-buffering": "off",
                "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
                "nginx.ingress.kubernetes.io/ssl-redirect": "true",
            },
        ),
        ("other", SETTINGS, {}, {}),
    ],
)
def test_a_class_gets_what_it_needs_and_the_users_own_annotations_win(class_name, settings, own, expected):
    ingress = {"enabled": True, "className": class_name, "annotations": own}
    assert made("Ingress", settings=settings, ingress=ingress)["metadata"].get("annotations", {}) == expected


def test_the_operators_class_is_for_those_who_name_none():
    settings = replace(SETTINGS, ingress_class="traefik")
    assert made("Ingress", settings=settings, ingress={"enabled": True})["spec"]["ingressClassName"] == "traefik"
    assert "ingressClassName" not in made("Ingress", ingress={"enabled": True})["spec"]


def test_a_route_is_made_where_there_is_a_gateway_api_and_not_elsewhere():
    route = {"enabled": True, "parentRefs": [{"name": "gw"}]}
    assert made("HTTPRoute", gatewayRoute=route) is None
    found = made("HTTPRoute", served=[HTTP_ROUTE], gatewayRoute=route)["spec"]
    assert found["parentRefs"] == [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}]
    assert found["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/team/hello/mcp"}}]
    assert "timeouts" not in found["rules"][0]


def test_the_operators_gateway_is_for_routes_that_name_none_and_without_it_the_field_is_named():
    settings = replace(SETTINGS, gateway="infra/main")
    found = made("HTTPRoute", settings=settings, served=[HTTP_ROUTE], gatewayRoute={"enabled": True})
    assert found["spec"]["parentRefs"][0]["namespace"] == "infra"
    wrong = problem(inputs(server(image="w", gatewayRoute={"enabled": True})), SETTINGS)
    assert wrong == "spec.gatewayRoute.parentRefs: name a Gateway; this operator has no default one"


def test_prometheus_is_told_of_a_proxy_where_its_operator_runs():
    assert made("ServiceMonitor", "hello-proxy") is None
    found = made("ServiceMonitor", "hello-proxy", served=[SERVICE_MONITOR])
    assert found["spec"]["endpoints"] == [{"targetPort": 8081, "path": "/metrics"}]
    assert made("ServiceMonitor", "hello-proxy", served=[SERVICE_MONITOR], proxy={"mode": "none"}) is None


def test_where_nothing_can_be_published_nothing_is_made_for_it():
    alone = replace(SETTINGS, publishes=False)
    spec = {
        "ingress": {"enabled": True},
        "gatewayRoute": {"enabled": True},
        "autoscaling": {"maxReplicas": 3},
        "service": {"type": "LoadBalancer"},
        "replicas": 2,
    }
    kinds = {o["kind"] for o in desired(inputs(server(image="w", **spec)), alone)}
    assert kinds.isdisjoint({"Ingress", "HTTPRoute", "HorizontalPodAutoscaler", "PodDisruptionBudget"})
    assert made("Service", settings=alone, **spec)["spec"]["type"] == "ClusterIP"
    assert made("Deployment", settings=alone, **spec)["spec"]["replicas"] == 2


def test_replicas_are_the_autoscalers_business_once_there_is_one():
    scaled = made("Deployment", autoscaling={"maxReplicas": 3}, replicas=2)
    assert "replicas" not in scaled["spec"]
    metrics = made("HorizontalPodAutoscaler", autoscaling={"maxReplicas": 3})["spec"]["metrics"]
    assert [m["resource"]["target"]["averageUtilization"] for m in metrics] == [80]
    stopped = made("Deployment", autoscaling={"maxReplicas": 3}, suspend=True)
    assert stopped["spec"]["replicas"] == 0
    assert made("HorizontalPodAutoscaler", autoscaling={"maxReplicas": 3}, suspend=True) is None


@pytest.mark.parametrize(
    ("spec", "budgets"),
    [
        ({}, set()),
        ({"replicas": 2}, {"hello"}),
        ({"autoscaling": {"minReplicas": 2, "maxReplicas": 3}}, {"hello"}),
        ({"autoscaling": {"maxReplicas": 3}, "replicas": 5}, set()),
        ({"proxy": {"replicas": 2}}, {"hello-proxy"}),
        ({"proxy": {"replicas": 2}, "replicas": 2, "suspend": True}, set()),
    ],
)
def test_a_budget_is_for_those_of_whom_there_are_several(spec, budgets):
    objects = desired(inputs(server(image="w", **spec)), SETTINGS)
    assert {o["metadata"]["name"] for o in objects if o["kind"] == "PodDisruptionBudget"} == budgets


def published(service=None, ingress=None, http_route=None, nodes=(), port=8080):
    gathered = inputs(server(image="w", service={"port": port}))
    return external_urls(gathered, service=service, ingress=ingress, http_route=http_route, nodes=list(nodes))


def test_urls_are_what_each_object_says_of_itself():
    address = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}
    balanced = {"spec": {"type": "LoadBalancer"}, "status": address}
    assert published(balanced, port=80) == ["http://203.0.113.9:80/mcp"]
    assert published({"spec": {"type": "LoadBalancer"}}) == []
    ports = [{"name": "mcp", "nodePort": 30080}]
    nodes = ["10.0.0.1", "fd00::1"]
    assert published({"spec": {"type": "NodePort", "ports": ports}}, nodes=nodes) == [
        "http://10.0.0.1:30080/mcp",
        "http://[fd00::1]:30080/mcp",
    ]
    hosted = {"spec": {"rules": [{"host": "a.example.com"}], "tls": [{}]}, "status": address}
    assert published(ingress=hosted) == ["https://a.example.com/team/hello/mcp"]
    assert published(ingress={"spec": {"rules": [{}]}, "status": address}) == ["http://203.0.113.9/team/hello/mcp"]
    assert published(ingress={"spec": {"rules": [{"host": "a.example.com"}]}}) == []
    taken = {"spec": {"hostnames": ["b.example.com"]}, "status": {"parents": [{"conditions": []}]}}
    assert published(http_route=taken) == []
    taken["status"]["parents"][0]["conditions"] = [{"type": "Accepted", "status": "True"}]
    assert published(http_route=taken) == ["https://b.example.com/team/hello/mcp"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"service": {"port": 80, "extraPorts": [80]}}, "that is already service.port"),
        ({"proxy": {"port": 8081}}, "where a proxy is asked"),
        ({"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}, "minReplicas is above maxReplicas"),
        ({"ingress": {"host": "not a host"}}, "host"),
        ({"ingress": {"publicPathPrefix": "///"}}, "publicPathPrefix"),
        ({"gatewayRoute": {"timeout": "1 minute"}}, "timeout"),
    ],
)
def test_a_wrong_value_is_refused_by_name(spec, said):
    with pytest.raises(ValidationError, match=said):
        MCPServerSpec.model_validate({"image": "w", **spec})
