"""Whether clients can reach it: its Service, and what publishes it beyond the cluster. Pure."""

from collections.abc import Mapping
from typing import Any

from fairway.api.conditions import Condition, ConditionType, Reason
from fairway.api.names import ChildNames
from fairway.controllers.mcpserver import publishing
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.live import Live
from fairway.kube.resource import HTTP_ROUTE

Obj = Mapping[str, Any]
T = ConditionType


def service(inputs: Inputs, live: Live) -> Condition:
    ref = f"Service/{ChildNames(inputs.server.metadata.name).service}"
    if ref in live.taken:
        return Condition(T.SERVICE_READY, "False", Reason.NAME_TAKEN, f"{ref} exists and belongs to somebody else")
    refused = dict(live.rejected).get(ref)
    if refused is not None:
        return Condition(T.SERVICE_READY, "False", Reason.REJECTED, refused)
    wanted = inputs.server.spec.service.type
    if wanted == "LoadBalancer" and live.publishes:
        hosts = publishing.load_balancer_hosts(live.service or {})
        if not hosts:
            message = "spec.service.type is LoadBalancer, and no load balancer has given it an address yet"
            return Condition(T.SERVICE_READY, "False", Reason.NO_ADDRESS, message)
        return Condition(T.SERVICE_READY, "True", Reason.APPLIED, f"published at {', '.join(hosts)}")
    return Condition(T.SERVICE_READY, "True", Reason.APPLIED)


def ingress(inputs: Inputs, live: Live) -> list[Condition]:
    """Nothing, where none is wanted."""
    ingress, about = inputs.server.spec.ingress, T.INGRESS_READY
    if not ingress.enabled:
        return []
    if not live.publishes:
        return [Condition(about, "Unknown", Reason.NOT_SUPPORTED_HERE, "there is no ingress controller here")]
    if live.ingress is None:
        return [Condition(about, "False", Reason.PENDING, "the Ingress does not exist yet")]
    hosts = publishing.load_balancer_hosts(live.ingress)
    strict = ingress.readiness == "strict" if ingress.readiness else live.strict_ingress
    if hosts or not strict:
        return [Condition(about, "True", Reason.APPLIED, f"published at {', '.join(hosts)}" if hosts else "")]
    class_name = live.ingress["spec"].get("ingressClassName", "")
    message = (
        f"no controller for the ingress class {class_name or '(the default one)'} has published Ingress "
        f"{live.ingress['metadata']['name']}; spec.ingress.readiness: permissive does not wait for that"
    )
    return [Condition(about, "False", Reason.INGRESS_NOT_PUBLISHED, message)]


def http_route(inputs: Inputs, live: Live) -> list[Condition]:
    """Nothing, where none is wanted."""
    about = T.ROUTE_READY
    if not inputs.server.spec.gateway_route.enabled:
        return []
    if not live.publishes:
        return [Condition(about, "Unknown", Reason.NOT_SUPPORTED_HERE, "there is no gateway here")]
    if HTTP_ROUTE not in inputs.served:
        message = "spec.gatewayRoute: this cluster has no Gateway API; install its CRDs, or use spec.ingress"
        return [Condition(about, "False", Reason.KIND_NOT_SERVED, message)]
    if live.http_route is None:
        return [Condition(about, "False", Reason.PENDING, "the HTTPRoute does not exist yet")]
    if publishing.accepted(live.http_route):
        return [Condition(about, "True", Reason.APPLIED)]
    said = _refusal(live.http_route) or "no gateway has taken it up yet"
    return [Condition(about, "False", Reason.ROUTE_NOT_ACCEPTED, f"HTTPRoute: {said}")]


def _refusal(http_route: Obj) -> str:
    for parent in (http_route.get("status") or {}).get("parents") or ():
        for condition in parent.get("conditions") or ():
            if condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") == "False":
                return str(condition.get("message") or condition.get("reason") or "")
    return ""
