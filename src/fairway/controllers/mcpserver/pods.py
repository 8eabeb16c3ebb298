"""What the pods of one component say of themselves, turned into a reason and a sentence. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairway.api import names
from fairway.api.conditions import Reason

Obj = Mapping[str, Any]

_IMAGE_REASONS = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_LOCAL_REASONS = {"PortTaken": Reason.PORT_TAKEN, "NeedsContainerRuntime": Reason.NEEDS_CONTAINER_RUNTIME}
_STARTS_NOT = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_MESSAGE_LIMIT = 400


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a component's pods are not all ready."""

    reason: Reason
    message: str


def looked_at(pod: Obj) -> dict[str, Any]:
    """As much of a pod as anybody here reads: a thousand whole pods weigh more than all that is made for them."""
    spec = pod.get("spec") or {}
    return {
        "apiVersion": pod["apiVersion"],
        "kind": pod["kind"],
        "metadata": {
            **_only(pod["metadata"], _OF_METADATA),
            "annotations": _only(pod["metadata"].get("annotations") or {}, (names.ANNOTATION_RUNCONFIG_HASH,)),
        },
        "spec": {
            "containers": [_only(container, _OF_CONTAINERS) for container in spec.get("containers") or ()],
            "volumes": [volume for volume in spec.get("volumes") or () if volume.get("name") == names.RUNCONFIG_VOLUME],
        },
        "status": {
            **_only(_status(pod), _OF_STATUS),
            "conditions": [_only(condition, _OF_CONDITIONS) for condition in _status(pod).get("conditions") or ()],
            **{
                kind: [_only(container, _OF_STATUSES) for container in _status(pod).get(kind) or ()]
                for kind in ("initContainerStatuses", "containerStatuses")
            },
        },
    }


_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp")
_OF_CONTAINERS = ("name", "ports", "readinessProbe")
_OF_STATUS = ("phase", "podIP", "hostIP")
_OF_CONDITIONS = ("type", "status", "message")
_OF_STATUSES = ("name", "image", "state", "lastState", "restartCount")


def _only(holder: Obj, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: holder[field] for field in fields if field in holder}


def is_gone(pod: Obj) -> bool:
    """Whether the pod is on its way out and counts no more."""
    return bool(pod["metadata"].get("deletionTimestamp")) or _phase(pod) in ("Succeeded", "Failed")


def is_ready(pod: Obj) -> bool:
    return not is_gone(pod) and any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in _status(pod).get("conditions") or ()
    )


def is_well_within(pod: Obj) -> bool:
    """Whether it is ready by a probe that runs within it: nobody had to reach it from outside for that."""
    probes = [c.get("readinessProbe") for c in pod["spec"]["containers"] if c.get("name") == names.CONTAINER_SERVER]
    return is_ready(pod) and any("exec" in (probe or {}) for probe in probes)


def is_running(pod: Obj) -> bool:
    return not is_gone(pod) and bool(_status(pod).get("podIP")) and any("running" in s for s in _states(pod))


def restarts(pod: Obj) -> int:
    return sum(c.get("restartCount", 0) for c in _containers(pod))


def problem(pods: Sequence[Obj], *, port: int | None = None) -> Problem | None:
    """The most telling trouble among the pods, newest first; None if every pod is ready.

    `port` is the one that the readiness probe dials, for pods that run and do not answer on it.
    """
    standing = sorted(
        (pod for pod in pods if not is_gone(pod) and not is_ready(pod)),
        key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]),
        reverse=True,
    )
    found = [p for pod in standing if (p := _of_pod(pod, port)) is not None]
    mild = (Reason.PENDING, Reason.NOT_LISTENING)
    return next((p for p in found if p.reason not in mild), found[0] if found else None)


def _of_pod(pod: Obj, port: int | None) -> Problem | None:
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Problem(Reason.UNSCHEDULABLE, _short(condition.get("message") or "no node fits the pod"))
    statuses = _containers(pod)
    for status in statuses:
        found = _of_container(status)
        if found is not None:
            return found
    if statuses and all("running" in (s.get("state") or {}) for s in statuses):
        crashed = next((s for s in statuses if _last_end(s).get("exitCode")), None)
        if crashed is not None:  # between two crashes it is no other trouble than in them
            return _again(_crashed(_last_end(crashed), crashed.get("restartCount", 0)))
        if port is not None:
            return Problem(Reason.NOT_LISTENING, _silent(port))
    return Problem(Reason.PENDING, f"pod {pod['metadata']['name']} is starting")


def _silent(port: int) -> str:
    return f"the container runs, but nothing answers on port {port} (spec.port); on 127.0.0.1 alone nobody reaches it"


def _of_container(status: Obj) -> Problem | None:
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _IMAGE_REASONS:
        return Problem(
            Reason.IMAGE_PULL_BACK_OFF, _short(f"image {status.get('image', '')}: {waiting.get('message') or reason}")
        )
    end = state.get("terminated") or (_last_end(status) if reason == "CrashLoopBackOff" else {})
    if refused := _not_permitted(waiting) or _not_permitted(end):
        return Problem(Reason.IMAGE_NEEDS_ROOT, _short(f"image {status.get('image', '')}: {refused}"))
    if reason in _CONFIG_REASONS:
        return _not_configured(status.get("image", ""), waiting.get("message") or reason)
    if reason in _LOCAL_REASONS:
        return Problem(_LOCAL_REASONS[reason], _short(waiting.get("message") or reason))
    if end:
        found = _crashed(end, status.get("restartCount", 0))
        fetching = status.get("name") == names.CONTAINER_FETCH
        return replace(found, reason=Reason.PACKAGE_NOT_FETCHED) if fetching else found
    return None


def _not_configured(image: str, said: str) -> Problem:
    if "runAsNonRoot" not in said and "breaks non-root policy" not in said:
        return Problem(Reason.CONTAINER_CONFIG_ERROR, _short(said))
    # the kubelet's own words are about the pod, and what has to change is the image
    why = "names its user without a number, so that it may be root" if "non-numeric" in said else "runs as root"
    cure = "set spec.securityContext.runAsUser, or give the image another user"
    return Problem(Reason.IMAGE_NEEDS_ROOT, _short(f"image {image} {why}: {cure}"))


def _last_end(status: Obj) -> Obj:
    return (status.get("lastState") or {}).get("terminated") or {}


def _not_permitted(state: Obj) -> str:
    """What the node said, if it may not start the program as the user that it runs as; empty otherwise."""
    message = str(state.get("message") or "")
    return message if state.get("reason") in _STARTS_NOT and "permission denied" in message else ""


def _crashed(terminated: Obj, restart_count: int) -> Problem:
    again = f", restarted {restart_count} times" if restart_count > 1 else ""
    if terminated.get("reason") == "OOMKilled":
        return Problem(Reason.OOM_KILLED, f"the container used more memory than its limit and was killed{again}")
    last_words = _last_line(terminated.get("message") or "")
    said = f": {last_words}" if last_words else ""
    return Problem(
        Reason.CRASH_LOOP_BACK_OFF, _short(f"the container exited with code {terminated.get('exitCode')}{again}{said}")
    )


def _again(crash: Problem) -> Problem:
    tail = "; it runs again, and is not ready"
    return replace(crash, message=crash.message[: _MESSAGE_LIMIT - len(tail)] + tail)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"


def _status(pod: Obj) -> Obj:
    return pod.get("status") or {}


def _phase(pod: Obj) -> str:
    return str(_status(pod).get("phase", ""))


def _containers(pod: Obj) -> Sequence[Obj]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _states(pod: Obj) -> Iterable[Obj]:
    return [s.get("state") or {} for s in _status(pod).get("containerStatuses") or ()]
