"""What people do by hand to children is undone, soon; what nobody touched is left alone."""

import statistics
import time

import pytest

from rig.api import wait_for
from tests.faultproxy.scene import Idle, Scene
from tests.faultproxy.toy import toy

TOYS = 17
HANDS = 50
LONGEST = 2.0
"""Seconds, on a machine that does what it is asked at once; on one that is slow, so many requests of the test's own."""
REQUESTS = 20


def test_fifty_children_deleted_or_edited_by_hand_are_repaired_within_two_seconds(scene: Scene) -> None:
    wanted = [toy(f"t{number}") for number in range(TOYS)]
    uids = scene.started(wanted).uids
    mark = scene.proxy.mark
    acted: dict[tuple[str, str], float] = {}
    asked: list[float] = []
    edited: list[str] = []
    for number in range(HANDS):
        kind = ("ConfigMap", "Service", "Deployment")[number % 3]
        name = f"t{number // 3}"
        path = scene.path(kind, name)
        began = time.monotonic()
        if number % 2:
            scene.api.delete(path)
        else:
            change = (
                {"data": {"text": "mine"}}
                if kind == "ConfigMap"
                else {"metadata": {"labels": {"fairwaytest.dev/toy": "x"}}}
            )
            scene.api.merge(path, change)
            edited.append(f"{kind}/{name}")
        acted[path, name] = time.monotonic()
        asked.append(acted[path, name] - began)
    found = scene.settle(wanted)
    repairs = {}
    for entry in scene.proxy.log.writes(since=mark):
        path = entry.request.target.partition("?")[0]
        if (path, entry.request.name) in acted and entry.done:
            repairs[path, entry.request.name] = entry.ended - acted[path, entry.request.name]
    assert repairs.keys() == acted.keys()
    *_, slowest = seconds = sorted(repairs.values())
    print(f"{HANDS} repaired, p50 {seconds[HANDS // 2]:.2f} s, p99 {slowest:.2f} s")
    allowed = max(LONGEST, REQUESTS * statistics.median(asked))
    assert slowest <= allowed, f"the slowest repair took {slowest:.2f} s of {allowed:.2f} s"
    # Edits are undone in place.
    assert {name: found.uids[name] for name in edited} == {name: uids[name] for name in edited}
    # One write for each hand; what nobody touched was not written.
    assert len(scene.proxy.log.writes(since=mark)) == HANDS
    scene.toy.stop()
    assert scene.toy.counts()["noop"] == 0


def test_a_restart_on_a_settled_namespace_writes_nothing(scene: Scene) -> None:
    wanted = [toy(f"t{number}", pages=number) for number in range(5)]
    scene.started(wanted)
    scene.toy.stop()
    mark = scene.proxy.mark
    scene.toy.start()
    wait_for("the caches to be filled", lambda: "caches are filled" in scene.toy.output(), seconds=60)
    time.sleep(2)
    assert [str(entry) for entry in scene.proxy.log.writes(since=mark)] == []
    # It is awake all the same.
    wanted[0] = toy("t0", text="changed")
    scene.want(wanted)
    scene.settle(wanted)


def is_idle(idle: Idle, *, seconds: float, most_requests: int) -> None:
    time.sleep(max(0.0, idle.since + seconds - time.monotonic()))
    assert idle.scene.toy.running
    assert [str(entry) for entry in idle.scene.proxy.log.writes(since=idle.mark)] == []
    # Nor is anything polled: watches stay open for minutes.
    seen = [entry for entry in idle.scene.proxy.log if entry.request.number > idle.mark]
    assert len(seen) <= most_requests, "\n".join(map(str, seen))
    idle.scene.toy.stop()
    assert idle.scene.toy.counts()["noop"] == 0


def test_for_a_minute_of_idleness_nothing_is_written(idle: Idle) -> None:
    is_idle(idle, seconds=60, most_requests=4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_for_ten_minutes_of_idleness_nothing_is_written(scene: Scene) -> None:
    scene.started([toy(f"t{number}", pages=number % 3) for number in range(100)])
    # Each of four watches lives at least five minutes.
    is_idle(Idle(scene, time.monotonic(), scene.proxy.mark), seconds=600, most_requests=12)
