"""The whole status of one MCPServer, decided from what is live. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairway.api import names
from fairway.api.conditions import (
    MESSAGE_LIMIT,
    Condition,
    ConditionModel,
    ConditionType,
    Phase,
    Reason,
    merge,
    shortened,
)
from fairway.api.mcpserver import MCPServerStatus, OfferedInfo, ServerInfo, ToolsInfo
from fairway.api.names import ChildNames
from fairway.api.proxystatus import ConfigState, Endpoint, EndpointState, Offered, Route, Server, Tools
from fairway.controllers.mcpserver import pods, publishing, shape
from fairway.controllers.mcpserver.image import Image
from fairway.controllers.mcpserver.inputs import Inputs, Missing
from fairway.controllers.mcpserver.observation import Observation
from fairway.controllers.mcpserver.scaling import autoscaled
from fairway.controllers.mcpserver.shape import has_proxy
from fairway.kube.resource import HTTP_ROUTE

Obj = Mapping[str, Any]
T = ConditionType

_USER_MUST_ACT = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.INLINE_TOOLS_INVALID,
        Reason.RUNTIME_INVALID,
        Reason.PACKAGE_NOT_FETCHED,
        Reason.TOOL_CONFIG_INVALID,
        Reason.TOOL_CONFLICT,
        Reason.NAME_TAKEN,
        Reason.REJECTED,
        Reason.IMAGE_PULL_BACK_OFF,
        Reason.CRASH_LOOP_BACK_OFF,
        Reason.OOM_KILLED,
        Reason.IMAGE_NEEDS_ROOT,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.PORT_TAKEN,
        Reason.NEEDS_CONTAINER_RUNTIME,
        Reason.HANDSHAKE_FAILED,
        Reason.NOT_MCP,
        Reason.POLICY_REJECTED,
    }
)
_ON_ITS_WAY = frozenset(
    {
        Reason.PENDING,
        Reason.ROLLING_OUT,
        Reason.NOT_LISTENING,
        Reason.HANDSHAKE_PENDING,
        Reason.NO_ADDRESS,
        Reason.INGRESS_NOT_PUBLISHED,
    }
)
_WAITED_FOR = frozenset({Reason.SECRET_MISSING, Reason.CONFIG_MAP_MISSING})
_TOOL_NAMES_SHOWN = 100
_UNKNOWN_SHOWN = 10
_BYTES_A_TOKEN = 4
_NOT_TAKEN_UP = "the workload's change has not been taken up yet"
_NAME_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Live:
    """What there is of one MCPServer after its objects were applied."""

    server_deployment: Obj | None = None
    proxy_deployment: Obj | None = None
    service: Obj | None = None
    ingress: Obj | None = None
    http_route: Obj | None = None
    publishes: bool = True
    """Whether this place publishes anything beyond itself."""
    strict_ingress: bool = True
    """Whether an Ingress counts only once its controller has published it, where its owner does not say."""
    server_pods: tuple[Obj, ...] = ()
    proxy_pods: tuple[Obj, ...] = ()
    observations: tuple[Observation, ...] = ()
    taken: tuple[str, ...] = ()
    """kind/name of objects that exist and are somebody else's."""
    rejected: tuple[tuple[str, str], ...] = ()
    """kind/name of objects that the API server refused, and what it said."""
    image: Image | None = None
    """How the server's image came about."""
    breaches: tuple[str, ...] = ()
    """Where the server's pods break the restricted Pod Security standard."""
    ungranted: tuple[str, ...] = ()
    """Entries of the permission profile that are not granted."""
    before: Obj = field(default_factory=dict)
    """The status as it stands."""


def status_of(inputs: Inputs, live: Live, *, now: str) -> dict[str, Any]:
    """The status to write."""
    server = inputs.server
    conditions = _conditions(inputs, live)
    by_type = {c.type: c for c in conditions}
    ready, available = by_type[T.READY], by_type[T.AVAILABLE]
    pods_of_its_own = shape.workload(inputs) is not None
    rolled = ((live.server_deployment if pods_of_its_own else live.proxy_deployment) or {}).get("status") or {}
    answer = _best_route(live.observations)
    taken = by_type[T.SERVICE_READY].reason is Reason.NAME_TAKEN
    return MCPServerStatus(
        observed_generation=server.metadata.generation,
        phase=_phase(ready, available),
        message=shortened(ready.message, MESSAGE_LIMIT),
        conditions=[
            ConditionModel.model_validate(c)
            for c in merge(
                live.before.get("conditions") or (), conditions, generation=server.metadata.generation, now=now
            )
        ],
        transport=inputs.transport,
        url=None if taken else _url(inputs),
        external_urls=publishing.external_urls(
            inputs, service=live.service, ingress=live.ingress, http_route=live.http_route, nodes=_nodes(inputs, live)
        )
        or None,
        replicas=rolled.get("replicas", 0),
        ready_replicas=rolled.get("readyReplicas", 0),
        ready=f"{rolled.get('readyReplicas', 0)}/{_wanted(inputs, live)}",
        selector=",".join(f"{k}={v}" for k, v in _selector(inputs).items()),
        server=_introduced(answer.server) if answer and answer.server else None,
        tools=_listed(answer.tools) if answer and answer.tools else None,
        resources=_offered(answer.resources) if answer else None,
        prompts=_offered(answer.prompts) if answer else None,
    ).to_object()


def _selector(inputs: Inputs) -> dict[str, str]:
    """The pods that run the server: its own, or else its proxies."""
    component = names.COMPONENT_PROXY if shape.workload(inputs) is None else names.COMPONENT_SERVER
    return names.selector(inputs.server.metadata.name, component)


def _url(inputs: Inputs) -> str:
    metadata, spec = inputs.server.metadata, inputs.server.spec
    return ChildNames(metadata.name).url(metadata.namespace, port=spec.service.port, path=inputs.client_path)


def _nodes(inputs: Inputs, live: Live) -> list[str]:
    """Addresses of nodes that serve it; any node would do, but these are known."""
    serving = live.proxy_pods if shape.own_proxy(inputs) else live.server_pods
    return sorted({ip for pod in serving if pods.is_ready(pod) and (ip := (pod.get("status") or {}).get("hostIP"))})


def _introduced(server: Server) -> ServerInfo:
    return ServerInfo(
        name=shortened(server.name, _NAME_LIMIT),
        version=shortened(server.version, _NAME_LIMIT),
        protocol_versions=[shortened(version, _NAME_LIMIT) for version in server.protocol_versions[:20]],
        capabilities=[shortened(name, _NAME_LIMIT) for name in server.capabilities[:20]],
    )


def _offered(offered: Offered | None) -> OfferedInfo | None:
    if offered is None:
        return None
    shown = [shortened(name, _NAME_LIMIT) for name in offered.names[:_TOOL_NAMES_SHOWN]]
    return OfferedInfo(count=offered.count, names=shown)


def _listed(tools: Tools) -> ToolsInfo:
    names_shown = [shortened(name, _NAME_LIMIT) for name in tools.names[:_TOOL_NAMES_SHOWN]]
    return ToolsInfo(
        count=tools.count,
        names=names_shown,
        digest=tools.digest,
        bytes=tools.bytes,
        estimated_tokens=-(-tools.bytes // _BYTES_A_TOKEN),
    )


def is_news(before: Obj, after: Obj) -> bool:
    """Whether somebody may be waiting for this status; counts and messages on the way can wait for each other."""

    def told(status: Obj) -> tuple[Any, ...]:
        by_type = {c["type"]: c for c in status.get("conditions") or ()}
        verdicts = [by_type.get(t, {}).get("status") for t in (T.READY, T.AVAILABLE, T.DEGRADED, T.POLICY_APPLIED)]
        return (status.get("phase"), status.get("observedGeneration"), *verdicts)

    return told(before) != told(after)


def status_of_missing(obj: Obj, missing: Missing, *, live: Live, now: str) -> dict[str, Any]:
    """The status of an object that cannot be acted on: what ran before keeps running and stays described."""
    before = obj.get("status") or {}
    generation = obj["metadata"].get("generation", 0)
    found = _running_on(live) or [Condition(T.AVAILABLE, "False", missing.reason, missing.message)]
    told = {T.READY, T.PROGRESSING, *(c.type for c in found)}
    kept = [
        Condition(T(c["type"]), c["status"], Reason(c["reason"]), c.get("message", ""))
        for c in before.get("conditions") or ()
        if c["type"] in set(T) and c["type"] not in told and c.get("reason") in set(Reason)
    ]
    conditions = [
        Condition(T.READY, "False", missing.reason, missing.message),
        *found,
        Condition(T.PROGRESSING, "False", missing.reason, missing.message),
        *kept,
    ]
    return {
        **before,
        **_counts(live),
        "observedGeneration": generation,
        "phase": (Phase.WAITING if missing.waiting else Phase.FAILED).value,
        "message": shortened(missing.message, MESSAGE_LIMIT),
        "conditions": merge(before.get("conditions") or (), conditions, generation=generation, now=now),
    }


def _running_on(live: Live) -> list[Condition]:
    """How it is with what an earlier, valid state of the object has left running; empty if that is nothing."""
    maker = live.server_deployment or live.proxy_deployment
    if maker is None:
        return []
    wanted = maker["spec"].get("replicas", 1)
    its_pods = live.proxy_pods if live.server_deployment is None else live.server_pods
    workload = _rollout(T.WORKLOAD_READY, maker, its_pods, wanted=wanted)
    proxied = live.proxy_deployment is not None
    available = _available(live, workload, proxied=bool(live.proxy_pods) or proxied, apart=not live.server_pods)
    if wanted == 0:
        available = Condition(T.AVAILABLE, "False", Reason.SCALED_TO_ZERO, "nothing runs")
    proxy = [_proxy(live), _policy(live)] if proxied else []
    return [available, _degraded(live, available), workload, *proxy]


def _counts(live: Live) -> dict[str, Any]:
    maker = live.server_deployment or live.proxy_deployment
    if maker is None:
        return {}
    rolled = maker.get("status") or {}
    ready = rolled.get("readyReplicas", 0)
    wanted = maker["spec"].get("replicas", 1)
    return {"replicas": rolled.get("replicas", 0), "readyReplicas": ready, "ready": f"{ready}/{wanted}"}


def _conditions(inputs: Inputs, live: Live) -> list[Condition]:
    workload = _workload(inputs, live)
    service = _service(inputs, live)
    stopped = _stopped(inputs)
    apart = shape.workload(inputs) is None or shape.sidecar(inputs)
    available = stopped or _available(live, workload, proxied=has_proxy(inputs), apart=apart)
    required = [_objects(live), service, workload]
    proxied = []
    if has_proxy(inputs):
        beside = replace(workload, type=T.PROXY_READY)
        proxied = [beside if shape.sidecar(inputs) else _proxy(live), _unruled(inputs) or _policy(live)]
        if proxied[0].reason not in _ON_ITS_WAY:
            required.append(proxied[0])
    # a proxy waits for the server to answer: why that does not answer says more than that the proxy waits
    published = [*_ingress(inputs, live), *_route(inputs, live)]
    required += [available, _every_endpoint(inputs, live), *proxied]
    required += [c for c in published if c.reason is not Reason.NOT_SUPPORTED_HERE]
    ready = replace(stopped, type=T.READY) if stopped else _ready(required)
    return [
        ready,
        available,
        _progressing([workload, *proxied, available]),
        _degraded(live, available),
        workload,
        service,
        *published,
        *proxied,
        _tools(live, available),
        _pod_security(live),
        *_permissions(inputs, live),
        *_capped(inputs),
    ]


def _stopped(inputs: Inputs) -> Condition | None:
    """Whether nothing is meant to run."""
    if inputs.server.spec.suspend:
        return Condition(T.AVAILABLE, "False", Reason.SUSPENDED, "spec.suspend is true")
    if inputs.server.spec.replicas == 0 and not autoscaled(inputs) and shape.runs(inputs) != "elsewhere":
        return Condition(T.AVAILABLE, "False", Reason.SCALED_TO_ZERO, "spec.replicas is 0")
    return None


def _ready(required: Sequence[Condition]) -> Condition:
    """The first thing that stands in the way, in the order in which a person would fix it."""
    for condition in required:
        if condition.status != "True":
            return Condition(T.READY, condition.status, condition.reason, condition.message)
    return Condition(T.READY, "True", Reason.READY)


def _objects(live: Live) -> Condition:
    """Not a condition of its own: whether every generated object could be written."""
    if live.taken:
        return Condition(
            T.READY,
            "False",
            Reason.NAME_TAKEN,
            f"{', '.join(live.taken)} exists and belongs to somebody else; "
            "rename this MCPServer, or delete that object if nobody needs it",
        )
    if live.rejected:
        ref, message = live.rejected[0]
        return Condition(T.READY, "False", Reason.REJECTED, f"the API server refused {ref}: {message}")
    return Condition(T.READY, "True", Reason.APPLIED)


def _service(inputs: Inputs, live: Live) -> Condition:
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


def _ingress(inputs: Inputs, live: Live) -> list[Condition]:
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


def _route(inputs: Inputs, live: Live) -> list[Condition]:
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


def _wanted(inputs: Inputs, live: Live) -> int:
    """How many there should be; where an autoscaler decides, what it has decided."""
    if not (autoscaled(inputs) and live.publishes):
        return shape.replicas(inputs) if shape.workload(inputs) is not None else shape.proxy_replicas(inputs)
    return int(((live.server_deployment or {}).get("spec") or {}).get("replicas", 1))


def _workload(inputs: Inputs, live: Live) -> Condition:
    if inputs.unmet is not None:
        return Condition(T.WORKLOAD_READY, "False", inputs.unmet.reason, inputs.unmet.message)
    if shape.workload(inputs) is None:
        who = "the proxy runs it" if shape.runs(inputs) == "child" else "somebody else runs it"
        return Condition(T.WORKLOAD_READY, "True", Reason.NOT_USED, who)
    found = _rollout(
        T.WORKLOAD_READY,
        live.server_deployment,
        live.server_pods,
        wanted=_wanted(inputs, live),
        port=inputs.server.spec.port if shape.listens(inputs) else None,
    )
    if found.reason is Reason.IMAGE_PULL_BACK_OFF and live.image is not None:
        return replace(found, message=f"{found.message} ({live.image.explained})")
    return found


def _proxy(live: Live) -> Condition:
    wanted = ((live.proxy_deployment or {}).get("spec") or {}).get("replicas", 1)
    found = _rollout(T.PROXY_READY, live.proxy_deployment, live.proxy_pods, wanted=wanted)
    return found if found.status == "True" else replace(found, message=f"proxy: {found.message}")


def _rollout(
    about: ConditionType, deployment: Obj | None, its_pods: Sequence[Obj], *, wanted: int, port: int | None = None
) -> Condition:
    if deployment is None:
        return Condition(about, "False", Reason.PENDING, "what makes the pods does not exist yet")
    status = deployment.get("status") or {}
    ready, updated = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    if current and ready == updated == status.get("replicas", 0) == wanted:
        return Condition(about, "True", Reason.ROLLED_OUT, f"{ready} of {wanted} ready")
    trouble = pods.problem(its_pods, port=port)
    if trouble is not None and trouble.reason is not Reason.PENDING:
        return Condition(about, "False", trouble.reason, trouble.message)
    failure = _replica_failure(status)
    if failure:
        return Condition(about, "False", Reason.REJECTED, failure)
    if deployment["spec"].get("paused"):
        name = deployment["metadata"]["name"]
        message = (
            f"Deployment {name} is paused, so that nothing new rolls out: kubectl rollout resume deployment/{name}"
        )
        return Condition(about, "False", Reason.ROLLING_OUT, message)
    reason = Reason.ROLLING_OUT if ready else Reason.PENDING
    return Condition(about, "False", reason, _still_to_come(status, wanted) if current else _NOT_TAKEN_UP)


def _still_to_come(status: Obj, wanted: int) -> str:
    replicas, ready, updated = (status.get(n, 0) for n in ("replicas", "readyReplicas", "updatedReplicas"))
    if updated < wanted and ready:
        return f"{updated} of {wanted} updated, {ready} ready"
    if replicas > updated:
        return f"{updated} of {wanted} updated, {replicas - updated} old still going"
    if replicas > wanted:
        return f"{replicas} running, {wanted} wanted"
    return f"{ready} of {wanted} ready"


def _replica_failure(deployment_status: Obj) -> str:
    """What keeps pods from being made at all: a quota, an admission policy."""
    for condition in deployment_status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message", ""))
    return ""


def _available(live: Live, workload: Condition, *, proxied: bool, apart: bool = False) -> Condition:
    """`apart`: whether the proxies' word counts even while no pod of the server is ready, or there is none."""
    answer = _best_route(live.observations)
    endpoints = _endpoints(live)
    good = [e for e in endpoints if e.state is EndpointState.OK]
    if good and answer is not None:
        who = f"{answer.server.name} {answer.server.version}".strip() if answer.server else "the server"
        return Condition(T.AVAILABLE, "True", Reason.HANDSHAKE_SUCCEEDED, f"{who} answers")
    if not apart and not any(map(pods.is_ready, live.server_pods)):
        if workload.status == "True":
            return Condition(T.AVAILABLE, "False", Reason.PENDING, "no server pod is ready")
        return Condition(T.AVAILABLE, "False", workload.reason, workload.message)
    if proxied and not any(map(pods.is_running, live.proxy_pods)):
        trouble = pods.problem(live.proxy_pods)
        reason, message = (
            (trouble.reason, f"proxy: {trouble.message}") if trouble else (Reason.PENDING, "no proxy runs")
        )
        return Condition(T.AVAILABLE, "False", reason, message)
    for state, reason in (
        (EndpointState.NOT_MCP, Reason.NOT_MCP),
        (EndpointState.FAILED, Reason.HANDSHAKE_FAILED),
        (EndpointState.UNREACHABLE, Reason.HANDSHAKE_FAILED),
    ):
        bad = next((e for e in endpoints if e.state is state), None)
        if bad is not None:
            return Condition(T.AVAILABLE, "False", reason, bad.message)
    errors = [o.error for o in live.observations if o.error and o.target.ready]
    if errors and len(errors) == len(live.observations):  # a pod that is not ready yet may well not answer yet
        return Condition(T.AVAILABLE, "Unknown", Reason.HANDSHAKE_UNREACHABLE, errors[0])
    return Condition(T.AVAILABLE, "False", Reason.HANDSHAKE_PENDING, "waiting for the first MCP handshake")


def _every_endpoint(inputs: Inputs, live: Live) -> Condition:
    """Not a condition of its own: Ready wants every endpoint, Available one."""
    endpoints = _endpoints(live)
    bad = next((e for e in endpoints if e.state not in (EndpointState.OK, EndpointState.PENDING)), None)
    if bad is None:
        proven = {e.uid for e in endpoints if e.state is EndpointState.OK}
        unproven = [pod for pod in live.server_pods if pods.is_ready(pod) and pod["metadata"]["uid"] not in proven]
        if unproven and "" not in proven and not shape.attached(inputs):
            name = unproven[0]["metadata"]["name"]
            return Condition(T.READY, "False", Reason.HANDSHAKE_PENDING, f"pod {name} has not answered a handshake yet")
        return Condition(T.READY, "True", Reason.HEALTHY)
    reason = Reason.NOT_MCP if bad.state is EndpointState.NOT_MCP else Reason.HANDSHAKE_FAILED
    return Condition(T.READY, "False", reason, bad.message)


def _policy(live: Live) -> Condition:
    running = [pod for pod in live.proxy_pods if pods.is_running(pod)]
    if not running:
        return Condition(T.POLICY_APPLIED, "False", Reason.PENDING, "no proxy runs yet")
    by_uid = {o.target.uid: o for o in live.observations}
    seen = [by_uid.get(pod["metadata"]["uid"]) for pod in running]
    refused = next(
        (o for o in seen if o is not None and o.config.state is ConfigState.INVALID and not _serves(o)), None
    )
    if refused is not None:
        return Condition(
            T.POLICY_APPLIED, "False", Reason.POLICY_REJECTED, f"proxy {refused.target.pod}: {refused.config.error}"
        )
    current = sum(o is not None and o.hash_matches for o in seen)
    if current == len(running):
        return Condition(T.POLICY_APPLIED, "True", Reason.APPLIED, f"{current} of {len(running)} proxies")
    unreachable = next((o for o in seen if o is not None and o.error), None)
    if unreachable is not None:
        return Condition(T.POLICY_APPLIED, "Unknown", Reason.HANDSHAKE_UNREACHABLE, unreachable.error)
    return Condition(T.POLICY_APPLIED, "False", Reason.PENDING, f"{current} of {len(running)} proxies")


def _unruled(inputs: Inputs) -> Condition | None:
    missing = inputs.unruled
    return None if missing is None else Condition(T.POLICY_APPLIED, "False", missing.reason, missing.message)


def _serves(seen: Observation) -> bool:
    """Whether the proxy serves this very route: one that it shares with others may be wrong about another's."""
    return seen.hash_matches and seen.route is not None and bool(seen.route.listen)


def _progressing(facts: Sequence[Condition]) -> Condition:
    moving = next((c for c in facts if c.status == "False" and c.reason in _ON_ITS_WAY), None)
    if moving is not None:
        return Condition(T.PROGRESSING, "True", moving.reason, moving.message)
    return Condition(T.PROGRESSING, "False", Reason.ROLLED_OUT)


def _degraded(live: Live, available: Condition) -> Condition:
    if available.status != "True":
        return Condition(T.DEGRADED, "False", available.reason)
    bad = next((e for e in _endpoints(live) if e.state not in (EndpointState.OK, EndpointState.PENDING)), None)
    if bad is not None:
        return Condition(T.DEGRADED, "True", Reason.HANDSHAKE_FAILED, bad.message)
    answer = _best_route(live.observations)
    if answer is not None and answer.tools is not None and answer.tools.shadowed:
        hidden = ", ".join(answer.tools.shadowed)
        return Condition(T.DEGRADED, "True", Reason.TOOL_CONFLICT, f"hidden, since a rename took their name: {hidden}")
    return Condition(T.DEGRADED, "False", Reason.HEALTHY)


def _tools(live: Live, available: Condition) -> Condition:
    answer = _best_route(live.observations)
    tools = answer.tools if answer else None
    if tools is None:
        return Condition(T.TOOLS_DISCOVERED, "False", Reason.HANDSHAKE_PENDING, available.message)
    if tools.error:
        return Condition(T.TOOLS_DISCOVERED, "False", Reason.HANDSHAKE_FAILED, tools.error)
    count = f"{tools.count} tool{'' if tools.count == 1 else 's'}"
    if tools.unknown:
        more = len(tools.unknown) - _UNKNOWN_SHOWN
        named = [_with_nearest(name, tools.nearest.get(name)) for name in tools.unknown[:_UNKNOWN_SHOWN]]
        unknown = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return Condition(
            T.TOOLS_DISCOVERED,
            "True",
            Reason.UNKNOWN_TOOL,
            f"{count}; the MCPToolConfig names tools that the server does not offer: {unknown}",
        )
    return Condition(T.TOOLS_DISCOVERED, "True", Reason.DISCOVERED, count)


def _with_nearest(name: str, nearest: str | None) -> str:
    shown = shortened(name, _NAME_LIMIT)
    return f"{shown} (did you mean {shortened(nearest, _NAME_LIMIT)}?)" if nearest else shown


def _pod_security(live: Live) -> Condition:
    if not live.breaches:
        return Condition(T.POD_SECURITY, "True", Reason.RESTRICTED)
    message = f"not restricted, as this server asks for it: {'; '.join(live.breaches)}"
    return Condition(T.POD_SECURITY, "False", Reason.NOT_RESTRICTED, message)


def _permissions(inputs: Inputs, live: Live) -> list[Condition]:
    profile = inputs.server.spec.permission_profile
    if profile is None:
        return []
    if live.ungranted:
        message = f"spec.permissionProfile: {'; '.join(live.ungranted)}"
        return [Condition(T.PERMISSIONS_APPLIED, "False", Reason.NOT_GRANTED, message)]
    return [Condition(T.PERMISSIONS_APPLIED, "True", Reason.APPLIED, "as NetworkPolicy, if the network enforces those")]


def _capped(inputs: Inputs) -> list[Condition]:
    """Nothing, where nothing is asked for in vain."""
    said = shape.capped(inputs)
    return [Condition(T.REPLICAS_CAPPED, "True", Reason.RUNS_ONCE, said)] if said else []


def _phase(ready: Condition, available: Condition) -> Phase:
    if ready.status == "True":
        return Phase.READY
    if ready.reason is Reason.SUSPENDED:
        return Phase.SUSPENDED
    if available.status == "True":
        return Phase.PARTIALLY_READY
    if ready.reason in _WAITED_FOR:
        return Phase.WAITING
    return Phase.FAILED if ready.reason in _USER_MUST_ACT else Phase.PENDING


def _best_route(observations: Sequence[Observation]) -> Route | None:
    """The answer of the proxy that is furthest along."""
    routes = [o for o in observations if o.route is not None]
    best = max(routes, key=lambda o: (o.hash_matches, o.settled, o.target.uid), default=None)
    return best.route if best else None


def _endpoints(live: Live) -> list[Endpoint]:
    """What is known of the pods that are there; an endpoint without a uid, or of a pod unlike ours, is not ours."""
    if live.server_deployment is None and not live.server_pods:
        return [e for o in live.observations if o.route is not None for e in o.route.endpoints]
    present = {pod["metadata"]["uid"] for pod in live.server_pods if not pods.is_gone(pod)} | {""}
    return [e for o in live.observations if o.route is not None for e in o.route.endpoints if e.uid in present]
