"""What the controllers would write if objects were other than they are: real reconciles over a world that only notes.

Nothing here decides anything, so a rehearsal cannot be of another opinion than the operator.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver.ask import Unreachable
from fairway.controllers.resources import OURS
from fairway.controllers.settings import Settings
from fairway.controllers.wiring import controllers
from fairway.kube.resource import POD, Catalogue, Obj, ObjectRef, Resource
from fairway.runtime.child import being_deleted, children, controller_uid
from fairway.runtime.controller import Controller
from fairway.runtime.drift import has_drifted
from fairway.runtime.store import Store
from fairway.runtime.world import Applied


@dataclass(frozen=True, slots=True)
class Change:
    """A child before and after; `live` is None if it would be made, `wanted` if it would be deleted."""

    ref: ObjectRef
    live: Obj | None
    wanted: Obj | None
    result: Obj | None = None
    """What the server would make of it, where it was asked. Of what is made with a random key, the key is left out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one reconcile would come to."""

    owner: Obj
    acts: bool
    """Whether the object says enough to act on; if not, `status` says what is missing."""
    changes: tuple[Change, ...]
    taken: tuple[ObjectRef, ...]
    """Children whose names belong to somebody else."""
    status: Mapping[str, Any]


NowAndThen = tuple[list[Verdict], list[Verdict]]
"""As things are, and as they would be."""


@dataclass(slots=True)
class _Notes:
    acts: bool = False
    changes: list[Change] = field(default_factory=list)
    taken: list[ObjectRef] = field(default_factory=list)


class _Rehearsal:
    """A World in which nothing happens."""

    def __init__(self, store: Store, catalogue: Catalogue, hash_annotation: str | None) -> None:
        self._store = store
        self._catalogue = catalogue
        self._hash_annotation = hash_annotation
        self.notes = _Notes()

    @property
    def store(self) -> Store:
        return self._store

    async def apply(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        self.notes.acts = True
        wanted = children(owner, objects, self._catalogue, hash_annotation=self._hash_annotation)
        live: dict[ObjectRef, Obj] = {}
        for ref, child in wanted:
            there = self._store.get_ref(ref)
            if there is not None and controller_uid(there) != owner["metadata"]["uid"]:
                self.notes.taken.append(ref)
                continue
            live[ref] = there or child
            if there is None or has_drifted(child, there):
                self.notes.changes.append(Change(ref, there, child))
        return Applied(frozenset(ref for ref, _ in wanted), live, (), tuple(self.notes.taken))

    async def make(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        for ref, child in children(owner, objects, self._catalogue, hash_annotation=None):
            there = self._store.get_ref(ref)
            if there is None:
                self.notes.changes.append(Change(ref, None, {k: v for k, v in child.items() if k != "data"}))
            elif controller_uid(there) != owner["metadata"]["uid"]:
                self.notes.taken.append(ref)
        return Applied(name_taken=tuple(self.notes.taken))

    async def prune(self, *, owner: Mapping[str, Any], keep: Collection[ObjectRef]) -> tuple[ObjectRef, ...]:
        uid = owner["metadata"]["uid"]
        owned = [(self._catalogue.ref(obj), obj) for obj in self._store.owned_by(uid)]
        gone = [Change(ref, obj, None) for ref, obj in owned if ref not in keep and controller_uid(obj) == uid]
        self.notes.changes += gone
        return tuple(change.ref for change in gone)

    async def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        del obj, status
        return False


async def rehearse(
    objects: Iterable[Obj],
    *,
    settings: Settings,
    contents: ContentReader,
    catalogue: Catalogue,
    hash_annotation: str | None,
    absent: Collection[Resource] = (),
) -> list[Verdict]:
    """One verdict for every object of a kind that has a controller. `objects` is all there is, pods left aside;
    `absent` are kinds that the cluster does not have."""
    wired = controllers(settings=settings, ask=_nobody, nudge=_no_nudge, contents=contents)
    store = _store_of(objects, catalogue, wired.all, absent)
    verdicts = []
    try:
        for controller in wired.all:
            for obj in store.list(controller.resource):
                if being_deleted(obj):
                    continue
                world = _Rehearsal(store, catalogue, hash_annotation)
                outcome = await controller.reconcile(obj, world)
                notes = world.notes
                verdicts.append(
                    Verdict(obj, notes.acts, tuple(notes.changes), tuple(notes.taken), outcome.status or {})
                )
    finally:
        await wired.observer.stop()
    return verdicts


def _store_of(
    objects: Iterable[Obj],
    catalogue: Catalogue,
    all_controllers: Iterable[Controller],
    absent: Collection[Resource],
) -> Store:
    store = Store()
    for resource in catalogue.values():
        store.register(resource, scopes=(None,))
        if resource not in absent:
            store.begin(resource)
            store.commit(resource, "")
    for controller in all_controllers:
        for resource, indexes in controller.indexes.items():
            store.register(resource, indexes=indexes)
    for obj in objects:
        resource = catalogue.of(obj)
        if resource != POD:  # who runs decides no object, and is not to be asked
            store.observe(
                resource, {key: value for key, value in obj.items() if key != "status" or resource not in OURS}
            )
    return store


async def _nobody(*_: Any) -> Any:
    raise Unreachable("nobody is asked in a rehearsal")


async def _no_nudge(*_: Any) -> None:
    return None
