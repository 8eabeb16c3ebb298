"""What people do by hand to children is undone, soon; what nobody touched is left alone."""

import time

from rig.api import wait_for
from tests.faultproxy.scene import Idle, Scene
from tests.faultproxy.toy import toy

TOYS = 17
HANDS = 50
LONGEST = 2.0
IDLE_SECONDS = 60.0


def test_fifty_children_deleted_or_edited_by_hand_are_repaired_within_two_seconds(scene: Scene) -> None:
    wanted = [toy(f"t{number}") for number in range(TOYS)]
    uids = scene.started(wanted).uids
    mark = scene.proxy.mark
    acted: dict[tuple[str, str], float] = {}
    edited: list[str] = []
    for number in range(HANDS):
        kind = ("ConfigMap", "Service", "Deployment")[number % 3]
        name = f"t{number // 3}"
        path = scene.path(kind, name)
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
    found = scene.settle(wanted)
    repairs = {}
    for entry in scene.proxy.log.writes(since=mark):
        path = entry.request.target.partition("?")[0]
        if (path, entry.request.name) in acted and entry.done:
            repairs[path, entry.request.name] = entry.ended - acted[path, entry.request.name]
    assert repairs.keys() == acted.keys()
    slowest = sorted(repairs.values())[-1]
    assert slowest <= LONGEST, f"the slowest repair took {slowest:.2f} s"
    # Edits are undone in place.
    assert {name: found.uids[name] for name in edited} == {name: uids[name] for name in edited}
    # One write for each hand; what nobody touched was not written.
    assert len(scene.proxy.log.writes(since=mark)) == HANDS


def test_a_restart_on_a_settled_namespace_writes_nothing(scene: Scene) -> None:
    wanted = [toy(f"t{number}", pages=number) for number in range(5)]
    scene.started(wanted)
    scene.toy.stop()
    mark = scene.proxy.mark
    scene.toy.start()
    wait_for("the caches to be filled", lambda: "caches are filled" in scene.toy.output(), seconds=20)
    time.sleep(2)
    assert [str(entry) for entry in scene.proxy.log.writes(since=mark)] == []
    # It is awake all the same.
    wanted[0] = toy("t0", text="changed")
    scene.want(wanted)
    scene.settle(wanted)


def test_for_a_minute_of_idleness_nothing_is_written(idle: Idle) -> None:
    time.sleep(max(0.0, idle.since + IDLE_SECONDS - time.monotonic()))
    assert idle.scene.toy.running
    assert [str(entry) for entry in idle.scene.proxy.log.writes(since=idle.mark)] == []
    # Nor is anything polled: watches stay open for minutes.
    seen = [entry for entry in idle.scene.proxy.log if entry.request.number > idle.mark]
    assert len(seen) <= 4, "\n".join(map(str, seen))
