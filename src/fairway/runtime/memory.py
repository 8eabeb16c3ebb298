"""A World in the memory of one process: whole objects, no server."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from fairway.kube.resource import Catalogue, Obj, ObjectRef, Resource
from fairway.runtime.child import being_deleted, children, controller_uid
from fairway.runtime.store import Store, Subscriber, Unsubscribe, owner_uids
from fairway.runtime.world import Applied

# What the world keeps itself; a writer's idea of it does not count.
_KEPT = ("uid", "resourceVersion", "generation", "creationTimestamp")


class MemoryWorld:
    """A World for one event loop: every write replaces the whole object, and is visible and told at once.

    There are three writers. The user puts and deletes objects; reconcilers apply children and write statuses; the node
    that plays kubelet puts pods and sets the status of what it runs. It keeps uid, resourceVersion, generation (which
    grows when anything but metadata and status changes) and creationTimestamp, and deletes with an object all that it
    alone owned. Objects handed in are copied; objects handed out are shared and must not be changed.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._catalogue = catalogue
        self._now = now
        self._new_uid = new_uid
        self._version = 0
        self._store = Store()
        for resource in catalogue.values():
            self._store.register(resource, scopes=(None,))
            self._store.begin(resource)
            self._store.commit(resource, "")

    @property
    def store(self) -> Store:
        return self._store

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    def subscribe(self, resource: Resource, subscriber: Subscriber) -> Unsubscribe:
        return self._store.subscribe(resource, subscriber)

    def put(self, obj: Mapping[str, Any], *, default_namespace: str = "default") -> Obj:
        """Creates or replaces an object. Its status stays as it was; a new one starts with the status it brings."""
        ref = self._catalogue.ref(obj, default_namespace=default_namespace)
        new = _copy(obj)
        old = self._store.get_ref(ref)
        if old is not None:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return self._replace(ref, old, new)

    def set_status(self, ref: ObjectRef, status: Mapping[str, Any]) -> Obj | None:
        """Replaces the status; None if there is no such object (it may have gone a moment ago)."""
        old = self._store.get_ref(ref)
        return None if old is None else self._replace(ref, old, {**old, "status": _copy(status)})

    def delete(self, ref: ObjectRef) -> bool:
        """Deletes an object, and then what has no owner left. False if there was none."""
        old = self._store.get_ref(ref)
        if old is None:
            return False
        self._version += 1
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._version)}}
        self._store.observe_deleted(ref.resource, gone)
        uid = old["metadata"]["uid"]
        for orphan in self._store.owned_by(uid):
            if not any(owner != uid and self._exists(owner) for owner in owner_uids(orphan)):
                self.delete(self._catalogue.ref(orphan))
        return True

    async def apply(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        wanted = children(owner, objects, self._catalogue, hash_annotation=None)
        refs = frozenset(ref for ref, _ in wanted)
        live: dict[ObjectRef, Obj] = {}
        changed: list[ObjectRef] = []
        taken: list[ObjectRef] = []
        if being_deleted(owner) or not self._exists_as(owner):
            return Applied(refs)  # the owner went while its reconciler was thinking: nobody would collect its children
        for ref, child in wanted:
            old = self._store.get_ref(ref)
            if old is not None and controller_uid(old) != owner["metadata"]["uid"]:
                taken.append(ref)
                continue
            new = _copy(child)
            if old is not None and "status" in old:
                new["status"] = old["status"]
            live[ref] = self._replace(ref, old, new)
            if live[ref] is not old:
                changed.append(ref)
        return Applied(refs, live, tuple(changed), tuple(taken))

    async def make(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        wanted = children(owner, objects, self._catalogue, hash_annotation=None)
        there = {ref: self._store.get_ref(ref) for ref, _ in wanted}
        uid = owner["metadata"]["uid"]
        taken = tuple(ref for ref, obj in there.items() if obj is not None and controller_uid(obj) != uid)
        missing = [obj for obj in objects if there[self._catalogue.ref(obj)] is None]
        made = await self.apply(owner=owner, objects=missing)
        return Applied(frozenset(there), made.live, made.changed, taken)

    async def prune(self, *, owner: Mapping[str, Any], keep: Collection[ObjectRef]) -> tuple[ObjectRef, ...]:
        uid = owner["metadata"]["uid"]
        owned = [(self._catalogue.ref(obj), obj) for obj in self._store.owned_by(uid)]
        return tuple(ref for ref, obj in owned if ref not in keep and controller_uid(obj) == uid and self.delete(ref))

    async def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        ref = self._catalogue.ref(obj)
        old = self._store.get_ref(ref)
        if old is None or old["metadata"]["uid"] != obj["metadata"]["uid"]:
            return False
        return self.set_status(ref, status) is not old

    def _replace(self, ref: ObjectRef, old: Obj | None, new: Obj) -> Obj:
        """Stores `new` with the bookkeeping of `old`; returns `old` itself if nothing differs."""
        metadata: Obj = {name: value for name, value in new["metadata"].items() if name not in _KEPT}
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        if old is None:
            metadata |= {"uid": self._new_uid(), "generation": 1, "creationTimestamp": _timestamp(self._now())}
        else:
            kept = old["metadata"]
            metadata |= {name: kept[name] for name in _KEPT}
            if {**new, "metadata": metadata} == old:
                return old
            metadata["generation"] = kept["generation"] + (_content(new) != _content(old))
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        stored = {**new, "metadata": metadata}
        self._store.observe(ref.resource, stored)
        return stored

    def _exists(self, uid: str) -> bool:
        return any(
            obj["metadata"]["uid"] == uid for resource in self._store.resources for obj in self._store.list(resource)
        )

    def _exists_as(self, obj: Mapping[str, Any]) -> bool:
        found = self._store.get_ref(self._catalogue.ref(obj))
        return found is not None and bool(found["metadata"]["uid"] == obj["metadata"]["uid"])


def _content(obj: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _copy(obj: Mapping[str, Any]) -> Obj:
    """A copy down to the leaves that holds nothing but JSON, so that nobody's later change reaches the store."""
    copied: Obj = orjson.loads(orjson.dumps(obj))
    return copied


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
