"""What is known of the cluster: objects by key, named indexes, and our own writes before the watch confirms them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fairway.kube.resource import Obj, ObjectRef, Resource
from fairway.runtime.resource_version import Order, compare, version_of
from fairway.runtime.selector import LabelSelector

Key = tuple[str, str]
IndexFunction = Callable[[Obj], Iterable[str]]
Trim = Callable[[Obj], Obj]
Unsubscribe = Callable[[], None]

OWNER_UID = "owner-uid"


@dataclass(frozen=True, slots=True)
class Change:
    """One object came (no `old`), changed, or went (no `new`)."""

    resource: Resource
    old: Obj | None
    new: Obj | None

    @property
    def obj(self) -> Obj:
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


Subscriber = Callable[[Change], None]


class StoreView(Protocol):
    """The reading side of a store. Everything returned is shared: never change it in place."""

    def get(self, resource: Resource, namespace: str | None, name: str) -> Obj | None: ...
    def list(self, resource: Resource, namespace: str | None = None) -> tuple[Obj, ...]: ...
    def by_index(self, resource: Resource, index_name: str, key: str) -> tuple[Obj, ...]: ...
    def owned_by(self, uid: str, resource: Resource | None = None) -> tuple[Obj, ...]: ...
    def synced(self, resource: Resource) -> bool: ...
    def subscribe(self, resource: Resource, subscriber: Subscriber) -> Unsubscribe: ...
    def subscribe_synced(self, resource: Resource, subscriber: Callable[[], None]) -> Unsubscribe: ...


def owner_uids(obj: Obj) -> Iterable[str]:
    return (owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ())


def identity_only(obj: Obj) -> Obj:
    """For kinds of which it is enough to know that an object is there and when it changes."""
    kept = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept}


_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp")


@dataclass(slots=True)
class _Scope:
    """One list-and-watch of a resource: all namespaces (`None`) or a single one."""

    selector: LabelSelector
    version: str = ""
    synced: bool = False
    staged: dict[Key, Obj] | None = None
    staging_since: int = 0


@dataclass(slots=True)
class _Shelf:
    """All objects of one resource."""

    resource: Resource
    indexes: dict[str, IndexFunction]
    trim: Trim | None = None
    scopes: dict[str | None, _Scope] = field(default_factory=dict)
    objects: dict[str, dict[str, Obj]] = field(default_factory=dict)
    index: dict[str, dict[str, dict[Key, Obj]]] = field(default_factory=dict)
    unconfirmed: dict[Key, int] = field(default_factory=dict)
    erased: dict[str, int] = field(default_factory=dict)
    subscribers: list[Subscriber] = field(default_factory=list)
    when_synced: list[Callable[[], None]] = field(default_factory=list)

    @property
    def synced(self) -> bool:
        return bool(self.scopes) and all(scope.synced for scope in self.scopes.values())

    def get(self, key: Key) -> Obj | None:
        names = self.objects.get(key[0])
        return names.get(key[1]) if names else None

    def scope_for(self, namespace: str) -> _Scope | None:
        return self.scopes.get(None) or self.scopes.get(namespace)

    def put(self, key: Key, new: Obj) -> Obj | None:
        names = self.objects.setdefault(key[0], {})
        old = names.get(key[1])
        names[key[1]] = new
        for name, function in self.indexes.items():
            entries = self.index[name]
            if old is not None:
                _unlink(entries, function(old), key)
            for value in function(new):
                entries.setdefault(value, {})[key] = new
        return old

    def pop(self, key: Key) -> Obj | None:
        names = self.objects.get(key[0])
        old = names.pop(key[1], None) if names else None
        if names is not None and not names:
            del self.objects[key[0]]
        if old is not None:
            for name, function in self.indexes.items():
                _unlink(self.index[name], function(old), key)
        self.unconfirmed.pop(key, None)
        return old

    def beyond(self, key: Key, version: str) -> bool:
        """Whether a list of that version is too old to know of the object."""
        obj = self.get(key)
        return obj is not None and compare(version_of(obj), version) in (Order.NEWER, Order.UNKNOWN)

    def add_index(self, name: str, function: IndexFunction) -> None:
        self.indexes[name] = function
        entries = self.index[name] = {}
        for obj in self:
            for value in function(obj):
                entries.setdefault(value, {})[_key(obj)] = obj

    def tell(self, old: Obj | None, new: Obj | None) -> None:
        if self.subscribers and (old is not None or new is not None):
            change = Change(self.resource, old, new)
            for subscriber in tuple(self.subscribers):
                subscriber(change)

    def __iter__(self) -> Iterator[Obj]:
        for names in self.objects.values():
            yield from names.values()


class Store:
    """Objects of the registered resources, kept by reflectors (or by a MemoryWorld), read by everybody else.

    Invariants: an object is never replaced by an older version of itself; a reply to one of our own writes is visible
    at once and survives a relist that began before the write; an object that we deleted does not come back through a
    late event; subscribers hear of every difference exactly once, after the store and its indexes show it.
    """

    def __init__(self) -> None:
        self._shelves: dict[Resource, _Shelf] = {}
        self._writes = 0
        self._waiting: list[asyncio.Event] = []

    def register(
        self,
        resource: Resource,
        *,
        scopes: Iterable[str | None] = (),
        selector: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        trim: Trim | None = None,
    ) -> None:
        """Makes room for a resource; may be called again to add scopes and indexes."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = _Shelf(resource, {})
            shelf.add_index(OWNER_UID, owner_uids)
        for name, function in (indexes or {}).items():
            if shelf.indexes.get(name, function) is not function:
                raise ValueError(f"{resource} already has another index named {name!r}")
            if name not in shelf.indexes:
                shelf.add_index(name, function)
        shelf.trim = trim or shelf.trim
        for scope in scopes:
            shelf.scopes.setdefault(scope, _Scope(LabelSelector(selector)))

    def registered(self, resource: Resource) -> bool:
        return resource in self._shelves

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(self._shelves)

    def get(self, resource: Resource, namespace: str | None, name: str) -> Obj | None:
        return self._shelf(resource).get((namespace or "", name))

    def get_ref(self, ref: ObjectRef) -> Obj | None:
        return self._shelf(ref.resource).get((ref.namespace, ref.name))

    def list(self, resource: Resource, namespace: str | None = None) -> tuple[Obj, ...]:
        shelf = self._shelf(resource)
        return tuple(shelf) if namespace is None else tuple(shelf.objects.get(namespace, {}).values())

    def by_index(self, resource: Resource, index_name: str, key: str) -> tuple[Obj, ...]:
        shelf = self._shelf(resource)
        if index_name not in shelf.index:
            raise LookupError(f"{resource} has no index {index_name!r}; it has {sorted(shelf.index)}")
        return tuple(shelf.index[index_name].get(key, {}).values())

    def owned_by(self, uid: str, resource: Resource | None = None) -> tuple[Obj, ...]:
        """Objects with an owner reference to `uid`, of one resource or of all."""
        shelves = (self._shelf(resource),) if resource else tuple(self._shelves.values())
        return tuple(obj for shelf in shelves for obj in shelf.index[OWNER_UID].get(uid, {}).values())

    def synced(self, resource: Resource) -> bool:
        shelf = self._shelves.get(resource)
        return shelf is not None and shelf.synced

    async def wait_synced(self, resources: Iterable[Resource]) -> None:
        wanted = tuple(resources)
        signal = asyncio.Event()
        self._waiting.append(signal)
        try:
            while not all(self.synced(resource) for resource in wanted):
                await signal.wait()
                signal.clear()
        finally:
            self._waiting.remove(signal)

    def subscribe(self, resource: Resource, subscriber: Subscriber) -> Unsubscribe:
        """Calls `subscriber` for every later change. It must return at once and must not raise."""
        subscribers = self._shelf(resource).subscribers
        subscribers.append(subscriber)
        return lambda: subscribers.remove(subscriber)

    def subscribe_synced(self, resource: Resource, subscriber: Callable[[], None]) -> Unsubscribe:
        """Calls `subscriber` whenever the resource has become synced, first or after it was lost."""
        when_synced = self._shelf(resource).when_synced
        when_synced.append(subscriber)
        return lambda: when_synced.remove(subscriber)

    # The reflector's side. One scope is only ever written by its own reflector.

    def begin(self, resource: Resource, scope: str | None = None) -> None:
        """A list starts; what it brings is staged until `commit`, and readers keep seeing the old state."""
        writing = self._scope(resource, scope)
        writing.staged, writing.staging_since = {}, self._writes

    def stage(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        staged = self._scope(resource, scope).staged
        assert staged is not None, "stage() without begin()"
        staged[_key(obj)] = self._trimmed(resource, obj)

    def unstage(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        staged = self._scope(resource, scope).staged
        assert staged is not None, "unstage() without begin()"
        staged.pop(_key(obj), None)

    def commit(self, resource: Resource, version: str, scope: str | None = None) -> None:
        """The list is complete: swap at once, and tell what vanished as deletions.

        The list is the authority, even over versions that look newer (a restored etcd counts anew). Only what we wrote
        or erased after the list began may know better.
        """
        shelf, writing = self._shelf(resource), self._scope(resource, scope)
        assert writing.staged is not None, "commit() without begin()"
        staged, since = writing.staged, writing.staging_since
        writing.staged, writing.version = None, version
        changes: list[tuple[Obj | None, Obj | None]] = []
        for key, new in staged.items():
            if shelf.erased.get(new["metadata"].get("uid", ""), 0) > since:
                continue
            old = shelf.get(key)
            if old is not None:
                order = compare(version_of(new), version_of(old))
                if shelf.unconfirmed.get(key, 0) > since and order is Order.OLDER:
                    continue
                if order is Order.SAME and _same_uid(old, new):
                    shelf.unconfirmed.pop(key, None)
                    continue
            changes += _as_changes(old, new)
            shelf.put(key, new)
            shelf.unconfirmed.pop(key, None)
        present = [_key(obj) for obj in shelf if scope is None or obj["metadata"].get("namespace", "") == scope]
        for key in present:
            if key not in staged and not (shelf.unconfirmed.get(key, 0) > since and shelf.beyond(key, version)):
                changes.append((shelf.pop(key), None))
        shelf.erased = {uid: at for uid, at in shelf.erased.items() if at > since}
        known, writing.synced = shelf.synced, True
        for change in changes:
            shelf.tell(*change)
        if shelf.synced and not known:
            for subscriber in tuple(shelf.when_synced):
                subscriber()
        for signal in self._waiting:
            signal.set()

    def observe(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        """A watch says that the object is like this now."""
        shelf, key = self._shelf(resource), _key(obj)
        self._scope(resource, scope).version = version_of(obj)
        old = shelf.get(key)
        if old is not None:
            order = compare(version_of(obj), version_of(old))
            if order is Order.OLDER:
                return
            if order is Order.SAME:
                shelf.unconfirmed.pop(key, None)
                return
        if obj["metadata"].get("uid", "") in shelf.erased:
            return
        new = self._trimmed(resource, obj)
        shelf.put(key, new)
        shelf.unconfirmed.pop(key, None)
        for change in _as_changes(old, new):
            shelf.tell(*change)

    def observe_deleted(self, resource: Resource, obj: Obj, scope: str | None = None) -> None:
        """A watch says that the object is gone (or no longer matches its selector)."""
        shelf, key = self._shelf(resource), _key(obj)
        self._scope(resource, scope).version = version_of(obj)
        shelf.erased.pop(obj["metadata"].get("uid", ""), None)
        old = shelf.get(key)
        if old is None or compare(version_of(obj), version_of(old)) is Order.OLDER:
            return
        if not _same_uid(old, obj) and compare(version_of(obj), version_of(old)) is Order.UNKNOWN:
            return
        shelf.tell(shelf.pop(key), None)

    def progress(self, resource: Resource, version: str, scope: str | None = None) -> None:
        """A bookmark: the watch has delivered everything up to `version`."""
        self._scope(resource, scope).version = version

    def desync(self, resource: Resource, scope: str | None = None) -> None:
        """What is stored can no longer be kept current, for example because the kind is no longer served."""
        self._scope(resource, scope).synced = False

    # Our own writes.

    def written(self, resource: Resource, obj: Obj) -> bool:
        """A reply to our write, visible at once. False if it was not taken because the store already knows better."""
        shelf, key = self._shelf(resource), _key(obj)
        scope = shelf.scope_for(key[0])
        if scope is not None and not scope.selector.matches(obj["metadata"].get("labels")):
            raise ValueError(
                f"{resource.kind} {key[1]!r} does not match the selector {scope.selector.text!r} of its own watch"
            )
        old = shelf.get(key)
        if old is not None and compare(version_of(obj), version_of(old)) in (Order.SAME, Order.OLDER):
            return False
        if obj["metadata"].get("uid", "") in shelf.erased:
            return False
        if scope is not None and compare(version_of(obj), scope.version) in (Order.SAME, Order.OLDER):
            return False  # the watch is past this write: what is stored now includes it, and whatever came after
        new = self._trimmed(resource, obj)
        self._writes += 1
        shelf.put(key, new)
        shelf.unconfirmed[key] = self._writes
        for change in _as_changes(old, new):
            shelf.tell(*change)
        return True

    def erased(self, resource: Resource, namespace: str | None, name: str, uid: str) -> None:
        """The server confirmed that our delete removed the object with this uid."""
        shelf, key = self._shelf(resource), (namespace or "", name)
        self._writes += 1
        shelf.erased[uid] = self._writes
        old = shelf.get(key)
        if old is not None and old["metadata"].get("uid") == uid:
            shelf.tell(shelf.pop(key), None)

    def _shelf(self, resource: Resource) -> _Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            raise LookupError(f"{resource} is not in the store: declare it as owned or watched by a controller")
        return shelf

    def _scope(self, resource: Resource, scope: str | None) -> _Scope:
        return self._shelf(resource).scopes[scope]

    def _trimmed(self, resource: Resource, obj: Obj) -> Obj:
        trim = self._shelves[resource].trim
        return trim(obj) if trim else obj


def _key(obj: Obj) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _same_uid(left: Obj, right: Obj) -> bool:
    return bool(left["metadata"].get("uid") == right["metadata"].get("uid"))


def _as_changes(old: Obj | None, new: Obj) -> list[tuple[Obj | None, Obj | None]]:
    """An object replaced by another of the same name is a deletion and a creation, whoever saw it in between."""
    return [(old, new)] if old is None or _same_uid(old, new) else [(old, None), (None, new)]


def _unlink(entries: dict[str, dict[Key, Obj]], values: Iterable[str], key: Key) -> None:
    for value in values:
        if bucket := entries.get(value):
            bucket.pop(key, None)
            if not bucket:
                del entries[value]
