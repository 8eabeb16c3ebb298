"""Which request or event meets which fault. Pure: dice and counters belong to a RuleBook, made anew for every plan."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.faultproxy.actions import EventAction, OneOf, RequestAction
from tests.faultproxy.request import WRITES, Request

HOUSEKEEPING = frozenset({"leases.coordination.k8s.io", "events.events.k8s.io", "events"})
"""Kinds that a controller writes about itself, not about its work."""

Numbers = int | Collection[int]


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that have all of this; None and empty mean any. `name` and `namespace` may be patterns."""

    verbs: Collection[str] = ()
    resources: Collection[str] = ()
    without: Collection[str] = ()
    subresource: str | None = None
    namespace: str = "*"
    name: str = "*"
    manager: str = "*"
    user_agent: str = "*"
    numbers: Numbers = ()
    initial_events: bool | None = None

    def match(self, request: Request) -> bool:
        return (
            (not self.verbs or request.verb in self.verbs)
            and (not self.resources or request.resource in self.resources)
            and request.resource not in self.without
            and (self.subresource is None or request.subresource == self.subresource)
            and fnmatchcase(request.namespace, self.namespace)
            and fnmatchcase(request.name, self.name)
            and fnmatchcase(request.manager, self.manager)
            and fnmatchcase(request.user_agent, self.user_agent)
            and (self.numbers == () or _in(request.number, self.numbers))
            and (self.initial_events is None or request.initial_events is self.initial_events)
        )


def writes(**more: Any) -> Requests:
    """The writes by which a controller does its work: Leases and Events apart."""
    return Requests(verbs=WRITES, without=HOUSEKEEPING, **more)


@dataclass(frozen=True, slots=True)
class Events:
    """Events of watches. `position` counts within one watch from 1. Bookmarks only if they are named."""

    types: Collection[str] = ("ADDED", "MODIFIED", "DELETED")
    resources: Collection[str] = ()
    namespace: str = "*"
    name: str = "*"
    position: Numbers = ()

    def match(self, watch: Request, position: int, event: Mapping[str, Any]) -> bool:
        metadata = event.get("object", {}).get("metadata", {})
        return (
            event.get("type") in self.types
            and (not self.resources or watch.resource in self.resources)
            and fnmatchcase(metadata.get("namespace", ""), self.namespace)
            and fnmatchcase(metadata.get("name", ""), self.name)
            and (self.position == () or _in(position, self.position))
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """What matches `on` meets `do`: all of it, or the `nth` of the matches (from 1), or a share of them."""

    on: Requests | Events
    do: RequestAction | EventAction
    nth: Numbers = ()
    times: int | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.on, Events) is not isinstance(self.do, EventAction):
            raise ValueError(f"{type(self.do).__name__} cannot happen to {type(self.on).__name__.lower()}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"{self.probability} is no probability")


@dataclass(slots=True)
class _Use:
    rule: Rule
    dice: random.Random
    matched: int = 0
    used: int = 0

    def applies(self) -> bool:
        """Called for every match, and counts them."""
        self.matched += 1
        rule = self.rule
        if rule.nth != () and not _in(self.matched, rule.nth):
            return False
        if rule.times is not None and self.used >= rule.times:
            return False
        if rule.probability < 1 and self.dice.random() >= rule.probability:
            return False
        self.used += 1
        return True


@dataclass(slots=True)
class RuleBook:
    """Decides, the first rule that applies wins; the same seed and the same requests give the same faults."""

    rules: Sequence[Rule] = ()
    seed: int = 0
    _uses: list[_Use] = field(init=False)

    def __post_init__(self) -> None:
        self._uses = [_Use(rule, random.Random(f"{self.seed}/{place}")) for place, rule in enumerate(self.rules)]

    def for_request(self, request: Request) -> RequestAction | None:
        use = self._first(use for use in self._uses if isinstance(use.rule.on, Requests) and use.rule.on.match(request))
        if use is None:
            return None
        action = use.rule.do
        while isinstance(action, OneOf):
            action = use.dice.choice(action.actions)
        assert not isinstance(action, EventAction)
        return action

    def for_event(self, watch: Request, position: int, event: Mapping[str, Any]) -> EventAction | None:
        matching = (
            use for use in self._uses if isinstance(use.rule.on, Events) and use.rule.on.match(watch, position, event)
        )
        use = self._first(matching)
        if use is None:
            return None
        assert isinstance(use.rule.do, EventAction)
        return use.rule.do

    def used(self, rule: Rule) -> int:
        """How often a rule has been applied."""
        return sum(use.used for use in self._uses if use.rule is rule)

    @property
    def watches_events(self) -> bool:
        return any(isinstance(rule.on, Events) for rule in self.rules)

    def _first(self, matching: Iterable[_Use]) -> _Use | None:
        found: _Use | None = None
        for use in matching:
            # Every matching rule counts, the first that applies wins: `nth` means the same in any company.
            if found is None:
                found = use if use.applies() else None
            else:
                use.matched += 1
        return found


def _in(number: int, numbers: Numbers) -> bool:
    return number == numbers if isinstance(numbers, int) else number in numbers
