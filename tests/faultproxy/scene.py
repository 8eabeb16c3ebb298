"""A namespace, the toy controllers that work on it, and what it should come to."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rig.api import Object, wait_for
from rig.testcluster import RigCluster
from tests.faultproxy import toy
from tests.faultproxy.endstate import KINDS, Snapshot, State, wait_settled
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.toyprocess import ToyProcess

Toys = Sequence[Object]


class Scene:
    """One namespace; `replicas` toy controllers, each behind a proxy of its own. Leaves no process behind."""

    def __init__(
        self, cluster: RigCluster, references: "References", *, replicas: int = 1, options: Sequence[str] = ()
    ) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.namespace = cluster.namespace("faults")
        self._references = references
        self._stack = ExitStack()
        self._stack.callback(cluster.delete_namespace, self.namespace)
        self.proxies = [self._stack.enter_context(FaultProxy.start(cluster.kubeconfig)) for _ in range(replicas)]
        self.toys = [self._stack.enter_context(ToyProcess(proxy, self.namespace, *options)) for proxy in self.proxies]

    def close(self) -> None:
        self._stack.close()

    @property
    def proxy(self) -> FaultProxy:
        return self.proxies[0]

    @property
    def toy(self) -> ToyProcess:
        return self.toys[0]

    def path(self, kind: str, name: str = "") -> str:
        collection = KINDS[kind].format(self.namespace)
        return f"{collection}/{name}" if name else collection

    def want(self, toys: Toys) -> None:
        """As a user would: these toys with these specs, and no others."""
        names = {item["metadata"]["name"] for item in toys}
        for item in self.api.items(self.path("Toy")):
            if item["metadata"]["name"] not in names:
                self.api.delete(self.path("Toy", item["metadata"]["name"]))
        for item in toys:
            self.api.apply(item, namespace=self.namespace)

    def settle(self, toys: Toys, *, seconds: float = 90.0) -> Snapshot:
        """Waits until the namespace is what a run without faults makes of these toys; no object more or less."""
        return wait_settled(self.api, self.namespace, self._references.of(toys), seconds=seconds)[0]

    def expected(self, toys: Toys) -> State:
        return self._references.of(toys)

    def is_settled(self, toys: Toys) -> bool:
        found = self.snapshot()
        return found.settled() and found.state == self._references.of(toys)

    def started(self, toys: Toys) -> Snapshot:
        """With the toys wanted, the controllers started and everything settled."""
        self.want(toys)
        for process in self.toys:
            process.start()
        return self.settle(toys)

    def snapshot(self) -> Snapshot:
        return Snapshot.of(self.api, self.namespace)


class References:
    """What becomes of toys when nothing goes wrong, found out once for each set of specs."""

    def __init__(self, cluster: RigCluster) -> None:
        self._cluster = cluster
        self._known: dict[str, State] = {}

    def of(self, toys: Toys) -> State:
        key = json.dumps(list(toys), sort_keys=True)
        if key not in self._known:
            self._known[key] = self._found_out(toys)
        return self._known[key]

    def _found_out(self, toys: Toys) -> State:
        if not toys:
            return {}
        scene = Scene(self._cluster, self)
        try:
            scene.want(toys)
            scene.toy.start()
            children = sum(len(toy.desired(item)) for item in toys)

            def done() -> bool:
                found = scene.snapshot()
                return found.settled() and len(found.objects) == len(toys) + children

            wait_for("a run without faults to settle", done, seconds=90)
            scene.toy.stop()
            return scene.snapshot().state
        finally:
            scene.close()


@dataclass(frozen=True)
class Idle:
    """A scene that has settled and in which nobody wants anything since."""

    scene: Scene
    since: float
    mark: int
