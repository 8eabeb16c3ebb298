"""The verbs that a reconciler has: read, apply a set, make what must never change, prune, write status."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fairway.kube.resource import Obj, ObjectRef
from fairway.runtime.store import StoreView


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that the server understood and refused; `message` says why in its words."""

    ref: ObjectRef
    status: int
    message: str

    def __str__(self) -> str:
        return f"{self.ref}: {self.message}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a set of desired objects.

    `refs` are all that were desired; `live` has those that exist and are ours, as they are now; `changed` were written.
    """

    refs: frozenset[ObjectRef] = frozenset()
    live: Mapping[ObjectRef, Obj] = field(default_factory=dict)
    changed: tuple[ObjectRef, ...] = ()
    name_taken: tuple[ObjectRef, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    terminating: tuple[ObjectRef, ...] = ()

    @property
    def complete(self) -> bool:
        """Every desired object is there as desired."""
        return not (self.name_taken or self.rejected or self.terminating)


class World(Protocol):
    """What a reconciler may do to the world, whether that is a cluster or the memory of one process.

    `apply` makes live what is desired, as children of `owner`, and leaves alone what is not its child; one object that
    is refused does not stop the others. `make` makes what does not exist yet, as children too, and writes over nothing:
    for keys and their like, of which each draft is another. `prune` deletes the owner's children that are not in
    `keep`. `write_status` writes only if something changed. All of them raise KubeErrors for what a retry may cure, and
    nothing else.
    """

    @property
    def store(self) -> StoreView: ...

    async def apply(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied: ...

    async def make(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied: ...

    async def prune(self, *, owner: Mapping[str, Any], keep: Collection[ObjectRef]) -> tuple[ObjectRef, ...]: ...

    async def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool: ...
