"""The models of queue, store and reflector are worth something: each bug that is planted here turns one of them red."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fairway.kube.resource import Obj, Resource
from fairway.runtime.queue import Queue
from fairway.runtime.reflector import Apply, Delete, Init, State, Step, step
from fairway.runtime.store import Store
from tests.unit.runtime.test_queue import QueueModel
from tests.unit.runtime.test_reflector import ReflectorAgainstServer
from tests.unit.runtime.test_store import StoreAgainstServer


class LosesAddsWhileInHand(Queue[str]):
    """A lost event: what is added while its key is in hand does not come again."""

    def add(self, key: str) -> None:
        if key not in self._in_hand:
            super().add(key)


class AddsTwice(Queue[str]):
    """A double add: the line does not look whether the key is in it."""

    def add(self, key: str) -> None:
        again = key in self._dirty and key not in self._in_hand
        super().add(key)
        if again:
            self._line.append(key)


class GivesToTwoHands(Queue[str]):
    """A double add of another sort: a key in hand may be taken again."""

    def add(self, key: str) -> None:
        if key in self._in_hand and key not in self._dirty:
            self._line.append(key)
        super().add(key)


class ForgetsTheBackoff(Queue[str]):
    """A lost backoff: every failure is taken for the first."""

    def retry(self, key: str, *, at_least: float = 0.0) -> float:
        self._failures.pop(key, None)
        return super().retry(key, at_least=at_least)


class KeepsTheLaterTimer(Queue[str]):
    """A lost event again: a new timer replaces the earlier one of its key."""

    def add_after(self, key: str, delay: float) -> None:
        self._due.pop(key, None)
        super().add_after(key, delay)


class DeletesWhateverTheVersion(Store):
    """A stale delete: a deletion that comes late takes away what was made after it."""

    def observe_deleted(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        shelf, key = self._shelf(resource), (obj["metadata"]["namespace"], obj["metadata"]["name"])
        if shelf.get(key) is not None:
            shelf.tell(shelf.pop(key), None)


class ErasesByName(Store):
    """A stale delete of our own: the reply to a delete takes away the successor of what was deleted."""

    def erased(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        super().erased(resource, namespace, name, uid)
        shelf, key = self._shelf(resource), (namespace or "", name)
        if shelf.get(key) is not None:
            shelf.tell(shelf.pop(key), None)


class ShowsAListInParts(Store):
    """A swap that is not atomic: what a list brings shows before the list is complete."""

    def stage(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        super().stage(resource, obj, scope)
        shelf, key = self._shelf(resource), (obj["metadata"]["namespace"], obj["metadata"]["name"])
        shelf.tell(shelf.put(key, obj), obj)


class TellsWhileItSwaps(Store):
    """A swap that is not atomic in another way: somebody hears of the first change before the last is there."""

    def commit(self, resource: Resource, version: str, scope: str | None = None) -> None:
        shelf = self._shelf(resource)
        staged = self._scope(resource, scope).staged
        assert staged is not None
        for key, new in list(staged.items()):
            old = shelf.get(key)
            if old is None:
                shelf.put(key, new)
                shelf.tell(None, new)
        super().commit(resource, version, scope)


class ForgetsWhatVanished(Store):
    """A lost event: a list does not tell what is no longer in it."""

    def commit(self, resource: Resource, version: str, scope: str | None = None) -> None:
        staged = self._scope(resource, scope).staged
        assert staged is not None
        staged.update({(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj for obj in self._shelf(resource)})
        super().commit(resource, version, scope)


def loses_deletions(state: State, happened: Any) -> Step:
    """A lost event: the watch goes on after a deletion, and nobody is told."""
    now = step(state, happened)
    return replace(now, effects=tuple(effect for effect in now.effects if not isinstance(effect, Delete)))


def loses_every_third_change(state: State, happened: Any) -> Step:
    now = step(state, happened)
    lost = now.state.version.isdecimal() and int(now.state.version) % 3 == 0
    return replace(now, effects=tuple(e for e in now.effects if not (lost and isinstance(e, Apply))))


def goes_on_after_gone(state: State, happened: Any) -> Step:
    """A lost event: after 410 it lists on top of what it had, without starting anew."""
    now = step(state, happened)
    return now if state == State() else replace(now, effects=tuple(e for e in now.effects if not isinstance(e, Init)))


def planted(model: type[RuleBasedStateMachine], **parts: object) -> Any:
    bug = next(iter(parts.values()))
    name = getattr(bug, "__name__", "")
    return pytest.param(type(f"{model.__name__}With{name}", (model,), {**parts, "__module__": __name__}), id=name)


@pytest.mark.parametrize(
    "model",
    [
        *(
            planted(QueueModel, queue_type=bug)
            for bug in (LosesAddsWhileInHand, AddsTwice, GivesToTwoHands, ForgetsTheBackoff, KeepsTheLaterTimer)
        ),
        *(
            planted(StoreAgainstServer, store_type=bug)
            for bug in (
                DeletesWhateverTheVersion,
                ErasesByName,
                ShowsAListInParts,
                TellsWhileItSwaps,
                ForgetsWhatVanished,
            )
        ),
        planted(ReflectorAgainstServer, store_type=ForgetsWhatVanished),
        *(
            planted(ReflectorAgainstServer, step=staticmethod(bug))
            for bug in (loses_deletions, loses_every_third_change, goes_on_after_gone)
        ),
    ],
)
def test_a_planted_bug_turns_its_model_red(model: type[RuleBasedStateMachine]) -> None:
    # As the models run when nothing is planted, but without looking for the shortest way to the failure.
    as_ever = settings(
        max_examples=200,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
    )
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(model, settings=as_ever)
