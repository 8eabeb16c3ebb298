"""Proxies take a newer image a few at a time."""

import pytest

from fairway.controllers.mcpserver.turns import Turns


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def proxy(image="old", *, ready=1, updated=1, replicas=1, observed=1):
    status = {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated}
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}},
        "status": status | ({"readyReplicas": ready} if ready else {}),
    }


def rolling(image="new"):
    return proxy(image, updated=1, replicas=2)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def turns(clock):
    return Turns(at_once=2, clock=clock)


def let(turns, *uids, of=None):
    return [uid for uid in uids if turns.may_roll(uid, of or proxy(), "new")]


def test_as_many_roll_as_are_allowed_and_each_keeps_its_turn(turns):
    assert let(turns, "a", "b", "c") == ["a", "b"]
    assert let(turns, "a", "b", "c") == ["a", "b"]


def test_one_that_is_done_makes_room(turns):
    let(turns, "a", "b")
    assert turns.may_roll("a", rolling(), "new")
    assert let(turns, "c") == []
    assert turns.may_roll("a", proxy("new"), "new")
    assert let(turns, "c", "d") == ["c"]


@pytest.mark.parametrize("gone", ["forgotten", "without a proxy"])
def test_one_that_is_gone_makes_room(turns, gone):
    let(turns, "a", "b")
    if gone == "forgotten":
        turns.forget("a")
    else:
        assert turns.may_roll("a", None, "new")
    assert let(turns, "c") == ["c"]


def test_one_that_never_ends_makes_room_in_the_end(turns, clock):
    let(turns, "a", "b")
    clock.now = 299
    assert let(turns, "c") == []
    clock.now = 301
    assert let(turns, "c") == ["c"]


def test_a_proxy_that_serves_nobody_waits_for_nothing(turns):
    let(turns, "a", "b")
    assert let(turns, "c", of=proxy(ready=0)) == ["c"]


def test_rollouts_that_a_predecessor_began_are_found_again(turns):
    assert turns.may_roll("a", rolling(), "new")
    assert turns.may_roll("b", proxy("new", observed=0), "new")
    assert let(turns, "c") == []


def test_what_has_the_image_already_may_change_in_any_other_way(turns):
    let(turns, "a", "b")
    assert let(turns, "c", of=proxy("new")) == ["c"]
