"""A cluster and a laptop behind one face: what the verbs read, write and follow."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fairway.kube.resource import Obj, ObjectRef, Resource

if TYPE_CHECKING:
    from fairway.controllers.rehearsal import NowAndThen

Outcome = Literal["created", "changed", "unchanged"]


@dataclass(frozen=True, slots=True)
class LogSource:
    """The log of one container."""

    namespace: str
    pod: str
    container: str


class Place(Protocol):
    """Reads raise KubeErrors or control.NotRunning; what is not there is None or left out."""

    title: str
    namespace: str
    """The one that is meant where the user names none."""
    is_local: bool

    async def get(self, resource: Resource, namespace: str, name: str) -> Obj | None: ...
    async def list(self, resource: Resource, namespace: str | None, *, labels: Mapping[str, str] = ...) -> list[Obj]:
        """Of one namespace, or of all if that is None."""
        ...

    def log(
        self, source: LogSource, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncIterator[str]:
        """Lines without their ends; with `follow`, until the container ends."""
        ...

    async def resource_of(self, obj: Mapping[str, Any]) -> Resource:
        """The resource that an object is of; raises Mistake for a kind that is not there."""
        ...

    def apply(self, objects: Sequence[Obj], *, force: bool = False) -> AsyncIterator[tuple[Obj, Outcome]]: ...
    async def dry_run(self, obj: Obj, *, force: bool = False) -> Obj:
        """The object as it would be after `apply`."""
        ...

    async def rehearse(self, objects: Sequence[Obj]) -> "NowAndThen":
        """What the controllers want now, and what they would want once these objects are as given."""
        ...

    def delete(self, refs: Sequence[ObjectRef]) -> AsyncIterator[tuple[ObjectRef, bool]]:
        """Whether there was one."""
        ...


def matches(obj: Obj, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (obj["metadata"].get("labels") or {}).items()
