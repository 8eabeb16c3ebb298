"""How far what makes pods has come: the server's own, and its proxies. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairway.api.conditions import Condition, ConditionType, Reason
from fairway.controllers.mcpserver import pods, shape
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.scaling import autoscaled

Obj = Mapping[str, Any]
T = ConditionType

_NOT_TAKEN_UP = "the workload's change has not been taken up yet"


def workload(inputs: Inputs, live: Live) -> Condition:
    if inputs.unmet is not None:
        return Condition(T.WORKLOAD_READY, "False", inputs.unmet.reason, inputs.unmet.message)
    if shape.workload(inputs) is None:
        return Condition(T.WORKLOAD_READY, "True", Reason.NOT_USED, "somebody else runs it")
    found = rollout(
        T.WORKLOAD_READY,
        live.server_deployment,
        live.server_pods,
        wanted=wanted(inputs, live),
        # beside a sidecar, the pod waits for that: whether the server answers is for it to say
        port=inputs.server.spec.port if shape.listens(inputs) and not shape.sidecar(inputs) else None,
    )
    if found.reason is Reason.IMAGE_PULL_BACK_OFF and live.image is not None:
        return replace(found, message=f"{found.message} ({live.image.explained})")
    return found


def wanted(inputs: Inputs, live: Live) -> int:
    """How many there should be; where an autoscaler decides, what it has decided."""
    if not (autoscaled(inputs) and live.publishes):
        return shape.replicas(inputs) if shape.workload(inputs) is not None else shape.proxy_replicas(inputs)
    return int(((live.server_deployment or {}).get("spec") or {}).get("replicas", 1))


def proxy(live: Live) -> Condition:
    wanted = ((live.proxy_deployment or {}).get("spec") or {}).get("replicas", 1)
    found = rollout(T.PROXY_READY, live.proxy_deployment, live.proxy_pods, wanted=wanted)
    return found if found.status == "True" else replace(found, message=f"proxy: {found.message}")


def rollout(
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


def counts(live: Live) -> dict[str, Any]:
    maker = live.server_deployment or live.proxy_deployment
    if maker is None:
        return {}
    rolled = maker.get("status") or {}
    ready = rolled.get("readyReplicas", 0)
    wanted = maker["spec"].get("replicas", 1)
    return {"replicas": rolled.get("replicas", 0), "readyReplicas": ready, "ready": f"{ready}/{wanted}"}
