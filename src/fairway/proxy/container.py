"""Which run of a container there is to attach to, from what the API server says of its pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """A container from one start to its end: what is started again has another id."""

    pod_uid: str
    container_id: str


def running(pod: Mapping[str, Any] | None, *, name: str, container: str) -> Run | str:
    """The run that can be attached to now, or why there is none."""
    if pod is None:
        return f"there is no pod {name}"
    spec = _named(pod.get("spec", {}).get("containers"), container)
    if spec is None:
        return f"the pod {name} has no container {container}"
    if not spec.get("stdin"):
        return f"the container {container} of pod {name} takes no input: it has to say stdin: true"
    if spec.get("tty"):
        return f"the container {container} of pod {name} has a terminal, which changes lines: it has to say tty: false"
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    if metadata.get("deletionTimestamp"):
        return f"the pod {name} is being deleted"
    found = _named(status.get("containerStatuses"), container)
    if found is None:
        return f"the pod {name} waits{_why_it_waits(status)}"
    state = found.get("state") or {}
    if "running" in state and found.get("containerID"):
        return Run(str(metadata.get("uid", "")), str(found["containerID"]))
    return f"the container {container} of pod {name} {_how_it_is(state, found.get('lastState') or {})}"


def _named(items: Any, name: str) -> Mapping[str, Any] | None:
    return next((item for item in items or () if item.get("name") == name), None)


def _why_it_waits(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            return f" for a node: {condition.get('message') or condition.get('reason') or 'not scheduled'}"
    reason = status.get("message") or status.get("reason")
    return f": {reason}" if reason else " to be started"


def _how_it_is(state: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    ended = state.get("terminated")
    if ended is not None:
        return _how_it_ended(ended)
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason") or "ContainerCreating"
    message = f": {waiting['message']}" if waiting.get("message") else ""
    before = last.get("terminated")
    return f"waits ({reason}{message})" + (f"; before that it {_how_it_ended(before)}" if before else "")


def _how_it_ended(ended: Mapping[str, Any]) -> str:
    message = str(ended.get("message") or "").strip()
    said = f": {message[-300:]}" if message else ""
    return f"ended with exit code {ended.get('exitCode')} ({ended.get('reason') or 'no reason given'}){said}"
