"""How a Deployment gets from the pods it has to the pods it wants. Pure: Kubernetes' rules, without ReplicaSets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodFact:
    """What a rollout needs to know of one pod. Pods that are on their way out count no more and are not listed."""

    name: str
    current: bool
    """Whether the pod was made from the Deployment's present template."""
    ready: bool
    created: str = ""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How far a rollout may stray from the wanted number; `recreate` stops every old pod before it starts a new one."""

    surge: int = 1
    unavailable: int = 0
    recreate: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now; the next look at the pods decides what follows."""

    create: int = 0
    delete: tuple[str, ...] = ()


def strategy_of(spec: Obj) -> Strategy:
    """The strategy in a Deployment's spec, with Kubernetes' defaults (25 % each) and rounding."""
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return Strategy(surge=0, unavailable=0, recreate=True)
    rolling = strategy.get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    surge = _count(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    unavailable = _count(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    if surge == unavailable == 0:
        unavailable = 1  # a small percentage may round to nothing, and nothing could ever move
    return Strategy(surge=surge, unavailable=unavailable)


def _count(value: int | str, replicas: int, rounded: Any) -> int:
    if isinstance(value, str):
        return int(rounded(replicas * int(value.removesuffix("%")) / 100))
    return value


def decide(pods: Sequence[PodFact], *, replicas: int, strategy: Strategy) -> Decision:
    """One step towards `replicas` pods of the present template."""
    new = sorted((pod for pod in pods if pod.current), key=_expendable_first)
    old = sorted((pod for pod in pods if not pod.current), key=_expendable_first)
    surplus = tuple(pod.name for pod in new[: max(0, len(new) - replicas)])
    if strategy.recreate:
        if old:
            return Decision(delete=(*surplus, *(pod.name for pod in old)))
        return Decision(create=max(0, replicas - len(new)), delete=surplus)
    room = max(0, replicas + strategy.surge - len(pods))
    create = min(max(0, replicas - len(new)), room)
    return Decision(create=create, delete=(*surplus, *_old_that_may_go(new, old, replicas, strategy)))


def _old_that_may_go(
    new: Sequence[PodFact], old: Sequence[PodFact], replicas: int, strategy: Strategy
) -> tuple[str, ...]:
    """Old pods that serve nobody go first; ready ones only as far as enough ready pods are left."""
    least = max(0, replicas - strategy.unavailable)
    not_ready_new = sum(not pod.ready for pod in new)
    room = max(0, len(new) + len(old) - least - not_ready_new)
    idle = [pod.name for pod in old if not pod.ready][:room]
    serving = [pod.name for pod in old if pod.ready]
    spare = max(0, sum(pod.ready for pod in (*new, *old)) - least)
    return (*idle, *serving[: min(spare, room - len(idle))])


def _expendable_first(pod: PodFact) -> tuple[bool, str, str]:
    return (pod.ready, _inverted(pod.created), pod.name)


def _inverted(timestamp: str) -> str:
    """Sorts the youngest first: of two equals, the one that served longer stays."""
    return "".join(chr(0x10FFFF - ord(character)) for character in timestamp)


def status_of(deployment: Obj, pods: Sequence[PodFact]) -> dict[str, Any]:
    """Deployment.status as Kubernetes writes it: what is zero is left out."""
    ready = sum(pod.ready for pod in pods)
    counts = {
        "replicas": len(pods),
        "updatedReplicas": sum(pod.current for pod in pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, deployment["spec"].get("replicas", 1) - ready),
    }
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        **{name: count for name, count in counts.items() if count},
    }
