"""Keeps a store equal to the cluster: list, watch, resume, relist."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol, assert_never

import structlog

from fairway.kube.client import Page, WatchEvent
from fairway.kube.errors import (
    Gone,
    KubeError,
    NotFound,
    Transient,
    Unreachable,
    WatchSilent,
    from_status,
)
from fairway.kube.resource import Obj, Resource
from fairway.runtime.resource_version import version_of
from fairway.runtime.store import Store

# Theory of operation. `step` is the whole of the protocol: a state and what just happened give the next state, what to
# tell the store, and what to ask the server next. It does no I/O and reads no clock. `Reflector` only carries its
# requests out. The store sees one vocabulary whether the objects came as a stream or in pages: Init, InitApply ...,
# InitDone, then Apply, Delete and Progress.


class Phase(Enum):
    EMPTY = auto()
    INIT_STREAM = auto()
    INIT_PAGES = auto()
    WATCHING = auto()


@dataclass(frozen=True, slots=True)
class State:
    """Where a reflector is. `version` and `continue_token` are where to go on from; `failures` drives the backoff."""

    phase: Phase = Phase.EMPTY
    version: str = ""
    continue_token: str = ""
    streaming: bool = True
    paged: bool = True
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Began:
    """The reflector was started, or a wait is over."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the watch in the normal way; `eventful` if it delivered anything."""

    eventful: bool


@dataclass(frozen=True, slots=True)
class Failed:
    error: KubeError


Happened = Began | Page | WatchEvent | Closed | Failed


@dataclass(frozen=True, slots=True)
class Init:
    pass


@dataclass(frozen=True, slots=True)
class InitApply:
    obj: Obj


@dataclass(frozen=True, slots=True)
class InitDelete:
    obj: Obj


@dataclass(frozen=True, slots=True)
class InitDone:
    version: str


@dataclass(frozen=True, slots=True)
class Apply:
    obj: Obj


@dataclass(frozen=True, slots=True)
class Delete:
    obj: Obj


@dataclass(frozen=True, slots=True)
class Progress:
    version: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The server does not have this kind (any more): what the store holds cannot be trusted to be current."""


Effect = Init | InitApply | InitDelete | InitDone | Apply | Delete | Progress | Lost


@dataclass(frozen=True, slots=True)
class ListPage:
    """Ask for a page (an unlimited one if not `paged`), after `wait` seconds."""

    continue_token: str
    paged: bool
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Open a watch from `version`, or with all present objects first if `initial`, after `wait` seconds."""

    version: str
    initial: bool
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Take the next event of the open watch."""


Request = ListPage | OpenWatch | ReadOn


@dataclass(frozen=True, slots=True)
class Step:
    state: State
    effects: Sequence[Effect]
    request: Request


INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_READ_ON = ReadOn()
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 30.0
# A kind that is not there may be installed at any time, and somebody will be waiting for it to be noticed.
_LONGEST_ABSENCE = 10.0


def step(state: State, happened: Happened) -> Step:
    """The next state, what the store must hear, and what to ask next."""
    match happened:
        case WatchEvent(type="ERROR", object=status):
            return _failed(state, from_status(status))
        case WatchEvent():
            return _event(state, happened)
        case Began():
            return _begin(state)
        case Page():
            return _page(state, happened)
        case Closed(eventful):
            return _closed(state, eventful)
        case Failed(error):
            return _failed(state, error)
        case _:
            assert_never(happened)


def _begin(state: State, *, wait: float = 0.0) -> Step:
    if state.streaming:
        return Step(replace(state, phase=Phase.INIT_STREAM), (Init(),), OpenWatch("", initial=True, wait=wait))
    started = replace(state, phase=Phase.INIT_PAGES, continue_token="")
    return Step(started, (Init(),), ListPage("", state.paged, wait))


def _page(state: State, page: Page) -> Step:
    staged: list[Effect] = [InitApply(obj) for obj in page.items]
    if page.continue_token:
        going_on = replace(state, continue_token=page.continue_token)
        return Step(going_on, staged, ListPage(page.continue_token, state.paged))
    return _listed(state, staged, page.resource_version, watching=False)


def _listed(state: State, staged: list[Effect], version: str, *, watching: bool) -> Step:
    done = State(Phase.WATCHING, version, streaming=state.streaming, paged=True, failures=state.failures)
    staged.append(InitDone(version))
    return Step(done, staged, _READ_ON if watching else OpenWatch(version, initial=False))


def _event(state: State, event: WatchEvent) -> Step:
    obj = event.object
    if state.phase is Phase.INIT_STREAM:
        if event.type == "BOOKMARK":
            ended = obj["metadata"].get("annotations", {}).get(INITIAL_EVENTS_END) == "true"
            return _listed(state, [], version_of(obj), watching=True) if ended else Step(state, (), _READ_ON)
        effect: Effect = InitDelete(obj) if event.type == "DELETED" else InitApply(obj)
        return Step(state, (effect,), _READ_ON)
    version = version_of(obj)
    watching = State(Phase.WATCHING, version, streaming=state.streaming)
    if event.type == "BOOKMARK":
        return Step(watching, (Progress(version),), _READ_ON)
    return Step(watching, (Delete(obj) if event.type == "DELETED" else Apply(obj),), _READ_ON)


def _closed(state: State, eventful: bool) -> Step:
    if state.phase is Phase.WATCHING:
        # A server that closes at once without a word would otherwise be asked in a tight loop.
        failures = 0 if eventful else state.failures + 1
        resumed = replace(state, failures=failures)
        return Step(resumed, (), OpenWatch(state.version, initial=False, wait=0.0 if eventful else _wait(failures)))
    if state.failures:
        # Not by accident then: something ends streams before they can be complete, so ask for the list in pages.
        return _begin(replace(state, streaming=False))
    return _failed(state, Unreachable("the stream of initial objects ended early"))


def _failed(state: State, error: KubeError) -> Step:
    failures = state.failures + 1
    wait = max(_wait(failures), error.retry_after or 0.0)
    failed = replace(state, failures=failures)
    if state.phase is Phase.WATCHING:
        if isinstance(error, Gone) or _is_beyond_the_server(state, error):
            # The first relist goes at once; a server that says Gone again and again is asked ever more slowly.
            return _begin(failed, wait=0.0 if failures == 1 else wait)
        if not isinstance(error, NotFound):
            return Step(failed, (), OpenWatch(state.version, initial=False, wait=wait))
    if state.phase is Phase.INIT_STREAM and _cannot_stream(error):
        return _begin(replace(failed, streaming=False))
    if state.phase is Phase.INIT_PAGES:
        if isinstance(error, Gone):
            # The continue token outlived etcd's history: pages take too long here, so take everything in one.
            return _begin(replace(failed, paged=False), wait=0.0 if state.paged else wait)
        if isinstance(error, Transient):
            return Step(failed, (), ListPage(state.continue_token, state.paged, wait))
    if not isinstance(error, NotFound):
        return _begin(failed, wait=wait)
    again = _begin(failed, wait=min(wait, _LONGEST_ABSENCE))
    return replace(again, effects=(Lost(), *again.effects))


def _cannot_stream(error: KubeError) -> bool:
    """True for anything that a server without working WatchList may say; its words differ by version and storage.

    One that ignores the parameters never ends the initial list: that shows as silence.
    """
    if isinstance(error, WatchSilent):
        return True
    return error.status in (400, 405, 406, 415, 422, 500)


def _is_beyond_the_server(state: State, error: KubeError) -> bool:
    """The server never had our version: etcd was restored from a backup, and counts anew.

    A server may say so. Mostly it just delivers nothing, not even a bookmark, until it has counted up to us.
    """
    return error.has_cause("ResourceVersionTooLarge") or (isinstance(error, WatchSilent) and state.failures > 0)


def _wait(failures: int) -> float:
    return min(_FIRST_WAIT * 2.0 ** min(failures - 1, 16), _LONGEST_WAIT)


class ListWatch(Protocol):
    """What a reflector needs from a client."""

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        limit: int,
        continue_token: str,
        label_selector: str,
        field_selector: str,
        metadata_only: bool,
    ) -> Page: ...

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        resource_version: str,
        initial: bool,
        label_selector: str,
        field_selector: str,
        metadata_only: bool,
        silence: float,
    ) -> AsyncGenerator[WatchEvent]: ...


class Reflector:
    """Runs the state machine for one resource (and namespace) into a store, until cancelled.

    `silence` is how long a watch may deliver no byte before it is taken for dead: the server sends a bookmark about
    every minute, and resuming costs one request, so a wrong guess is cheap.
    """

    def __init__(
        self,
        *,
        client: ListWatch,
        store: Store,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        streaming: bool = True,
        page_size: int = 500,
        silence: float = 90.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._store = store
        self.resource = resource
        self.namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._page_size = page_size
        self._silence = silence
        self._sleep = sleep
        self._spread = spread
        self._start = State(streaming=streaming)
        self._log = structlog.get_logger("reflector").bind(resource=str(resource), namespace=namespace or "*")
        self.lists = 0
        self.last_error: KubeError | None = None
        store.register(resource, scopes=(namespace,), selector=label_selector)

    async def run(self) -> None:
        now = step(self._start, Began())
        while True:
            self._tell(now.effects)
            match now.request:
                case ListPage():
                    now = step(now.state, await self._list(now.request))
                case OpenWatch():
                    now = await self._watch(now.state, now.request)
                case ReadOn():
                    raise AssertionError("the state machine wants to read from a watch that is not open")

    async def _list(self, request: ListPage) -> Page | Failed:
        await self._pause(request.wait)
        try:
            return await self._client.list_page(
                self.resource,
                namespace=self.namespace,
                limit=self._page_size if request.paged else 0,
                continue_token=request.continue_token,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                metadata_only=self._metadata_only,
            )
        except KubeError as error:
            return self._failed(error)

    async def _watch(self, state: State, request: OpenWatch) -> Step:
        """Reads one watch to its end; the effects of the returned step are still to be told."""
        await self._pause(request.wait)
        eventful = False
        try:
            events = self._client.watch(
                self.resource,
                namespace=self.namespace,
                resource_version=request.version,
                initial=request.initial,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                metadata_only=self._metadata_only,
                silence=self._silence,
            )
            async with aclosing(events):
                async for event in events:
                    eventful = True
                    now = step(state, event)
                    if not isinstance(now.request, ReadOn):
                        if event.type == "ERROR":
                            self._failed(from_status(event.object))
                        return now
                    self._tell(now.effects)
                    state = now.state
        except KubeError as error:
            return step(state, self._failed(error))
        return step(state, Closed(eventful))

    def _tell(self, effects: Sequence[Effect]) -> None:
        store, resource, scope = self._store, self.resource, self.namespace
        for effect in effects:
            match effect:
                case Apply(obj):
                    store.observe(resource, obj, scope)
                case Delete(obj):
                    store.observe_deleted(resource, obj, scope)
                case Progress(version):
                    store.progress(resource, version, scope)
                case InitApply(obj):
                    store.stage(resource, obj, scope)
                case InitDelete(obj):
                    store.unstage(resource, obj, scope)
                case Init():
                    store.begin(resource, scope)
                case InitDone(version):
                    store.commit(resource, version, scope)
                    self.lists += 1
                    self.last_error = None
                case Lost():
                    store.desync(resource, scope)
                case _:
                    assert_never(effect)

    def _failed(self, error: KubeError) -> Failed:
        known, self.last_error = self.last_error, error
        # A watch that must be resumed or restarted is everyday life; what a person can cure is not, but once is enough.
        level = "info" if isinstance(error, (Gone, Transient)) else "warning"
        if not isinstance(error, Transient) and str(error) == str(known):
            level = "debug"
        getattr(self._log, level)("watch interrupted", error=str(error))
        return Failed(error)

    async def _pause(self, wait: float) -> None:
        if wait > 0:
            await self._sleep(wait * (1.0 + 0.2 * self._spread()))
