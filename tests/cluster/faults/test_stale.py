"""A start on a view that is hundreds of revisions old: no wrong delete, nothing made twice, and the right end."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rig.api import Object, wait_for
from rig.testcluster import RigCluster
from tests.faultproxy import Requests, Rule, StaleList
from tests.faultproxy.scene import References, Scene
from tests.faultproxy.toy import toy

AGE = 500
MIDST = 20
# How long the old view lasts: long enough for everything that follows from it.
FROZEN = 2.0
CHILDREN = frozenset({"configmaps", "services", "deployments.apps"})
VIEWS = {
    "everything": CHILDREN | {"toys.fairwaytest.dev"},
    "the toys alone": frozenset({"toys.fairwaytest.dev"}),
    "the children alone": CHILDREN,
    "the config maps alone": frozenset({"configmaps"}),
}
THEN = (
    toy("grown", pages=0),
    toy("shrunk", pages=2),
    toy("changed", text="old", port=8080, replicas=1),
    toy("remade", pages=1),
    toy("gone", pages=1),
    toy("robbed", pages=1),
)
NOW = (
    toy("grown", pages=2),
    toy("shrunk", pages=0),
    toy("changed", text="new", port=9090, replicas=3),
    toy("remade", pages=1),
    toy("made"),
    toy("robbed", pages=0),
)
# Stands where a child of `robbed` once stood, and is nobody's child.
FOREIGN: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "robbed-0"},
    "data": {"mine": "yes"},
}


@dataclass(frozen=True)
class History:
    """A namespace that was at `THEN` until revision `then`, and settled at `NOW` with revision `settled`."""

    scene: Scene
    then: int
    settled: int

    def uids(self) -> dict[str, str]:
        return self.scene.snapshot().uids

    def settle(self) -> None:
        wait_for("the present state", self.is_settled, seconds=90)

    def is_settled(self) -> bool:
        found = self.scene.snapshot()
        state = dict(found.state)
        foreign = state.pop("ConfigMap/robbed-0", {"data": None, "metadata": {}})
        untouched = foreign["data"] == FOREIGN["data"] and not foreign["metadata"]["ownerReferences"]
        return untouched and found.settled() and state == self.scene.expected(NOW)

    def repair(self) -> None:
        """After a test that failed, the next one still deserves a fair start."""
        if not self.is_settled():
            self.scene.api.apply(FOREIGN, namespace=self.scene.namespace)
            self.scene.toy.start()
            self.settle()
            self.scene.toy.stop()


@pytest.fixture(scope="module")
def history(rig_api: RigCluster, references: References) -> Iterator[History]:
    scene = Scene(rig_api, references)
    try:
        scene.started(THEN)
        then = revision(scene)
        scene.want([item for item in THEN if item["metadata"]["name"] not in ("remade", "gone")])
        wait_for("the collection of what was deleted", lambda: not left_of(scene, "remade", "gone"), seconds=60)
        scene.want(NOW)
        scene.settle(NOW)
        scene.toy.stop()
        scene.api.apply(FOREIGN, namespace=scene.namespace)
        settled = revision(scene)
        pass_revisions(scene, AGE - (settled - then))
        yield History(scene, then, settled)
    finally:
        scene.close()


def revision(scene: Scene) -> int:
    return int(scene.api.get(scene.path("Toy"))["metadata"]["resourceVersion"])


def left_of(scene: Scene, *names: str) -> list[str]:
    return [name for name in scene.snapshot().objects if name.partition("/")[2].partition("-")[0] in names]


def pass_revisions(scene: Scene, number: int) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/secrets"
    scene.api.post(path, {"metadata": {"name": "marker"}})
    access = scene.api.access
    # One connection for all: most of the time of a single call goes into greeting the server.
    connection = http.client.HTTPSConnection(access.server.removeprefix("https://"), context=access.tls, timeout=20)
    headers = {"Content-Type": "application/merge-patch+json"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    for count in range(number):
        patch = json.dumps({"metadata": {"labels": {"touched": str(count)}}})
        connection.request("PATCH", f"{path}/marker", patch, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()


def start_in_the_past(history: History, view: frozenset[str], at: int) -> None:
    """Returns when the view of that revision has been shown, acted on, and is over."""
    scene = history.scene
    mark = scene.proxy.mark
    old = StaleList(at=at, frozen=FROZEN)
    scene.proxy.use(Rule(Requests(verbs={"list", "watch"}, resources=view, initial_events=True), old, times=len(view)))
    scene.toy.start()
    scene.proxy.log.wait(
        "the old lists",
        lambda log: (
            sum("StaleList" in e.fault and e.upstream == 200 for e in log if e.request.number > mark) == len(view)
        ),
        seconds=60,
    )
    shown = [e.fault for e in scene.proxy.log if e.request.number > mark and e.fault]
    assert all(fault.endswith(f"at revision {at}") for fault in shown), shown
    time.sleep(FROZEN)


def destroys_nothing(history: History, view: frozenset[str], at: int) -> None:
    scene = history.scene
    uids = history.uids()
    mark = scene.proxy.mark
    try:
        start_in_the_past(history, view, at)
        deletes = scene.proxy.log.matching(Requests(verbs={"delete", "deletecollection"}), since=mark)
        assert [str(entry) for entry in deletes if entry.done] == []
        history.settle()
    finally:
        scene.proxy.calm()
        scene.toy.kill()
    now = history.uids()
    assert [name for name, uid in uids.items() if now.get(name) != uid] == []
    assert scene.proxy.log.careless_deletes() == []
    assert scene.toy.tracebacks() == []


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_start_on_an_old_view_destroys_nothing(history: History, view: frozenset[str]) -> None:
    history.repair()
    assert revision(history.scene) - history.then >= AGE
    destroys_nothing(history, view, history.then)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_nor_does_one_on_a_view_from_the_midst_of_the_changes(history: History, view: frozenset[str]) -> None:
    """Half of what was wanted done, and something of it twice over: as old as any view that there can have been."""
    history.repair()
    for at in range(history.then, history.settled, max(1, (history.settled - history.then) // MIDST)):
        destroys_nothing(history, view, at)
