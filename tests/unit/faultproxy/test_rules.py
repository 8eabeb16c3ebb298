"""Rules: which request meets which fault, the same way every time."""

import pytest

from tests.faultproxy.actions import Answer, Drop, Duplicate, Hang, OneOf, Reset, conflict, gone, unavailable
from tests.faultproxy.request import Request
from tests.faultproxy.rules import Events, Requests, Rule, RuleBook, writes


def request(number: int = 1, verb: str = "apply", resource: str = "configmaps", **more: object) -> Request:
    return Request(number=number, method="", target="", verb=verb, resource=resource, **more)  # type: ignore[arg-type]


def event(kind: str = "ADDED", name: str = "x", namespace: str = "a") -> dict[str, object]:
    return {"type": kind, "object": {"metadata": {"name": name, "namespace": namespace}}}


@pytest.mark.parametrize(
    ("on", "matches"),
    [
        (Requests(), True),
        (Requests(verbs={"apply"}), True),
        (Requests(verbs={"delete"}), False),
        (Requests(resources={"configmaps"}), True),
        (Requests(resources={"secrets"}), False),
        (Requests(without={"configmaps"}), False),
        (Requests(subresource=""), True),
        (Requests(subresource="status"), False),
        (Requests(namespace="team-*"), True),
        (Requests(namespace="team"), False),
        (Requests(name="web-?"), True),
        (Requests(name="web"), False),
        (Requests(manager="fairway"), True),
        (Requests(manager="kubectl"), False),
        (Requests(user_agent="toy*"), True),
        (Requests(user_agent="kubectl*"), False),
        (Requests(numbers=4), True),
        (Requests(numbers=range(5, 9)), False),
        (Requests(initial_events=False), True),
        (Requests(initial_events=True), False),
        (writes(), True),
    ],
)
def test_a_request_matches_if_all_that_is_named_fits(on: Requests, matches: bool) -> None:
    seen = request(4, namespace="team-a", name="web-1", manager="fairway", user_agent="toy/1")
    assert on.match(seen) is matches


def test_leases_and_events_are_not_the_work_of_a_controller() -> None:
    assert not writes().match(request(resource="leases.coordination.k8s.io"))
    assert not writes().match(request(resource="events.events.k8s.io", verb="create"))


def test_the_nth_match_alone_is_hit() -> None:
    book = RuleBook([Rule(writes(), conflict(), nth=2)])
    seen = [book.for_request(request(number, verb)) for number, verb in enumerate(["apply", "get", "apply", "apply"])]
    assert seen == [None, None, conflict(), None]


def test_a_rule_is_used_as_often_as_it_says() -> None:
    rule = Rule(Requests(), unavailable(), times=2)
    book = RuleBook([rule])
    assert [book.for_request(request(n)) for n in range(3)] == [unavailable(), unavailable(), None]
    assert book.used(rule) == 2


def test_the_first_rule_that_applies_wins_and_later_ones_still_count_the_match() -> None:
    first, second = Rule(Requests(), conflict(), nth=1), Rule(Requests(), gone(), nth=2)
    book = RuleBook([first, second])
    assert [book.for_request(request(n)) for n in range(3)] == [conflict(), gone(), None]


def test_the_same_seed_gives_the_same_faults_and_another_seed_others() -> None:
    rules = [Rule(Requests(), OneOf((conflict(), Reset(), Hang())), probability=0.3)]

    def faults(seed: int) -> list[object]:
        book = RuleBook(rules, seed)
        return [book.for_request(request(n)) for n in range(200)]

    assert faults(1) == faults(1)
    assert faults(1) != faults(2)


def test_a_share_of_the_matches_is_hit_and_every_choice_comes_up() -> None:
    book = RuleBook([Rule(Requests(), OneOf((conflict(), Reset(), Hang())), probability=0.3)], seed=5)
    faults = [fault for n in range(2000) if (fault := book.for_request(request(n))) is not None]
    assert 500 < len(faults) < 700
    assert {type(fault) for fault in faults} == {Answer, Reset, Hang}


def test_event_rules_see_events_and_request_rules_requests() -> None:
    book = RuleBook([Rule(Events(), Drop()), Rule(Requests(), conflict())])
    watch = request(verb="watch")
    assert book.for_event(watch, 1, event()) == Drop()
    assert book.for_request(watch) == conflict()


@pytest.mark.parametrize(
    ("on", "position", "matches"),
    [
        (Events(), 1, True),
        (Events(types={"DELETED"}), 1, False),
        (Events(resources={"secrets"}), 1, False),
        (Events(name="x*", namespace="a"), 1, True),
        (Events(name="y"), 1, False),
        (Events(position=3), 3, True),
        (Events(position=3), 2, False),
    ],
)
def test_an_event_matches_if_all_that_is_named_fits(on: Events, position: int, matches: bool) -> None:
    assert on.match(request(verb="watch"), position, event()) is matches


def test_bookmarks_are_hit_only_if_they_are_named() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}
    assert not Events().match(request(verb="watch"), 0, bookmark)
    assert Events(types={"BOOKMARK"}).match(request(verb="watch"), 0, bookmark)


def test_a_fault_of_the_other_sort_is_refused() -> None:
    with pytest.raises(ValueError, match="Drop cannot happen to requests"):
        Rule(Requests(), Drop())
    with pytest.raises(ValueError, match="Answer cannot happen to events"):
        Rule(Events(), conflict())


def test_a_probability_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no probability"):
        Rule(Events(), Duplicate(), probability=1.5)
