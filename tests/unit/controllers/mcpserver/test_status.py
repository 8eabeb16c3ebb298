from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fairway.api.conditions import Reason
from fairway.api.mcpserver import MCPServerStatus
from fairway.api.proxystatus import Config, ConfigState, EndpointState, Server, Tools
from fairway.controllers.mcpserver.image import server_image
from fairway.controllers.mcpserver.inputs import Missing
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.status import status_of, status_of_missing
from fairway.kube.resource import HTTP_ROUTE
from tests.unit.controllers.mcpserver.samples import NOW, SETTINGS, deployment, endpoint, inputs, pod, seen, server

IN = inputs()
PROXY_POD = pod("hello-proxy-1", port="admin")


def live(**change: Any) -> Live:
    healthy: dict[str, Any] = {
        "server_deployment": deployment(),
        "proxy_deployment": deployment(),
        "server_pods": (pod(),),
        "proxy_pods": (PROXY_POD,),
        "observations": (seen(IN, endpoint()),),
    }
    return Live(**(healthy | change))


def decided(of=IN, **change: Any) -> dict[str, Any]:
    status = status_of(of, live(**change), now=NOW)
    MCPServerStatus.model_validate(status)
    return status


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_healthy_server_is_ready_and_says_what_it_is():
    status = decided()
    assert conditions(status) == {
        "Ready": ("True", "Ready"),
        "Available": ("True", "HandshakeSucceeded"),
        "Progressing": ("False", "RolledOut"),
        "Degraded": ("False", "Healthy"),
        "WorkloadReady": ("True", "RolledOut"),
        "ServiceReady": ("True", "Applied"),
        "ProxyReady": ("True", "RolledOut"),
        "PolicyApplied": ("True", "Applied"),
        "ToolsDiscovered": ("True", "Discovered"),
        "PodSecurity": ("True", "Restricted"),
    }
    assert status["phase"] == "Ready"
    assert status["ready"] == "1/1"
    assert status["url"] == "http://hello.team.svc.cluster.local:8080/mcp"
    assert status["server"] == {
        "name": "calc",
        "version": "1.0",
        "protocolVersions": ["2026-07-28"],
        "capabilities": ["prompts", "tools"],
    }
    assert status["tools"] == {
        "count": 1,
        "names": ["add"],
        "digest": "sha256:1",
        "bytes": 150,
        "estimatedTokens": 38,
    }
    assert status["prompts"] == {"count": 2, "names": ["a", "b"]}
    assert "resources" not in status
    assert status["selector"] == "fairway.dev/server=hello,fairway.dev/component=server"


def test_a_web_server_that_speaks_no_mcp_is_never_available():
    bad = endpoint(EndpointState.NOT_MCP, "POST /mcp answered 404 text/html")
    status = decided(observations=(seen(IN, bad),), proxy_deployment=deployment(ready=0))
    assert conditions(status)["ProxyReady"] == ("False", "Pending")
    assert conditions(status)["Available"] == ("False", "NotMCP")
    assert conditions(status)["Ready"] == ("False", "NotMCP")
    assert status["phase"] == "Failed"
    assert status["message"] == "POST /mcp answered 404 text/html"


def test_a_server_that_only_its_own_pod_reaches_is_told_where_it_seems_to_listen():
    unreachable = endpoint(EndpointState.UNREACHABLE, "nothing listens on 10.0.0.7:8080")
    well = pod(name="hello-1", ready=True)
    well["spec"] = {"containers": [{"name": "server", "readinessProbe": {"exec": {"command": ["true"]}}}]}
    status = decided(observations=(seen(IN, unreachable),), server_pods=(well,))
    assert conditions(status)["Available"] == ("False", "ListensOnLoopback")
    assert conditions(status)["Ready"] == ("False", "ListensOnLoopback")
    assert status["message"].startswith("nothing listens on 10.0.0.7:8080; the server is well by its own readiness")
    dialled = {**well, "spec": {"containers": [{"name": "server", "readinessProbe": {"tcpSocket": {}}}]}}
    status = decided(observations=(seen(IN, unreachable),), server_pods=(dialled,))
    assert conditions(status)["Available"] == ("False", "HandshakeFailed")


def test_a_proxy_that_cannot_be_asked_leaves_it_open_whether_the_server_is_there():
    unreachable = seen(IN, error="http://10.0.0.8:8081/v1/status: timed out")
    unreachable = type(unreachable)(target=unreachable.target, error=unreachable.error)
    status = decided(observations=(unreachable,))
    assert conditions(status)["Available"] == ("Unknown", "HandshakeUnreachable")
    assert conditions(status)["Ready"] == ("Unknown", "HandshakeUnreachable")
    assert status["phase"] == "Pending"


def test_a_server_scaled_to_zero_is_not_ready_and_not_failed():
    none = inputs(server(image="x", replicas=0))
    status = decided(
        none,
        server_deployment=deployment(ready=0, replicas=0, updated=0, wanted=0),
        server_pods=(),
        observations=(seen(none),),
    )
    assert conditions(status)["Ready"] == ("False", "ScaledToZero")
    assert conditions(status)["Available"] == ("False", "ScaledToZero")
    assert status["phase"] == "Pending"


def test_a_crash_is_told_with_its_exit_code():
    crashed = pod(
        ready=False,
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": {"exitCode": 1}},
        restartCount=4,
    )
    status = decided(server_deployment=deployment(ready=0), server_pods=(crashed,), observations=(seen(IN),))
    assert conditions(status)["WorkloadReady"] == ("False", "CrashLoopBackOff")
    assert status["message"] == "the container exited with code 1, restarted 4 times"
    assert status["phase"] == "Failed"


def test_one_bad_endpoint_of_two_degrades_and_does_not_take_down():
    status = decided(observations=(seen(IN, endpoint(), endpoint(EndpointState.FAILED, "no")),))
    assert conditions(status)["Available"] == ("True", "HandshakeSucceeded")
    assert conditions(status)["Degraded"] == ("True", "HandshakeFailed")
    assert conditions(status)["Ready"] == ("False", "HandshakeFailed")
    assert status["phase"] == "PartiallyReady"


def test_a_new_pod_is_not_ready_on_the_word_of_the_one_it_replaced():
    status = decided(server_pods=(pod("hello-2"),))
    assert conditions(status)["Available"][0] == "False"
    assert conditions(status)["Ready"][0] == "False"
    status = decided(server_pods=(pod(), pod("hello-2")))
    assert conditions(status)["Available"] == ("True", "HandshakeSucceeded")
    assert conditions(status)["Ready"] == ("False", "HandshakePending")


def test_a_proxy_on_an_older_configuration_is_not_ready_yet():
    status = decided(observations=(seen(IN, endpoint(), hash="sha256:old"),))
    assert conditions(status)["PolicyApplied"] == ("False", "Pending")
    assert conditions(status)["Ready"] == ("False", "Pending")
    assert conditions(status)["Available"] == ("True", "HandshakeSucceeded")


def test_a_proxy_that_refuses_the_configuration_says_why():
    refused = seen(IN, endpoint(), hash="sha256:old", config=Config(state=ConfigState.INVALID, error="unknown field"))
    status = decided(observations=(refused,))
    assert conditions(status)["PolicyApplied"] == ("False", "PolicyRejected")
    assert "unknown field" in status["message"]


@pytest.mark.parametrize(("listen", "applied"), [("127.0.0.1:7001", "True"), ("", "False")])
def test_a_shared_proxy_that_refuses_another_servers_configuration_still_serves_this_one(listen, applied):
    shared = seen(IN, endpoint(), config=Config(state=ConfigState.INVALID, error="cannot listen on 127.0.0.1:7002"))
    shared = replace(shared, route=structs.replace(shared.route, listen=listen))
    assert conditions(decided(observations=(shared,)))["PolicyApplied"][0] == applied


def test_an_object_that_belongs_to_somebody_else_is_named():
    status = decided(taken=("Service/hello",))
    assert conditions(status)["Ready"] == ("False", "NameTaken")
    assert conditions(status)["ServiceReady"] == ("False", "NameTaken")
    assert "Service/hello exists and belongs to somebody else" in status["message"]
    assert status["phase"] == "PartiallyReady"


def test_an_object_that_the_api_server_refuses_is_named_with_its_words():
    status = decided(rejected=(("Deployment/hello", "exceeded quota"),))
    assert conditions(status)["Ready"] == ("False", "Rejected")
    assert status["message"] == "the API server refused Deployment/hello: exceeded quota"


def test_tools_that_the_configuration_names_in_vain_are_a_warning():
    status = decided(observations=(seen(IN, endpoint(), tools=Tools(count=1, names=("add",), unknown=("gone",))),))
    assert conditions(status)["ToolsDiscovered"] == ("True", "UnknownTool")
    assert conditions(status)["Ready"] == ("True", "Ready")


def test_without_a_proxy_there_are_no_conditions_of_one():
    bare = inputs(server(image="x", proxy={"mode": "none"}))
    status = decided(bare, proxy_deployment=None, proxy_pods=(), observations=(seen(bare, endpoint()),))
    assert "ProxyReady" not in conditions(status)
    assert "PolicyApplied" not in conditions(status)
    assert conditions(status)["Ready"] == ("True", "Ready")


def test_a_rollout_on_its_way_is_progress():
    status = decided(server_deployment=deployment(ready=1, replicas=2, updated=1))
    assert conditions(status)["Progressing"] == ("True", "RollingOut")
    assert conditions(status)["WorkloadReady"] == ("False", "RollingOut")
    status = decided(server_deployment=deployment(observed=0))
    assert conditions(status)["Progressing"] == ("True", "RollingOut")


def test_pods_that_cannot_be_made_at_all_are_explained():
    stuck = deployment(ready=0, replicas=0, updated=0)
    stuck["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods=0"}]
    status = decided(server_deployment=stuck, server_pods=(), observations=())
    assert status["message"] == "exceeded quota: pods=0"


def test_nothing_live_yet_is_pending():
    status = status_of(IN, Live(), now=NOW)
    assert status["phase"] == "Pending"
    assert conditions(status)["Available"] == ("False", "Pending")


def test_the_same_facts_give_the_same_status_whenever_they_are_looked_at():
    first = decided()
    again = status_of(IN, live(before=first), now="2027-01-01T00:00:00Z")
    assert first == again


def test_what_ran_before_stays_described_while_something_is_missing():
    before = decided()
    missing = Missing(Reason.TOOL_CONFIG_NOT_FOUND, "there is no MCPToolConfig few", waiting=True)
    still = live(before=before)
    status = status_of_missing(server(generation=2, status=before), missing, live=still, now="2027-01-01T00:00:00Z")
    MCPServerStatus.model_validate(status)
    assert status["phase"] == "Waiting"
    assert status["tools"]["count"] == 1
    assert conditions(status)["Ready"] == ("False", "ToolConfigNotFound")
    assert conditions(status)["Available"] == ("True", "HandshakeSucceeded")


@pytest.mark.parametrize("before", [None, {"conditions": [{"type": "Foreign", "status": "True", "reason": "X"}]}])
def test_a_server_that_was_never_valid_is_failed_and_not_available(before):
    missing = Missing(Reason.INVALID_SPEC, "spec.port: no")
    status = status_of_missing(server(status=before), missing, live=Live(), now=NOW)
    MCPServerStatus.model_validate(status)
    assert status["phase"] == "Failed"
    assert conditions(status)["Available"] == ("False", "InvalidSpec")


def test_a_configuration_that_names_hundreds_of_tools_in_vain_is_summed_up():
    unknown = tuple(f"tool-{number:03d}-" + "x" * 110 for number in range(900))
    status = decided(observations=(seen(IN, endpoint(), tools=Tools(count=1, names=("add",), unknown=unknown)),))
    assert conditions(status)["ToolsDiscovered"] == ("True", "UnknownTool")
    (told,) = [c["message"] for c in status["conditions"] if c["type"] == "ToolsDiscovered"]
    assert "tool-000" in told
    assert told.endswith("and 890 more")


def test_what_others_say_is_cut_to_what_a_status_can_hold():
    status = decided(rejected=(("Deployment/hello", "no " * 50_000),))
    assert len(status["message"]) <= 4096
    verbose = seen(IN, endpoint(), tools=Tools(count=2, names=("a" * 100_000, "b"), digest="sha256:1"))
    verbose = replace(
        verbose, route=structs.replace(verbose.route, server=Server(name="n" * 10**6, version="v" * 10**6))
    )
    status = decided(observations=(verbose,))
    assert conditions(status)["Ready"] == ("True", "Ready")
    assert len(str(status)) < 10_000


def test_a_status_that_somebody_else_wrote_stops_nothing():
    before = {"conditions": [{"type": "PolicyApplied", "status": "True", "reason": "Sunshine"}]}
    status = status_of_missing(server(status=before), Missing(Reason.INVALID_SPEC, "no"), live=Live(), now=NOW)
    MCPServerStatus.model_validate(status)
    assert conditions(status)["Ready"] == ("False", "InvalidSpec")


def test_a_service_of_somebody_else_is_not_told_as_our_address():
    assert "url" not in decided(taken=("Service/hello",))


def test_pods_that_die_while_something_is_missing_are_told():
    before = decided()
    missing = Missing(Reason.TOOL_CONFIG_NOT_FOUND, "there is no MCPToolConfig few", waiting=True)
    crashed = pod(
        ready=False, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {"exitCode": 1}}
    )
    dead = live(server_deployment=deployment(ready=0), server_pods=(crashed,), observations=(seen(IN),), before=before)
    status = status_of_missing(server(generation=2, status=before), missing, live=dead, now=NOW)
    assert conditions(status)["Available"] == ("False", "CrashLoopBackOff")
    assert conditions(status)["WorkloadReady"] == ("False", "CrashLoopBackOff")
    assert conditions(status)["Ready"] == ("False", "ToolConfigNotFound")
    assert status["ready"] == "0/1"


def test_a_deployment_that_somebody_paused_is_named():
    paused = deployment(ready=1, updated=0)
    paused["spec"]["paused"] = True
    status = decided(server_deployment=paused)
    assert conditions(status)["Ready"] == ("False", "RollingOut")
    assert "Deployment hello is paused" in status["message"]
    assert "kubectl rollout resume" in status["message"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (deployment(ready=1, updated=0), "0 of 1 updated, 1 ready"),
        (deployment(ready=2, replicas=2, updated=1), "1 of 1 updated, 1 old still going"),
        (deployment(ready=2, replicas=2, updated=2), "2 running, 1 wanted"),
        (deployment(ready=0), "0 of 1 ready"),
        (deployment(ready=1, observed=0), "the workload's change has not been taken up yet"),
    ],
)
def test_a_rollout_says_what_it_still_waits_for(found, said):
    status = decided(server_deployment=found)
    assert conditions(status)["WorkloadReady"][0] == "False"
    assert status["message"] == said


LOAD_BALANCED = inputs(server(image="w", service={"type": "LoadBalancer"}))
PUBLISHED = inputs(server(image="w", ingress={"enabled": True, "className": "nginx"}))
ADDRESS = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}


def test_a_load_balancer_without_an_address_is_told_and_waited_for():
    service = {"spec": {"type": "LoadBalancer"}}
    status = decided(LOAD_BALANCED, observations=(seen(LOAD_BALANCED, endpoint()),), service=service)
    assert conditions(status)["ServiceReady"] == ("False", "NoAddress")
    assert conditions(status)["Ready"] == ("False", "NoAddress")
    assert conditions(status)["Available"][0] == "True"
    assert status["phase"] == "PartiallyReady"
    service |= {"status": ADDRESS}
    status = decided(LOAD_BALANCED, observations=(seen(LOAD_BALANCED, endpoint()),), service=service)
    assert conditions(status)["Ready"] == ("True", "Ready")
    assert status["externalURLs"] == ["http://203.0.113.9:8080/mcp"]


def ingress(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "hello"}, "spec": {"ingressClassName": "nginx", "rules": [{}]}, "status": status}


@pytest.mark.parametrize(
    ("readiness", "strict", "status", "expected"),
    [
        (None, True, {}, ("False", "IngressNotPublished")),
        (None, False, {}, ("True", "Applied")),
        ("permissive", True, {}, ("True", "Applied")),
        ("strict", False, {}, ("False", "IngressNotPublished")),
        ("strict", False, ADDRESS, ("True", "Applied")),
    ],
)
def test_an_ingress_counts_once_it_is_published_unless_somebody_says_otherwise(readiness, strict, status, expected):
    wanted = {"enabled": True, "className": "nginx", **({"readiness": readiness} if readiness else {})}
    of = inputs(server(image="w", ingress=wanted))
    found = decided(of, observations=(seen(of, endpoint()),), ingress=ingress(**status), strict_ingress=strict)
    assert conditions(found)["IngressReady"] == expected
    assert conditions(found)["Ready"][0] == expected[0]


def test_where_there_is_no_ingress_at_all_it_is_said_and_stands_in_nobodys_way():
    found = decided(PUBLISHED, observations=(seen(PUBLISHED, endpoint()),), publishes=False)
    assert conditions(found)["IngressReady"] == ("Unknown", "NotSupportedHere")
    assert conditions(found)["Ready"] == ("True", "Ready")


def test_a_route_needs_a_gateway_api_and_a_gateway_that_takes_it():
    of = inputs(server(image="w", gatewayRoute={"enabled": True, "parentRefs": [{"name": "gw"}]}))
    given = {"observations": (seen(of, endpoint()),)}
    assert conditions(decided(of, **given))["RouteReady"] == ("False", "KindNotServed")
    of = replace(of, served=frozenset({HTTP_ROUTE}))
    assert conditions(decided(of, **given))["RouteReady"] == ("False", "Pending")
    route: dict[str, Any] = {"spec": {}, "status": {"parents": [{"conditions": []}]}}
    assert conditions(decided(of, **given, http_route=route))["RouteReady"] == ("False", "RouteNotAccepted")
    refused = {"type": "Accepted", "status": "False", "message": "not allowed from this namespace"}
    route["status"]["parents"][0]["conditions"] = [refused]
    status = decided(of, **given, http_route=route)
    assert "not allowed from this namespace" in status["message"]
    refused |= {"status": "True"}
    assert conditions(decided(of, **given, http_route=route))["RouteReady"] == ("True", "Applied")


def test_under_an_autoscaler_as_many_are_wanted_as_it_has_decided():
    of = inputs(server(image="w", replicas=0, autoscaling={"maxReplicas": 5}))
    status = decided(of, observations=(seen(of, endpoint()),), server_deployment=deployment(wanted=3, ready=1))
    assert status["ready"] == "1/3"
    assert conditions(status)["WorkloadReady"][0] == "False"
    status = decided(of, observations=(seen(of, endpoint()),))
    assert conditions(status)["Ready"] == ("True", "Ready")


def test_the_url_has_the_port_and_path_that_clients_dial():
    of = inputs(server(image="w", service={"port": 80}))
    assert decided(of)["url"] == "http://hello.team.svc.cluster.local:80/mcp"
    bare = inputs(server(image="w", proxy={"mode": "none"}, path="/api"))
    assert decided(bare)["url"] == "http://hello.team.svc.cluster.local:8080/api"


def test_a_failed_pull_is_told_with_the_rule_that_chose_the_registry():
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    of = inputs(server(image="w", registryOverride="r"))
    broken = pod(ready=False, state=waiting, restartCount=0)
    image = server_image(of.server.spec, SETTINGS)
    status = decided(of, server_deployment=deployment(ready=0), server_pods=(broken,), image=image)
    assert "registry from spec.registryOverride; no pull secret" in status["message"]
