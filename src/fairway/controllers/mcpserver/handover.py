"""What stays as it is while something else gets ready to take its place: clients of a live server notice no change of
its proxy's mode, or of what it speaks behind that. Pure.

Theory of operation. Clients reach a *front*: the pods and the port that the client Service selects. Its selector is
changed last: until the front that the spec asks for answers, the Service leads to the one that answers now, and all
that that one needs stays. Nothing is remembered for this: which front clients reach stands in the Service, and which
RunConfig a proxy was made with in its pod. A front that serves nobody is not waited for.

    none to standalone      proxies come up; then the Service; then the policy that keeps clients from the server
    standalone to sidecar   the server's pods are replaced; then the Service; then the proxies go
    sidecar to anything     what is new comes up; then the Service; then the server's pods are replaced
    one transport to another behind a proxy: the proxies are replaced, each with the RunConfig of its own; the old
    workload goes with the last old proxy
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairway.api import names
from fairway.api.mcpserver import ProxyMode
from fairway.controllers.mcpserver import observation, pods, shape
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.observation import Observation
from fairway.kube.resource import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ObjectRef,
    Resource,
)

Obj = Mapping[str, Any]

SETTLES: Final = 5.0
"""Seconds after which every node of a cluster knows where a Service leads to now."""

_FRONTS: Final[Mapping[tuple[str, str], ProxyMode]] = {
    (names.COMPONENT_PROXY, names.PORT_MCP): "standalone",
    (names.COMPONENT_SERVER, names.PORT_PROXY): "sidecar",
    (names.COMPONENT_SERVER, names.PORT_MCP): "none",
}
_MODES: Final = {mode: front for front, mode in _FRONTS.items()}


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is of one server before anything is written."""

    service: Obj | None = None
    proxy: Obj | None = None
    workloads: Mapping[Resource, Obj] = field(default_factory=dict)
    server_pods: tuple[Obj, ...] = ()
    proxy_pods: tuple[Obj, ...] = ()
    observations: tuple[Observation, ...] = ()
    came_from: ProxyMode | None = None
    """How clients were served until a moment ago."""

    @property
    def mode(self) -> ProxyMode | None:
        """How clients are served now."""
        spec = (self.service or {}).get("spec") or {}
        component = (spec.get("selector") or {}).get(names.LABEL_COMPONENT, "")
        targets = {str(port.get("targetPort", "")) for port in spec.get("ports") or ()}
        return _FRONTS.get((component, targets.pop())) if len(targets) == 1 else None


@dataclass(frozen=True, slots=True)
class Handover:
    """How what is written differs from what is wanted in the end."""

    front: tuple[str, str] | None = None
    """Component and port that clients reach meanwhile; None for those that are wanted."""
    holds_workload: bool = False
    holds_proxy: bool = False
    """Whether the proxy's Deployment stays as it is."""
    open_to: frozenset[ProxyMode] = frozenset()
    """Ways to the server, beside the wanted one, that no policy may close yet."""
    old_proxies: bool = False
    """Whether proxies still look for the server where it was before."""
    keep: frozenset[ObjectRef] = frozenset()
    message: str = ""


NO_HANDOVER: Final = Handover()


def decide(inputs: Inputs, standing: Standing) -> Handover:
    was, wanted = standing.mode, shape.mode(inputs)
    if inputs.processes or was is None or inputs.server.spec.suspend:
        return NO_HANDOVER
    if was == wanted:
        return _settled(inputs, standing)
    if not _serves(was, standing):
        return NO_HANDOVER
    if _ready(wanted, inputs, standing):
        return Handover(open_to=frozenset({was}), keep=_lingering(inputs, standing))
    return Handover(
        front=_MODES[was],
        holds_workload=was == "sidecar",
        open_to=frozenset({was}),
        keep=_needed(was, inputs, standing),
        message=f"proxy.mode {was} serves clients until {wanted} does",
    )


def _settled(inputs: Inputs, standing: Standing) -> Handover:
    """Clients are led where they should be; what served them before may still be at work."""
    wanted = shape.mode(inputs)
    ways: set[ProxyMode] = set() if standing.came_from is None else {standing.came_from}
    if wanted != "standalone" and standing.proxy_pods:
        ways.add("standalone")
    if wanted != "sidecar" and any(map(observation.has_proxy, standing.server_pods)):
        ways.add("sidecar")
    old = [pod for pod in standing.proxy_pods if shape.runconfig_name(inputs) not in _runconfigs([pod])]
    lingering = _lingering(inputs, standing)
    if wanted != "standalone" or not any(_at_work(pod) for pod in old):
        return Handover(open_to=frozenset(ways), keep=lingering)
    namespace, child = inputs.server.metadata.namespace, names.ChildNames(inputs.server.metadata.name)
    behind = {kind.ref(namespace, child.workload) for kind in standing.workloads}
    behind |= {SERVICE.ref(namespace, child.endpoints_service), SERVICE_ACCOUNT.ref(namespace, child.workload)}
    return Handover(open_to=frozenset({*ways, "standalone"}), old_proxies=True, keep=lingering | behind)


def _needed(was: ProxyMode, inputs: Inputs, standing: Standing) -> frozenset[ObjectRef]:
    """What serves clients in that way."""
    namespace, child = inputs.server.metadata.namespace, names.ChildNames(inputs.server.metadata.name)
    makers: Mapping[ProxyMode, set[ObjectRef]] = {
        "standalone": {kind.ref(namespace, child.proxy) for kind in (DEPLOYMENT, POD_DISRUPTION_BUDGET)},
        "sidecar": {kind.ref(namespace, child.workload) for kind in (DEPLOYMENT, STATEFUL_SET)},
        "none": set(),
    }
    return _lingering(inputs, standing) | makers[was]


def _lingering(inputs: Inputs, standing: Standing) -> frozenset[ObjectRef]:
    """What pods work with for as long as they are there, wanted or not."""
    namespace, child = inputs.server.metadata.namespace, names.ChildNames(inputs.server.metadata.name)
    found = {CONFIG_MAP.ref(namespace, name) for name in _runconfigs((*standing.server_pods, *standing.proxy_pods))}
    if standing.proxy_pods:
        found |= {kind.ref(namespace, child.proxy) for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING)}
        found.add(SERVICE.ref(namespace, child.endpoints_service))
    return frozenset(found)


def _serves(mode: ProxyMode, standing: Standing) -> bool:
    """Whether clients are served in that way now."""
    found = standing.proxy_pods if mode == "standalone" else standing.server_pods
    return any(pods.is_ready(pod) for pod in found if mode != "sidecar" or observation.has_proxy(pod))


def _ready(mode: ProxyMode, inputs: Inputs, standing: Standing) -> bool:
    """Whether clients can be served in that way as well as it will ever be."""
    if mode == "standalone":
        return _rolled_out(standing.proxy)
    kind = shape.workload(inputs)
    workload = None if kind is None else standing.workloads.get(kind)
    if workload is None or not _rolled_out(workload):
        return False
    if mode == "sidecar":
        return observation.has_proxy(workload["spec"]["template"])
    answered = {
        o.target.uid for o in standing.observations if o.target.via == "handshake" and o.route and o.route.ready
    }
    return all(pod["metadata"]["uid"] in answered for pod in standing.server_pods if pods.is_ready(pod))


def _rolled_out(maker: Obj | None) -> bool:
    if maker is None:
        return False
    status, wanted = maker.get("status") or {}, maker["spec"].get("replicas", 1)
    counts = {status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")}
    return status.get("observedGeneration", 0) >= maker["metadata"].get("generation", 0) and counts == {wanted} != {0}


def _at_work(pod: Obj) -> bool:
    """Whether clients may still be with this proxy: it is ready, or it ends and takes calls until it has."""
    return pods.is_ready(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def _runconfigs(proxies: Iterable[Obj]) -> set[str]:
    """The names of the RunConfigs that these pods were made with."""
    return {
        volume["configMap"]["name"]
        for pod in proxies
        for volume in pod["spec"].get("volumes") or ()
        if volume["name"] == names.RUNCONFIG_VOLUME
    }
