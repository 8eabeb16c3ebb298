"""Pod objects: made from a Deployment's template, and given the status that a kubelet would write."""

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

Obj = dict[str, Any]

HOST = "127.0.0.1"
NODE = "this-machine"
HASH_LABEL = "pod-template-hash"


def timestamp() -> str:
    """Now, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def template_hash(deployment: Mapping[str, Any]) -> str:
    """Pods with this label were made from this very template; scaling does not change it."""
    canonical = orjson.dumps(deployment["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:10]


def from_template(deployment: Mapping[str, Any], *, suffix: str, host_ports: Mapping[int, int]) -> Obj:
    """A new pod of this Deployment; `host_ports` says where on this machine each container port is."""
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    revision = template_hash(deployment)
    spec = copy.deepcopy(template["spec"])
    spec["nodeName"] = NODE
    for container in spec["containers"]:
        for port in container.get("ports") or ():
            port["hostPort"] = host_ports[port["containerPort"]]
            port["hostIP"] = HOST
    of_template = template.get("metadata") or {}
    annotations = of_template.get("annotations")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{revision}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": {**(of_template.get("labels") or {}), HASH_LABEL: revision},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [
                {
                    "apiVersion": deployment["apiVersion"],
                    "kind": deployment["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def container_ports(pod_spec: Mapping[str, Any]) -> list[int]:
    return [port["containerPort"] for c in pod_spec["containers"] for port in c.get("ports") or ()]


def host_ports(pod: Mapping[str, Any]) -> dict[int, int]:
    """Container port to port on this machine."""
    return {
        port["containerPort"]: port["hostPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
    }


def named_port(pod_spec: Mapping[str, Any], port: str | int) -> int | None:
    """The container port that a probe or Service means, which may be the port's name."""
    if isinstance(port, int):
        return port
    for container in pod_spec["containers"]:
        for candidate in container.get("ports") or ():
            if candidate.get("name") == port:
                return int(candidate["containerPort"])
    return None


def is_gone(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def serves(pod: Mapping[str, Any]) -> bool:
    """Whether it answers, be it on its way out or not."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_ready(pod: Mapping[str, Any]) -> bool:
    return not is_gone(pod) and serves(pod)


@dataclass(frozen=True, slots=True)
class Container:
    """One container as its runner sees it; `state` and `last` are what containerStatuses would hold."""

    name: str
    image: str
    state: Mapping[str, Any] = field(default_factory=lambda: waiting("ContainerCreating"))
    last: Mapping[str, Any] | None = None
    restarts: int = 0
    ready: bool = False

    def running(self, *, since: str) -> "Container":
        return replace(self, state={"running": {"startedAt": since}}, ready=False)

    def waits(self, reason: str, message: str = "") -> "Container":
        return replace(self, state=waiting(reason, message), ready=False)

    def crashed(self, terminated: Mapping[str, Any], *, wait: float) -> "Container":
        """It ended and will be started again after `wait` seconds; the count goes up with the restart itself."""
        message = f"back-off {wait:.0f}s restarting failed container {self.name}"
        return replace(self, state=waiting("CrashLoopBackOff", message), last={"terminated": terminated}, ready=False)

    def to_object(self) -> Obj:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": "running" in self.state,
            "restartCount": self.restarts,
            "state": dict(self.state),
            **({"lastState": dict(self.last)} if self.last else {}),
        }


def waiting(reason: str, message: str = "") -> Obj:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(*, exit_code: int, signal: int, started: str, finished: str, message: str, reason: str = "") -> Obj:
    """How one run of a container ended; a signal shows as 128 + its number, as from a container runtime."""
    return {
        "exitCode": 128 + signal if signal else exit_code,
        **({"signal": signal} if signal else {}),
        "reason": reason or ("Completed" if exit_code == 0 and not signal else "Error"),
        "startedAt": started,
        "finishedAt": finished,
        **({"message": message} if message else {}),
    }


def status_of(pod: Mapping[str, Any], containers: Sequence[Container], *, now: str) -> Obj:
    """Pod.status; transition times stay while a condition's status does."""
    before = pod.get("status") or {}
    ready = bool(containers) and all(c.ready for c in containers)
    started = any("running" in c.state or c.last for c in containers)
    unready = [c.name for c in containers if not c.ready]
    why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    return {
        "phase": "Running" if started else "Pending",
        "conditions": _conditions(
            before.get("conditions") or (),
            [
                ("PodScheduled", True, {}),
                ("Initialized", True, {}),
                ("ContainersReady", ready, {} if ready else why),
                ("Ready", ready, {} if ready else why),
            ],
            now=now,
        ),
        "hostIP": HOST,
        "podIP": HOST,
        "podIPs": [{"ip": HOST}],
        "startTime": before.get("startTime", now),
        "containerStatuses": [c.to_object() for c in containers],
    }


def _conditions(
    before: Iterable[Mapping[str, Any]], decided: Iterable[tuple[str, bool, Mapping[str, str]]], *, now: str
) -> list[Obj]:
    old = {c["type"]: c for c in before}
    conditions = []
    for kind, holds, why in decided:
        status = "True" if holds else "False"
        same = kind in old and old[kind]["status"] == status
        since = old[kind]["lastTransitionTime"] if same else now
        conditions.append({"type": kind, "status": status, "lastTransitionTime": since, **why})
    return conditions
