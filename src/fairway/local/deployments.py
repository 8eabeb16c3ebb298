"""The deployment controller of this machine: makes and retires the pods that the world's Deployments want."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from fairway.kube.resource import DEPLOYMENT, POD, Obj
from fairway.local import pod as pods
from fairway.local import rollout
from fairway.local.rollout import PodFact
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.store import Change

PortsFor = Callable[[Mapping[str, Any]], Mapping[int, int]]
"""Where on this machine a new pod of the Deployment has each of its container ports."""

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes, as in Kubernetes
_SUFFIX_LENGTH = 5


class Deployments:
    """Looks at a Deployment whenever it or one of its pods changed, and takes one step of its rollout.

    A pod is retired by its deletionTimestamp; whoever runs the pod deletes the object when the process is gone.
    """

    def __init__(self, world: MemoryWorld, *, ports_for: PortsFor) -> None:
        self._world = world
        self._ports_for = ports_for
        self._dirty: set[tuple[str, str]] = set()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Works until cancelled."""
        unsubscribe = [
            self._world.subscribe(DEPLOYMENT, self._deployment_changed),
            self._world.subscribe(POD, self._pod_changed),
        ]
        for deployment in self._world.store.list(DEPLOYMENT):
            self._mark(deployment["metadata"]["namespace"], deployment["metadata"]["name"])
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._dirty:
                    self._settle(*self._dirty.pop())
        finally:
            for stop in unsubscribe:
                stop()

    def _deployment_changed(self, change: Change) -> None:
        self._mark(change.obj["metadata"]["namespace"], change.obj["metadata"]["name"])

    def _pod_changed(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner["kind"] == DEPLOYMENT.kind:
                self._mark(metadata["namespace"], owner["name"])

    def _mark(self, namespace: str, name: str) -> None:
        self._dirty.add((namespace, name))
        self._wake.set()

    def _settle(self, namespace: str, name: str) -> None:
        deployment = self._world.store.get(DEPLOYMENT, namespace, name)
        if deployment is None:
            return
        spec = deployment["spec"]
        decision = rollout.decide(
            self._facts(deployment), replicas=spec.get("replicas", 1), strategy=rollout.strategy_of(spec)
        )
        for pod_name in decision.delete:
            self._retire(namespace, pod_name)
        for _ in range(decision.create):
            self._world.put(pods.from_template(deployment, suffix=_suffix(), host_ports=self._ports_for(deployment)))
        status = rollout.status_of(deployment, self._facts(deployment))
        self._world.set_status(DEPLOYMENT.ref(namespace, name), status)

    def _facts(self, deployment: Obj) -> list[PodFact]:
        revision = pods.template_hash(deployment)
        return [
            PodFact(
                name=pod["metadata"]["name"],
                current=pod["metadata"]["labels"].get(pods.HASH_LABEL) == revision,
                ready=pods.is_ready(pod),
                created=pod["metadata"]["creationTimestamp"],
            )
            for pod in self._world.store.owned_by(deployment["metadata"]["uid"], POD)
            if not pods.is_gone(pod)
        ]

    def _retire(self, namespace: str, name: str) -> None:
        pod = self._world.store.get(POD, namespace, name)
        if pod is not None:
            self._world.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": pods.timestamp()}})


def _suffix() -> str:
    return "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))  # noqa: S311  a name, no secret
