"""The whole status of one MCPServer, decided from what is live. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from fairway.api.proxystatus import Offered, Server, Tools
from fairway.controllers.mcpserver import handshakes, pods, publication, publishing, rollout, shape
from fairway.controllers.mcpserver.inputs import Inputs, Missing
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.scaling import autoscaled
from fairway.controllers.mcpserver.shape import has_proxy

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
        Reason.HOST_REFUSED,
        Reason.LISTENS_ON_LOOPBACK,
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
_BYTES_A_TOKEN = 4
_NAME_LIMIT = 256


def status_of(inputs: Inputs, live: Live, *, now: str) -> dict[str, Any]:
    """The status to write."""
    server = inputs.server
    conditions = _conditions(inputs, live)
    by_type = {c.type: c for c in conditions}
    ready, available = by_type[T.READY], by_type[T.AVAILABLE]
    pods_of_its_own = shape.workload(inputs) is not None
    rolled = ((live.server_deployment if pods_of_its_own else live.proxy_deployment) or {}).get("status") or {}
    answer = live.answer
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
        url=None if taken else inputs.url,
        external_urls=publishing.external_urls(
            inputs, service=live.service, ingress=live.ingress, http_route=live.http_route, nodes=_nodes(inputs, live)
        )
        or None,
        replicas=rolled.get("replicas", 0),
        ready_replicas=rolled.get("readyReplicas", 0),
        ready=f"{rolled.get('readyReplicas', 0)}/{rollout.wanted(inputs, live)}",
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
        **rollout.counts(live),
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
    workload = rollout.rollout(T.WORKLOAD_READY, maker, its_pods, wanted=wanted)
    own_proxy = live.proxy_deployment is not None
    proxied = own_proxy or bool(live.proxy_pods)
    available = handshakes.available(live, workload, proxied=proxied, apart=not live.server_pods)
    if wanted == 0:
        available = Condition(T.AVAILABLE, "False", Reason.SCALED_TO_ZERO, "nothing runs")
    proxy = [rollout.proxy(live), handshakes.policy(live)] if own_proxy else []
    return [available, handshakes.degraded(live, available), workload, *proxy]


def _conditions(inputs: Inputs, live: Live) -> list[Condition]:
    workload = rollout.workload(inputs, live)
    service = publication.service(inputs, live)
    stopped = _stopped(inputs)
    apart = shape.workload(inputs) is None or shape.sidecar(inputs)
    available = stopped or handshakes.available(live, workload, proxied=has_proxy(inputs), apart=apart)
    handing_over = [Condition(T.READY, "False", Reason.ROLLING_OUT, live.handing_over)] if live.handing_over else []
    if handing_over and available.status != "True":
        available = replace(handing_over[0], type=T.AVAILABLE, status="True")
    required = [_objects(live), service]
    if not (shape.sidecar(inputs) and workload.reason in _ON_ITS_WAY):
        required.append(workload)
    proxied = []
    if has_proxy(inputs):
        proxy = replace(workload, type=T.PROXY_READY) if shape.sidecar(inputs) else rollout.proxy(live)
        proxied = [proxy, handshakes.unruled(inputs) or handshakes.policy(live)]
        if proxied[0].reason not in _ON_ITS_WAY:
            required.append(proxied[0])
    # a proxy waits for the server to answer: why that does not answer says more than that the proxy waits
    published = [*publication.ingress(inputs, live), *publication.http_route(inputs, live)]
    required += [available, handshakes.every_endpoint(inputs, live), *proxied, workload]
    required += [c for c in published if c.reason is not Reason.NOT_SUPPORTED_HERE]
    required += handing_over
    ready = replace(stopped, type=T.READY) if stopped else _ready(required)
    return [
        ready,
        available,
        _progressing([workload, *proxied, available, *handing_over]),
        handshakes.degraded(live, available),
        workload,
        service,
        *published,
        *proxied,
        handshakes.tools(live, available),
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


def _progressing(facts: Sequence[Condition]) -> Condition:
    moving = next((c for c in facts if c.status == "False" and c.reason in _ON_ITS_WAY), None)
    if moving is not None:
        return Condition(T.PROGRESSING, "True", moving.reason, moving.message)
    return Condition(T.PROGRESSING, "False", Reason.ROLLED_OUT)


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
