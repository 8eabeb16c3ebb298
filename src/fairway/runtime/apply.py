"""The cluster as a World: diff, server-side apply, prune, status."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairway.kube.client import Client, Preconditions
from fairway.kube.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotAllowed,
    NotFound,
    TooLarge,
)
from fairway.kube.resource import DEPLOYMENT, STATEFUL_SET, Catalogue, Obj, ObjectRef, Resource
from fairway.runtime.child import being_deleted, children, controller_uid, digest
from fairway.runtime.drift import Difference, differences
from fairway.runtime.resource_version import version_of
from fairway.runtime.store import Store
from fairway.runtime.world import Applied, Rejection

Fence = Callable[[], float | None]
"""Called right before every write: the time of the monotonic clock by which the write must be over, None for no limit.
Raises if nothing may be written any more."""

# Fields that an autoscaler takes over. The server would reset them at the moment we stop wanting a value.
_HANDED_OVER: Mapping[Resource, str] = {DEPLOYMENT: "replicas", STATEFUL_SET: "replicas"}

# etcd counts from 1, and its first write is 2.
_OF_NO_OBJECT = "1"

_REJECTIONS = (BadRequest, Forbidden, Invalid, NotAllowed, NotFound, TooLarge)


def no_fence() -> float | None:
    return None


@dataclass(slots=True)
class WriteCounts:
    """What a ClusterWorld wrote. A `noop` write changed nothing: it points at a builder that is not canonical.

    `conflicts` were refused because somebody else wrote first, and changed nothing either.
    """

    applied: int = 0
    statuses: int = 0
    deleted: int = 0
    noop: int = 0
    conflicts: int = 0

    @property
    def writes(self) -> int:
        return self.applied + self.statuses + self.deleted


@dataclass(slots=True)
class _Tally:
    live: dict[ObjectRef, Obj] = field(default_factory=dict)
    changed: list[ObjectRef] = field(default_factory=list)
    name_taken: list[ObjectRef] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    terminating: list[ObjectRef] = field(default_factory=list)


class ClusterWorld:
    """A World on a Kubernetes API server; reads come from the store, which reflectors keep.

    Never touches an object that the owner does not control, and never writes over what it has not seen: a known child
    is applied by force, but only under the uid and resourceVersion that the write was decided from; an unknown one is
    made by a write that cannot touch what is there, and looked up live if there is something. Deletes follow a live
    read of the owner and of the object, and carry its uid and resourceVersion. Nothing is written when nothing would
    change.

    A write that met a newer object is decided once more from what the server has; if that is overtaken too, Conflict
    is raised, and the reconcile comes again.
    """

    def __init__(
        self,
        *,
        client: Client,
        store: Store,
        catalogue: Catalogue,
        hash_annotation: str,
        fence: Fence = no_fence,
    ) -> None:
        self._client = client
        self._store = store
        self._catalogue = catalogue
        self._hash_annotation = hash_annotation
        self._fence = fence
        self._being_made: dict[ObjectRef, str] = {}
        self._in_use: set[ObjectRef] = set()
        """Names under which there was something that the cache did not show: they are looked up before the next try."""
        self._settled: dict[tuple[ObjectRef, str], str] = {}
        self.counts = WriteCounts()

    @property
    def store(self) -> Store:
        return self._store

    async def apply(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        wanted = children(owner, objects, self._catalogue, hash_annotation=self._hash_annotation)
        uid: str = owner["metadata"]["uid"]
        tally = _Tally()
        if not being_deleted(owner):  # garbage collection is taking the children away, and must be let
            for ref, child in wanted:
                try:
                    await self._apply(tally, uid, ref, child)
                except _REJECTIONS as error:
                    tally.rejected.append(Rejection(ref, error.status, error.message))
        return Applied(
            frozenset(ref for ref, _ in wanted),
            tally.live,
            tuple(tally.changed),
            tuple(tally.name_taken),
            tuple(tally.rejected),
            tuple(tally.terminating),
        )

    async def _apply(self, tally: _Tally, uid: str, ref: ObjectRef, child: Obj) -> None:
        live = self._store.get_ref(ref)
        if live is None:
            await self._apply_unknown(tally, uid, ref, child)
        elif controller_uid(live) != uid:
            tally.name_taken.append(ref)
        elif being_deleted(live):
            tally.terminating.append(ref)
        else:
            await self._apply_known(tally, uid, ref, child, live)

    async def _apply_known(self, tally: _Tally, uid: str, ref: ObjectRef, child: Obj, live: Obj) -> None:
        if not self._differs(ref, child, live):
            tally.live[ref] = live
            return
        try:
            await self._write_known(tally, ref, child, live)
        except (Conflict, Invalid) as error:
            if not _is_behind(error):
                raise
            # The cache is: somebody wrote since, or this very object is gone, and maybe there is another of its name.
            await self._apply_unknown(tally, uid, ref, child, look=True)

    def _differs(self, ref: ObjectRef, child: Obj, live: Obj) -> bool:
        drift = list(differences(child, live))
        return bool(drift) and self._settled.get((ref, "")) != _signature(drift)

    async def _write_known(self, tally: _Tally, ref: ObjectRef, child: Obj, live: Obj) -> None:
        live = await self._hand_over(ref, child, live)
        # Bound to what it was decided from: a write that was held up on its way must not undo what came after.
        with self._counted_conflicts():
            reply = await self._client.apply(ref.resource, _bound(child, live), force=True, deadline=self._fence())
        self.counts.applied += 1
        if version_of(reply) == version_of(live):
            self.counts.noop += 1
        else:
            tally.changed.append(ref)
        self._keep(tally, ref, child, reply)

    def _keep(self, tally: _Tally, ref: ObjectRef, child: Obj, reply: Obj) -> None:
        self._store.written(ref.resource, reply)
        tally.live[ref] = reply
        # What differs right after our write is what the server calls the same in other words, or what somebody changes
        # back each time: writing that again is no use.
        self._settled.pop((ref, ""), None)
        if drift := list(differences(child, reply)):
            self._settled[ref, ""] = _signature(drift)

    async def _apply_unknown(self, tally: _Tally, uid: str, ref: ObjectRef, child: Obj, *, look: bool = False) -> None:
        # Two owners of one process may want the same name at the same time: the first to look makes it.
        if self._being_made.setdefault(ref, uid) != uid:
            tally.name_taken.append(ref)
            return
        try:
            look = look or ref in self._in_use
            if not look and await self._created(tally, ref, child):
                return
            there = await self._client.get_metadata(ref.resource, ref.namespace, ref.name)
            if there is None:
                self._in_use.discard(ref)
                if not await self._created(tally, ref, child):
                    raise Conflict(f"{ref} was made by somebody while it was looked for")
            elif controller_uid(there) != uid:
                self._in_use.add(ref)
                tally.name_taken.append(ref)
            elif being_deleted(there):
                self._in_use.add(ref)
                tally.terminating.append(ref)
            else:
                self._in_use.discard(ref)
                await self._apply_unseen(tally, ref, child, there)
        finally:
            self._being_made.pop(ref, None)

    async def _created(self, tally: _Tally, ref: ObjectRef, child: Obj) -> bool:
        """False if there is an object of that name, which is left as it is."""
        # Server-side apply makes or merges as it finds; bound to a version that no object ever has, it can only make.
        # So nobody need look before, and whoever comes between a look and the write keeps what he made.
        metadata = {**child["metadata"], "resourceVersion": _OF_NO_OBJECT}
        try:
            with self._counted_conflicts():
                reply = await self._client.apply(
                    ref.resource, {**child, "metadata": metadata}, force=False, deadline=self._fence()
                )
        except Conflict:
            return False
        self.counts.applied += 1
        tally.changed.append(ref)
        self._keep(tally, ref, child, reply)
        return True

    async def _apply_unseen(self, tally: _Tally, ref: ObjectRef, child: Obj, there: Obj) -> None:
        """A child of ours that the cache does not show, or shows as it was."""
        try:
            live = await self._client.get(ref.resource, ref.namespace, ref.name)
        except NotFound as error:
            raise Conflict(f"{ref} went while it was looked at") from error
        if live["metadata"]["uid"] != there["metadata"]["uid"]:
            raise Conflict(f"{ref} was made anew while it was looked at")
        if self._differs(ref, child, live):
            await self._write_known(tally, ref, child, live)
        else:
            tally.live[ref] = live

    async def _hand_over(self, ref: ObjectRef, child: Obj, live: Obj) -> Obj:
        """Leaves a field that we no longer want as it is, by letting a second field manager own it from now on.

        Returns the object as it is then.
        """
        name = _HANDED_OVER.get(ref.resource)
        if name is None or name in child["spec"] or name not in live["spec"]:
            return live
        manager = self._client.field_manager
        there = await self._client.get(ref.resource, ref.namespace, ref.name, managed_fields=True)
        if there["metadata"]["uid"] != live["metadata"]["uid"]:
            raise Conflict(f"{ref} was made anew while it was looked at")
        if not _owns(there, manager, "spec", name):
            return live
        bare = _bare(ref.resource, ref.namespace, ref.name, there["metadata"]["uid"])
        with self._counted_conflicts():
            return await self._client.apply(
                ref.resource,
                _bound({**bare, "spec": {name: there["spec"][name]}}, there),
                force=True,
                field_manager=f"{manager}-handover",
                deadline=self._fence(),
            )

    async def make(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        wanted = children(owner, objects, self._catalogue, hash_annotation=None)
        uid: str = owner["metadata"]["uid"]
        tally = _Tally()
        if not being_deleted(owner):
            for ref, child in wanted:
                try:
                    await self._make(tally, uid, ref, child)
                except _REJECTIONS as error:
                    tally.rejected.append(Rejection(ref, error.status, error.message))
        return Applied(
            frozenset(ref for ref, _ in wanted),
            changed=tuple(tally.changed),
            name_taken=tuple(tally.name_taken),
            rejected=tuple(tally.rejected),
            terminating=tuple(tally.terminating),
        )

    async def _make(self, tally: _Tally, uid: str, ref: ObjectRef, child: Obj) -> None:
        """Posted, not applied: whoever may only post can write over nothing, and needs no right to change secrets."""
        bare = ref.resource.metadata
        there = self._store.get(bare, ref.namespace, ref.name) if bare in self._store.resources else None
        if there is None:
            there = await self._client.get_metadata(ref.resource, ref.namespace, ref.name)
        if there is None:
            # if there is one since a moment ago, the Conflict brings the next look, which sees whose it is
            with self._counted_conflicts():
                await self._client.create(ref.resource, child, namespace=ref.namespace, deadline=self._fence())
            self.counts.applied += 1
            tally.changed.append(ref)
        elif controller_uid(there) != uid:
            tally.name_taken.append(ref)
        elif being_deleted(there):
            tally.terminating.append(ref)

    @contextlib.contextmanager
    def _counted_conflicts(self) -> Iterator[None]:
        try:
            yield
        except Conflict:
            self.counts.conflicts += 1
            raise

    async def prune(self, *, owner: Mapping[str, Any], keep: Collection[ObjectRef]) -> tuple[ObjectRef, ...]:
        uid: str = owner["metadata"]["uid"]
        unwanted = [
            (ref, obj["metadata"]["uid"])
            for resource in self._store.resources
            if self._store.synced(resource) and not resource.metadata_only
            for obj in self._store.owned_by(uid, resource)
            if (ref := self._ref(resource, obj)) not in keep
            if controller_uid(obj) == uid and not being_deleted(obj)
        ]
        if not unwanted or not await self._still_wants(owner):
            return ()
        return tuple([ref for ref, its_uid in unwanted if await self._delete(ref, uid, its_uid)])

    async def _still_wants(self, owner: Mapping[str, Any]) -> bool:
        """Whether the owner is still there. What an outdated one does not want, its present self may well want."""
        resource = self._catalogue.of(owner)
        known = owner["metadata"]
        there = await self._client.get_metadata(resource, known.get("namespace"), known["name"])
        if there is None or there["metadata"]["uid"] != known["uid"] or being_deleted(there):
            return False  # garbage collection takes all of it
        if any(there["metadata"].get(name) != known.get(name) for name in ("generation", "labels", "annotations")):
            raise Conflict(f"{resource.kind} {known['name']} has changed: what to prune is decided by its new state")
        return True

    def _ref(self, resource: Resource, obj: Mapping[str, Any]) -> ObjectRef:
        return resource.ref(obj["metadata"].get("namespace"), obj["metadata"]["name"])

    async def _delete(self, ref: ObjectRef, owner_uid: str, uid: str) -> bool:
        # Never from the cache alone: what it shows may have been replaced or given to somebody else.
        there = await self._client.get_metadata(ref.resource, ref.namespace, ref.name)
        if there is None:
            self._store.erased(ref.resource, ref.namespace, ref.name, uid)
            return False
        if there["metadata"]["uid"] != uid or controller_uid(there) != owner_uid or being_deleted(there):
            return False
        try:
            with self._counted_conflicts():
                lingering = await self._client.delete(
                    ref.resource,
                    ref.namespace,
                    ref.name,
                    preconditions=Preconditions(uid, version_of(there)),
                    deadline=self._fence(),
                )
        except NotFound:
            lingering = None
        self.counts.deleted += 1
        if lingering is None:
            self._store.erased(ref.resource, ref.namespace, ref.name, uid)
        else:
            self._store.written(ref.resource, lingering)
        self._settled.pop((ref, ""), None)
        return True

    async def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        resource = self._catalogue.of(obj)
        metadata = obj["metadata"]
        ref = resource.ref(metadata.get("namespace"), metadata["name"])
        current = self._store.get_ref(ref) or obj
        if current["metadata"]["uid"] != metadata["uid"]:
            return False  # another object of that name by now; it gets a status of its own
        wanted = orjson.loads(orjson.dumps(status))
        before = current.get("status") or {}
        signature = digest([wanted, before])
        if wanted == before or self._settled.get((ref, "status")) == signature:
            return False
        # Bound to what is known: a status that was held up on its way must not hide a newer one.
        body = _bound({**_bare(resource, ref.namespace, ref.name, metadata["uid"]), "status": wanted}, current)
        try:
            with self._counted_conflicts():
                reply = await self._client.apply_status(resource, body, deadline=self._fence())
        except (NotFound, Invalid) as error:
            if isinstance(error, Invalid) and not _is_behind(error):
                raise
            return False  # deleted, and maybe made anew, while we were thinking about it
        self.counts.statuses += 1
        if version_of(reply) == version_of(current):
            # The schema prunes or defaults something of what we want.
            self.counts.noop += 1
            self._settled[ref, "status"] = signature
            return False
        self._settled.pop((ref, "status"), None)
        self._store.written(resource, reply)
        return True


def _signature(drift: Sequence[Difference]) -> str:
    return digest([(place.path, place.wanted, place.found) for place in drift])


def _is_behind(error: KubeError) -> bool:
    """The object is not what we took it for: 409 if it has changed or is gone, 422 if there is another of its name."""
    return isinstance(error, Conflict) or error.blames("metadata.uid")


def _bound(obj: Obj, live: Mapping[str, Any]) -> Obj:
    """The object to apply, to be refused if `live` has changed meanwhile."""
    seen = {"uid": live["metadata"]["uid"], "resourceVersion": version_of(live)}
    return {**obj, "metadata": {**obj["metadata"], **seen}}


def _bare(resource: Resource, namespace: str, name: str, uid: str) -> Obj:
    metadata: Obj = {"name": name, "uid": uid}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _owns(obj: Obj, manager: str, *path: str) -> bool:
    """Whether `manager` applied the field, by the managedFields of the object."""
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            node: Any = entry.get("fieldsV1") or {}
            for name in path:
                node = node.get(f"f:{name}") if isinstance(node, dict) else None
            return node is not None
    return False
