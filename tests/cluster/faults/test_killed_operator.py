"""SIGKILL at the writes of the real operator: each next start goes on from there and comes to the same end."""

import itertools
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairway.controllers.resources import MCP_SERVER
from rig.api import wait_for
from rig.testcluster import RigCluster
from tests.cluster.controllers.conftest import HANDS_OFF, SERVERS, Operator
from tests.cluster.controllers.state import KINDS, normal
from tests.cluster.controllers.test_operator import TOOLS
from tests.faultproxy import FaultProxy, Rule, Signal, When, writes
from tests.faultproxy.endstate import difference

POSITIONS = (When.AFTER_RESPONSE, When.AFTER_SEND, When.BEFORE_SEND)
STAGES: Mapping[str, dict[str, Any]] = {
    "create": {**TOOLS, "config": {"LEVEL": "info"}, "replicas": 2},
    "update": {
        "inlineTools": {"python": "def sub(a: int) -> int:\n    return a\n"},
        "config": {"LEVEL": "debug"},
        "replicas": 3,
    },
    "no proxy": {**TOOLS, "proxy": {"mode": "none"}},
    "sidecar": {**TOOLS, "proxy": {"mode": "sidecar"}},
    "standalone": {**TOOLS, "ingress": {"enabled": True}, "autoscaling": {"maxReplicas": 3}},
}
"""One after the other, each from what the one before it left."""
SHORT = ("create", "update", "no proxy")


def pause() -> None:
    """Looking at all objects costs the API server more than their operator does."""
    time.sleep(0.5)


class Stage:
    """One server in a namespace of its own, an operator that is there for nobody else, and a proxy that kills it."""

    def __init__(self, rig: RigCluster, kubeconfig: Path, scratch: Path) -> None:
        self.rig, self.namespace = rig, rig.namespace("killed")
        self._stack = ExitStack()
        self._stack.callback(rig.delete_namespace, self.namespace)
        self.proxy = self._stack.enter_context(FaultProxy.start(kubeconfig))
        scratch.mkdir()
        (scratch / "operator.yaml").touch()
        only = ("--selector", HANDS_OFF, "--namespaces", self.namespace)
        self.operator = Operator(rig, self.proxy.kubeconfig, scratch / "log", scratch / "operator.yaml", options=only)

    def close(self) -> None:
        self.kill()
        self._stack.close()

    def want(self, spec: dict[str, Any] | None) -> None:
        path = f"{SERVERS.format(self.namespace)}/hello"
        if spec is None:
            self.rig.api.delete(path)
            return
        metadata = {"name": "hello", "labels": {HANDS_OFF: "true"}}
        obj = {"apiVersion": MCP_SERVER.api_version, "kind": MCP_SERVER.kind, "metadata": metadata, "spec": spec}
        self.rig.api.apply(obj, namespace=self.namespace)

    def start(self) -> None:
        self.operator.start()
        assert self.operator.process is not None
        self.proxy.client_pid = self.operator.process.pid

    @property
    def died(self) -> bool:
        assert self.operator.process is not None
        return self.operator.process.poll() == -signal.SIGKILL

    def kill(self) -> None:
        if self.operator.process is not None:
            self.operator.process.kill()
            self.operator.process.wait()

    def objects(self) -> dict[str, Any]:
        found = {}
        for kind in KINDS:
            for item in self.rig.api.items(kind.path(self.namespace, None)):
                name = item["metadata"]["name"]
                if name not in ("kube-root-ca.crt", "default"):
                    found[f"{kind.kind}/{name}"] = item
        return found

    def state(self) -> dict[str, Any]:
        """What must be the same after any two runs, whatever the namespace is called."""
        return {name: normal(item, HERE=self.namespace) for name, item in self.objects().items()}

    def tracebacks(self) -> list[str]:
        return [line for line in self.operator.log.read_text().splitlines() if "Traceback" in line]


class Undisturbed:
    """What each stage comes to when nothing goes wrong, found out when it is asked for."""

    def __init__(self, operator: Operator, scratch: Path) -> None:
        self._stage = Stage(operator.rig, operator.kubeconfig, scratch / "stage")
        self._waiting = iter(STAGES.items())
        self._known: dict[str, dict[str, Any]] = {}
        self._stage.start()

    def __getitem__(self, wanted: str) -> dict[str, Any]:
        while wanted not in self._known:
            name, spec = next(self._waiting)
            self._stage.want(spec)
            wait_for(f"the stage {name}", self._settled, seconds=60, meanwhile=pause)
            self._known[name] = self._stage.state()
        return self._known[wanted]

    def close(self) -> None:
        self._stage.close()

    def _settled(self) -> bool:
        """The status is of the newest spec and of pods that cannot run here, and nothing is written any more."""
        mark, path = self._stage.proxy.mark, f"{SERVERS.format(self._stage.namespace)}/hello"
        mine = self._stage.rig.api.get(path)
        status = mine.get("status") or {}
        ready = next((c["reason"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")
        if status.get("observedGeneration") != mine["metadata"]["generation"] or ready != "Unschedulable":
            return False
        time.sleep(2.5)  # longer than changes of status that are no news are held back
        return not self._stage.proxy.log.writes(since=mark)


@pytest.fixture(scope="module")
def undisturbed(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    found = Undisturbed(operator, tmp_path_factory.mktemp("undisturbed"))
    yield found
    found.close()


@pytest.fixture
def stage(operator: Operator, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(operator.rig, operator.kubeconfig, tmp_path / "stage")
    yield made
    made.close()


def through(stage: Stage, undisturbed: Undisturbed, stages: Iterable[str], *, nth: int, first: int = 0) -> int:
    """These stages, with a death at every `nth` write; how many there were."""
    deaths, positions = 0, itertools.islice(itertools.cycle(POSITIONS), first, None)
    for name in stages:
        expected = undisturbed[name]
        before = {ref: obj["metadata"]["uid"] for ref, obj in stage.objects().items()}
        stage.want(STAGES[name])
        while went_on_after_a_death(stage, expected, next(positions), nth=nth):
            deaths += 1
            assert deaths < 200, "there is no end to it"
        after = {ref: obj["metadata"]["uid"] for ref, obj in stage.objects().items()}
        kept = before.keys() & after.keys()
        assert {ref: after[ref] for ref in kept} == {ref: before[ref] for ref in kept}, name
    assert stage.tracebacks() == []
    assert stage.proxy.log.careless_deletes() == []
    mark = stage.proxy.mark
    stage.want(None)
    stage.start()
    wait_for("everything to be gone", lambda: not stage.objects(), seconds=60, meanwhile=pause)
    assert stage.proxy.log.writes(since=mark) == []
    return deaths


def went_on_after_a_death(stage: Stage, expected: dict[str, Any], when: When, *, nth: int) -> bool:
    """One start of the operator, until it is killed or everything is as expected; whether it was killed."""
    # a write that was killed before it left is no progress: the next one goes after it
    stage.proxy.use(Rule(writes(), Signal(signal.SIGKILL, when), nth=nth + (when is When.BEFORE_SEND)))
    stage.start()
    try:
        wait_for("the end", lambda: stage.died or stage.state() == expected, seconds=60, meanwhile=pause)
    except Exception as error:
        raise AssertionError(f"{error}\n{difference(stage.state(), expected)}") from None
    died = stage.died
    stage.proxy.calm()
    stage.kill()
    return died


@pytest.mark.timeout(300)
def test_deaths_while_a_server_is_made_changed_and_loses_its_proxy_leave_no_trace(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    print(f"{through(stage, undisturbed, SHORT, nth=4)} deaths")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(len(POSITIONS)))
def test_a_death_at_every_write_through_all_shapes_of_a_server_leaves_no_trace(
    stage: Stage, undisturbed: Undisturbed, first: int
) -> None:
    print(f"{through(stage, undisturbed, STAGES, nth=1, first=first)} deaths")
