from dataclasses import replace

import pytest

from fairway.api.proxystatus import Route
from fairway.controllers.mcpserver import network
from fairway.controllers.mcpserver.desired import desired
from fairway.controllers.mcpserver.handover import NO_HANDOVER, Standing, decide
from fairway.controllers.mcpserver.observation import Observation, server_target
from fairway.kube.resource import DEPLOYMENT, STATEFUL_SET
from tests.unit.controllers.mcpserver.samples import SETTINGS, deployment, inputs, pod, server

MODES = ("standalone", "sidecar", "none")


def of(mode, **spec):
    return inputs(server(image="w", proxy={"mode": mode}, **spec))


def maker(mode):
    """A workload that has rolled out."""
    (made,) = [o for o in desired(of(mode), SETTINGS) if o["kind"] == "Deployment" and o["metadata"]["name"] == "hello"]
    return {**made, "spec": {**made["spec"], "replicas": 1}, "status": deployment()["status"]}


def its_pod(name, *, sidecar=False, runconfig=None, **more):
    made = pod(name, **more)
    if sidecar:
        made["spec"]["containers"].append({"name": "proxy"})
    if runconfig:
        made["spec"]["volumes"] = [{"name": "runconfig", "configMap": {"name": runconfig}}]
    return made


def standing(mode, **more):
    """A server that has served clients in that way all along."""
    return Standing(
        service=network.client_service(of(mode), SETTINGS),
        proxy=deployment() if mode == "standalone" else None,
        workloads={DEPLOYMENT: maker(mode)},
        server_pods=(its_pod("hello-1", sidecar=mode == "sidecar"),),
        proxy_pods=(its_pod("hello-proxy-1", runconfig="hello-runconfig"),) if mode == "standalone" else (),
        **more,
    )


def inward(wanted, change):
    """Whom the policy lets in: None if there is no policy."""
    found = [o for o in desired(of(wanted), SETTINGS, change) if o["kind"] == "NetworkPolicy"]
    if not found:
        return None
    rules = found[0]["spec"]["ingress"]
    return {"proxies" if "from" in rule else "everybody" for rule in rules}


def selected(wanted, change):
    (found,) = [
        o
        for o in desired(of(wanted), SETTINGS, change)
        if o["kind"] == "Service" and o["spec"].get("clusterIP") != "None"
    ]
    return found["spec"]["selector"]["fairway.dev/component"], found["spec"]["ports"][0]["targetPort"]


@pytest.mark.parametrize("was", MODES)
@pytest.mark.parametrize("wanted", MODES)
def test_clients_stay_where_they_are_served_until_they_can_be_served_elsewhere(was, wanted):
    change = decide(of(wanted), standing(was))
    if was == wanted:
        assert (change.front, change.message) == (None, "")
        return
    assert selected(wanted, change) == selected(was, NO_HANDOVER)
    assert change.holds_workload == (was == "sidecar")
    kept = {str(ref) for ref in change.keep}
    assert ("Deployment/hello-proxy" in kept) == (was == "standalone")
    assert ("Deployment/hello" in kept) == (was == "sidecar")
    if "none" in (was, wanted):
        assert inward(wanted, change) is None
    else:
        assert inward(wanted, change) == {"proxies", "everybody"}


def test_who_serves_nobody_is_not_waited_for():
    dead = replace(standing("standalone"), proxy_pods=(its_pod("hello-proxy-1", ready=False),))
    assert decide(of("sidecar"), dead) == NO_HANDOVER
    assert decide(of("standalone"), Standing()) == NO_HANDOVER
    assert decide(of("none", suspend=True), standing("standalone")) == NO_HANDOVER


def test_clients_are_led_elsewhere_once_that_answers():
    ready = replace(standing("none"), proxy=deployment(), proxy_pods=(its_pod("hello-proxy-1"),))
    change = decide(of("standalone"), ready)
    assert selected("standalone", change) == ("proxy", "mcp")
    assert inward("standalone", change) is None  # not every node knows yet
    late = replace(standing("standalone"), came_from="none")
    assert inward("standalone", decide(of("standalone"), late)) is None
    assert inward("standalone", decide(of("standalone"), standing("standalone"))) == {"proxies"}
    rolled = replace(standing("standalone"), workloads={DEPLOYMENT: maker("sidecar")})
    change = decide(of("sidecar"), rolled)
    assert selected("sidecar", change) == ("server", "proxy")
    kept = {str(ref) for ref in change.keep}
    assert "Deployment/hello-proxy" not in kept
    assert {"Role/hello-proxy", "Service/hello-endpoints", "ConfigMap/hello-runconfig"} <= kept


def test_the_proxy_goes_only_when_the_server_itself_has_answered():
    stands = standing("standalone")
    target = server_target(stands.server_pods[0], server="hello", url="http://hello", transport="streamable-http")
    refused = Observation(target, route=Route(name="team/hello", hash="", ready=False))
    for seen in ((), (refused,)):
        assert decide(of("none"), replace(stands, observations=seen)).front == ("proxy", "mcp")
    answered = Observation(target, route=Route(name="team/hello", hash="", ready=True))
    assert decide(of("none"), replace(stands, observations=(answered,))).front is None


def test_while_old_proxies_go_the_old_way_the_old_server_stays():
    on_lines = inputs(server(image="w", transport="stdio"))
    change = decide(on_lines, standing("standalone"))
    kept = {str(ref) for ref in change.keep}
    assert {"Deployment/hello", "Service/hello-endpoints", "ConfigMap/hello-runconfig"} <= kept
    (role,) = [o for o in desired(on_lines, SETTINGS, change) if o["kind"] == "Role"]
    assert {r for rule in role["rules"] for r in rule["resources"]} == {"endpointslices", "pods", "pods/attach"}
    new = its_pod("hello-proxy-2", runconfig="hello-runconfig-stdio")
    both = replace(standing("standalone"), proxy_pods=(new,), workloads={STATEFUL_SET: maker("standalone")})
    assert decide(on_lines, both).old_proxies is False
    ending = its_pod("hello-proxy-1", runconfig="hello-runconfig", ready=False)
    ending["metadata"]["deletionTimestamp"] = "now"
    assert decide(on_lines, replace(both, proxy_pods=(new, ending))).old_proxies is True
