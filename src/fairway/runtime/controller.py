"""Keeps reconciling the objects of one kind, whenever they or what they depend on change."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from fairway.kube.errors import Conflict, KubeError, Refused
from fairway.kube.resource import Obj, ObjectRef, Resource
from fairway.runtime.child import being_deleted
from fairway.runtime.extension import Extension
from fairway.runtime.outcome import Notice, Outcome
from fairway.runtime.queue import Backoff, Queue, Taken
from fairway.runtime.selector import LabelSelector
from fairway.runtime.store import Change, IndexFunction, Key, StoreView, Trim, Unsubscribe
from fairway.runtime.world import Applied, World

Reconcile = Callable[[Obj, World], Awaitable[Outcome]]
MapFunction = Callable[[Obj, StoreView], Iterable[Key]]
Refuse = Callable[[Obj, World, Sequence[str]], Awaitable[Outcome]]
"""What becomes of an object that validators found something wrong with."""


async def refuse_by_event(_obj: Obj, _world: World, problems: Sequence[str]) -> Outcome:
    note = "; ".join(problems)
    return Outcome(reason="Refused", events=(Notice("Refused", note, type="Warning", action="Validate"),))


_MANY_IN_A_ROW = 4


class Fenced(Exception):
    """This process may not write (any more): another one leads."""


class Recorder(Protocol):
    """Takes events for an object; must return at once."""

    def record(self, obj: Obj, notice: Notice) -> None: ...


class Meter(Protocol):
    """Hears of every reconcile; what can be counted in the queue is read from there."""

    def started(self, controller: str, waited: float) -> None: ...
    def finished(self, controller: str, result: str, seconds: float) -> None: ...


class Controller:
    """Calls `reconcile(object, world)` for every object of `resource`, one at a time per object.

    An object comes up when it changes, when an object that it controls changes (`owns`), when `watches` maps another
    object to it, when its last outcome asked for it, or when `enqueue` is called. Only the name travels; what changed
    is for the reconciler to see in the store. If children could not be applied as desired, the object comes up again
    when the name in its way is free, or after `refused_retry` seconds.

    Objects that are being deleted go to `on_deleting`, or nowhere: garbage collection takes their children.

    Of resources in `metadata_only`, the store holds no more than the metadata; `trims` cut what nobody reads from the
    others. Resources in `optional` may be unknown to the cluster: work begins without them, and when they appear every
    object comes up.
    """

    def __init__(
        self,
        *,
        resource: Resource,
        reconcile: Reconcile,
        name: str | None = None,
        owns: Collection[Resource] = (),
        watches: Mapping[Resource, MapFunction] | None = None,
        indexes: Mapping[Resource, Mapping[str, IndexFunction]] | None = None,
        metadata_only: Collection[Resource] = (),
        trims: Mapping[Resource, Trim] | None = None,
        optional: Collection[Resource] = (),
        on_deleting: Reconcile | None = None,
        refuse: Refuse = refuse_by_event,
        workers: int = 16,
        timeout: float = 120.0,
        resync: float | None = None,
        refused_retry: float = 60.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = random.random,
    ) -> None:
        if workers < 1:
            raise ValueError("a controller needs at least one worker")
        if resource in optional or resource in metadata_only:
            raise ValueError("a controller cannot do without its own resource, or with only the metadata of it")
        if not {*metadata_only, *(trims or ())}.isdisjoint(owns):
            raise ValueError("what a controller owns is compared with what it wants, so it must be read as a whole")
        self.resource = resource
        self.name = name or resource.kind.lower()
        self.owns = tuple(owns)
        self.watches = dict(watches or {})
        self.indexes = dict(indexes or {})
        self.metadata_only = frozenset(metadata_only)
        self.trims = dict(trims or {})
        self.optional = frozenset(optional)
        self.extensions: tuple[Extension, ...] = ()
        self.selector = LabelSelector()
        self.workers = workers
        self.resync = resync
        self._reconcile = reconcile
        self._on_deleting = on_deleting
        self._refuse = refuse
        self._timeout = timeout
        self._refused_retry = refused_retry
        self._clock = clock
        self._spread = spread
        self._wake = asyncio.Event()
        self.queue: Queue[Key] = Queue(clock=clock, backoff=backoff, spread=spread, on_ready=self._wake.set)
        self._look_at_all: Callable[[], None] = _nothing
        self._refused: dict[ObjectRef, set[Key]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._recorder: Recorder | None = None
        self._meter: Meter | None = None
        self._log = structlog.get_logger("controller")

    def extend(self, *, selector: str = "", extensions: Sequence[Extension] = ()) -> None:
        """What others say of it, before it runs. Objects that `selector` does not match are not its business, but can
        be read and referred to."""
        self.selector = LabelSelector(selector) if selector else self.selector
        self.extensions += tuple(extensions)

    def tune(self, *, workers: int | None = None, backoff: Backoff | None = None, resync: float | None = None) -> None:
        """Changes what is given, from the next reconcile on; a resync of 0 is none."""
        self.workers = self.workers if workers is None else workers
        self.queue.backoff = self.queue.backoff if backoff is None else backoff
        if resync is not None and resync != self.resync:
            self.resync = resync
            self._look_at_all()  # or what is at rest would go on as before, that is, without a timer
        self._wake.set()

    @property
    def reconcile(self) -> Reconcile:
        """For who wants to know what it would do, over a world of their own."""
        return self._reconcile

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Everything that it reads from the store."""
        return tuple(dict.fromkeys((self.resource, *self.owns, *self.watches, *self.indexes)))

    @property
    def required(self) -> tuple[Resource, ...]:
        """What must be there before work begins."""
        return tuple(resource for resource in self.resources if resource not in self.optional)

    def enqueue(self, namespace: str, name: str) -> None:
        """Asks for a reconcile of this object now, whoever knows that there is a reason."""
        self.queue.add((namespace, name))

    async def run(
        self, world: World, *, recorder: Recorder | None = None, meter: Meter | None = None, grace: float = 10.0
    ) -> None:
        """Works until cancelled; then what is under way gets `grace` seconds to finish."""
        self._recorder, self._meter = recorder, meter
        unsubscribe = self._listen(world.store)
        self._look_at_all = lambda: self._enqueue_all(world.store)
        self._look_at_all()
        try:
            await self._dispatch(world)
        finally:
            self._look_at_all = _nothing
            for stop in unsubscribe:
                stop()
            await self._drain(grace)

    @property
    def active(self) -> int:
        return len(self._running)

    def _listen(self, store: StoreView) -> list[Unsubscribe]:
        def own(change: Change) -> None:
            self._enqueue_obj(change.obj)

        def owned(change: Change) -> None:
            for obj in (change.old, change.new):
                if obj is not None:
                    self._enqueue_owner(obj)
            if self._refused:
                self._enqueue_refused(change)

        unsubscribe = [store.subscribe(self.resource, own)]
        unsubscribe += [store.subscribe(resource, owned) for resource in self.owns]
        unsubscribe += [
            store.subscribe(resource, self._mapped(function, store)) for resource, function in self.watches.items()
        ]
        unsubscribe += [
            store.subscribe_synced(resource, lambda: self._enqueue_all(store)) for resource in self.optional
        ]
        return unsubscribe

    def _enqueue_all(self, store: StoreView) -> None:
        for obj in store.list(self.resource):
            self._enqueue_obj(obj)

    def _mapped(self, function: MapFunction, store: StoreView) -> Callable[[Change], None]:
        def mapped(change: Change) -> None:
            # Of the old state too: what it referred to may be the object that now misses it.
            for obj in (change.old, change.new):
                if obj is None:
                    continue
                try:
                    keys = list(function(obj, store))
                except Exception:
                    # A bug in one mapping must not stop the watch that feeds every controller.
                    self._log.exception("mapping failed", controller=self.name, resource=str(change.resource))
                    continue
                for namespace, name in keys:
                    self.enqueue(namespace, name)

        return mapped

    def _enqueue_obj(self, obj: Obj) -> None:
        self.enqueue(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def _enqueue_owner(self, obj: Obj) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if (
                owner.get("controller")
                and owner["kind"] == self.resource.kind
                and owner["apiVersion"].partition("/")[0] == self.resource.api_version.partition("/")[0]
            ):
                namespace = obj["metadata"].get("namespace", "") if self.resource.namespaced else ""
                self.enqueue(namespace, owner["name"])

    def _enqueue_refused(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        ref = change.resource.ref(metadata.get("namespace"), metadata["name"])
        for namespace, name in tuple(self._refused.get(ref, ())):
            self.enqueue(namespace, name)

    async def _dispatch(self, world: World) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            while len(self._running) < self.workers and (taken := self.queue.take()) is not None:
                task = asyncio.create_task(self._work(taken, world))
                self._running.add(task)
                task.add_done_callback(self._finished)
            due = self.queue.next_due() if len(self._running) < self.workers else None
            timer = None if due is None else loop.call_later(due, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _drain(self, grace: float) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=grace)
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def _work(self, taken: Taken[Key], world: World) -> None:
        key = taken.key
        started = self._clock()
        structlog.contextvars.bind_contextvars(
            controller=self.name, namespace=key[0], name=key[1], reconcile_id=os.urandom(4).hex()
        )
        if self._meter is not None:
            self._meter.started(self.name, taken.waited)
        result = "error"
        try:
            result = await self._attempt(key, world)
        except Conflict as error:
            result = self._overtaken(key, error)
        except KubeError as error:
            self._retry(key, error)
        except TimeoutError:
            self._log.warning("reconcile took too long", seconds=self._timeout)
            self._retry(key)
        except Fenced:
            self._log.info("no longer the leader: left to the one that is")
        except Exception:
            # A bug shows as a traceback; the other objects, and this one after its backoff, go on.
            self._log.exception("reconcile failed")
            self._retry(key)
        finally:
            self.queue.done(key)
            if self._meter is not None:
                self._meter.finished(self.name, result, self._clock() - started)

    async def _attempt(self, key: Key, world: World) -> str:
        obj = world.store.get(self.resource, *key)
        if obj is None or not self.selector.matches(obj["metadata"].get("labels")):
            self._forget(key)
            return "success"
        deleting = being_deleted(obj)
        if deleting and self._on_deleting is None:
            self._forget(key)
            return "success"
        watched = _WatchedWorld(world)
        async with asyncio.timeout(self._timeout):
            if deleting and self._on_deleting is not None:
                outcome = await _written(obj, watched, self._on_deleting(obj, watched))
            else:
                outcome = await self._extended(obj, watched)
        if self._recorder is not None:
            for notice in outcome.events:
                self._recorder.record(obj, notice)
        self.queue.forget(key)
        return self._schedule(key, outcome, watched)

    async def _extended(self, obj: Obj, world: World) -> Outcome:
        """The reconcile with what extensions put around it."""
        extensions = [extension for extension in self.extensions if extension.applies_to(self.resource.kind)]
        hooks = [hook for extension in extensions for hook in extension.hooks]
        for hook in hooks:
            if put_off := await hook.before(obj, world.store):
                return Outcome(requeue=put_off, reason=put_off.reason)
        problems = [
            problem for e in extensions for validator in e.validators for problem in validator(obj, world.store)
        ]
        decided = self._refuse(obj, world, problems) if problems else self._reconcile(obj, world)
        outcome = await _written(obj, world, decided)
        for hook in hooks:
            await hook.after(obj, outcome)
        return outcome

    def _schedule(self, key: Key, outcome: Outcome, watched: "_WatchedWorld") -> str:
        self._set_refused(key, watched.in_the_way)
        delays = [outcome.requeue.after] if outcome.requeue is not None else []
        if self.resync:
            delays.append(self.resync)
        if watched.incomplete:
            delays.append(self._refused_retry)
        again = min(delays, default=None)
        self._log.debug("reconciled", reason=outcome.reason, again=again)
        if again is None:
            return "success"
        # Spread, or everything that was asked for at start comes up at the same instant for ever after.
        self.queue.add_after(key, again * (1.0 + 0.1 * self._spread()))
        return "requeue_after"

    def _overtaken(self, key: Key, error: Conflict) -> str:
        """Somebody else wrote first. That is everyday life, and what they wrote is on its way to the store."""
        delay = self.queue.overtaken(key)
        log = self._log.warning if self.queue.failures(key) == _MANY_IN_A_ROW else self._log.debug
        log("overtaken, will look again", error=str(error), delay=round(delay, 3))
        return "requeue"

    def _retry(self, key: Key, error: KubeError | None = None) -> None:
        at_least = error.retry_after or 0.0 if error is not None else 0.0
        delay = self.queue.retry(key, at_least=at_least)
        if error is not None:
            # One reset is everyday life; the same thing again and again is worth a look.
            loud = isinstance(error, Refused) or self.queue.failures(key) >= _MANY_IN_A_ROW
            log = self._log.warning if loud else self._log.info
            log("reconcile will be retried", error=str(error), delay=round(delay, 3))

    def _forget(self, key: Key) -> None:
        self.queue.forget(key)
        self._set_refused(key, ())

    def _set_refused(self, key: Key, refs: Iterable[ObjectRef]) -> None:
        for ref in [ref for ref, keys in self._refused.items() if key in keys]:
            self._refused[ref].discard(key)
            if not self._refused[ref]:
                del self._refused[ref]
        for ref in refs:
            self._refused.setdefault(ref, set()).add(key)


def _nothing() -> None:
    pass


async def _written(obj: Obj, world: World, decided: Awaitable[Outcome]) -> Outcome:
    outcome = await decided
    if outcome.status is not None:
        await world.write_status(obj, outcome.status)
    return outcome


class _WatchedWorld:
    """The world as one reconcile sees it; remembers what could not be applied."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.in_the_way: list[ObjectRef] = []
        self.incomplete = False

    @property
    def store(self) -> StoreView:
        return self._world.store

    async def apply(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        applied = await self._world.apply(owner=owner, objects=objects)
        self.in_the_way += (*applied.name_taken, *applied.terminating)
        self.incomplete |= not applied.complete
        return applied

    async def make(self, *, owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Applied:
        made = await self._world.make(owner=owner, objects=objects)
        self.in_the_way += (*made.name_taken, *made.terminating)
        self.incomplete |= not made.complete
        return made

    async def prune(self, *, owner: Mapping[str, Any], keep: Collection[ObjectRef]) -> tuple[ObjectRef, ...]:
        return await self._world.prune(owner=owner, keep=keep)

    async def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        return await self._world.write_status(obj, status)
