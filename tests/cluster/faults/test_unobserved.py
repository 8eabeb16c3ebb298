"""Events that are lost, doubled, late, garbled or in the wrong order: the end is the same."""

import time
from collections.abc import Sequence

import pytest

from rig.api import Object, wait_for
from tests.faultproxy import (
    CloseAfter,
    Corrupt,
    Drop,
    Duplicate,
    Events,
    InStreamError,
    Postpone,
    Requests,
    Rule,
    SilentAfter,
    Swap,
    gone,
)
from tests.faultproxy.actions import EventAction
from tests.faultproxy.scene import Scene
from tests.faultproxy.toy import CHILDREN, toy

WATCHES = 1 + len(CHILDREN)
MOST_EVENTS = 24
# How long after the end of a change events that belong to it may still come.
QUIET = 0.5


def relist(scene: Scene) -> None:
    """Every watch breaks, and the server no longer knows what happened since."""
    scene.proxy.use(Rule(Requests(verbs={"watch"}, initial_events=False), gone(), times=WATCHES))
    scene.proxy.drop_connections()


def lose_event(scene: Scene, number: int, after: Sequence[Object]) -> bool:
    """Changes to `after` and loses that event on the way; False if there were not so many."""
    rule = Rule(Events(), Drop(), nth=number)
    book = scene.proxy.use(rule)
    scene.want(after)
    began = time.monotonic()
    # Without a relist some losses cannot be made good, so this need not come to its end.
    while not book.used(rule) and not (scene.is_settled(after) and time.monotonic() - began > QUIET):
        assert time.monotonic() - began < 60, f"neither event {number} nor the end of the change came"
        time.sleep(0.02)
    relist(scene)
    scene.settle(after)
    return bool(book.used(rule))


def lose_each_event(scene: Scene, sides: Sequence[Sequence[Object]]) -> int:
    """Changes to and fro, and loses the first event, then the second ... until there are no more to lose."""
    lost = 0
    for number in range(1, MOST_EVENTS + 1):
        hits = [lose_event(scene, number, after) for after in sides]
        lost += sum(hits)
        if not any(hits):
            return lost
    raise AssertionError(f"a single change brought more than {MOST_EVENTS} events")


@pytest.mark.parametrize(
    ("name", "one", "other", "least"),
    [
        ("update", [toy("t0", text="a")], [toy("t0", text="b")], 8),
        ("grow and shrink", [toy("t0")], [toy("t0", pages=2)], 8),
        ("create and delete", [], [toy("t0")], 8),
    ],
)
def test_any_single_event_may_be_lost_before_a_relist(
    scene: Scene, name: str, one: Sequence[Object], other: Sequence[Object], least: int
) -> None:
    scene.started(one)
    assert lose_each_event(scene, [other, one]) >= least
    assert scene.proxy.log.careless_deletes() == []
    assert scene.toy.tracebacks() == []


@pytest.mark.parametrize(
    "action",
    [Duplicate(), Swap(), Postpone(0.3), Corrupt(), InStreamError(), InStreamError(500, "InternalError"), CloseAfter()],
    ids=lambda action: f"{type(action).__name__} {getattr(action, 'status', '')}".strip(),
)
def test_events_that_come_wrongly_change_nothing(scene: Scene, action: EventAction) -> None:
    one, other = [toy("t0", text="a"), toy("t1", pages=1)], [toy("t0", text="b", pages=1), toy("t1", replicas=2)]
    scene.started(one)
    mark = scene.proxy.mark
    for number, after in enumerate([other, one]):
        # Not for ever: initial events are hit too, and waits grow with every failure in a row.
        rule = Rule(Events(), action, probability=0.5, times=8)
        book = scene.proxy.use(rule, seed=number)
        scene.want(after)
        scene.settle(after)
        assert book.used(rule)
    assert scene.proxy.log.careless_deletes() == []
    assert scene.toy.running
    assert scene.toy.tracebacks() == []
    requests = len([entry for entry in scene.proxy.log if entry.request.number > mark])
    assert requests < 300, f"{requests} requests for two changes"


def test_a_watch_that_closes_at_once_every_time_is_not_asked_in_a_tight_loop(scene: Scene) -> None:
    scene.started([toy("t0")])
    mark = scene.proxy.mark
    scene.proxy.use(Rule(Requests(verbs={"watch"}), gone()))
    scene.proxy.drop_connections()
    wait_for("some attempts", lambda: scene.proxy.mark - mark > 2 * WATCHES, seconds=60)
    before = scene.proxy.mark
    time.sleep(3)
    assert scene.proxy.mark - before < 15 * WATCHES
    scene.proxy.calm()
    after = [toy("t0", text="again")]
    scene.want(after)
    scene.settle(after)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_watch_that_falls_silent_without_closing_is_noticed(scene: Scene) -> None:
    scene.started([toy("t0")])
    scene.proxy.use(Rule(Events(), SilentAfter(), times=WATCHES))
    after = [toy("t0", text="one"), toy("t1")]
    scene.want(after)
    scene.settle(after, seconds=150)
    after = [toy("t0", text="two"), toy("t1", pages=1)]
    scene.want(after)
    scene.settle(after, seconds=150)
