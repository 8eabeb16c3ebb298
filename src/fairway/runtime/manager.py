"""Runs controllers against a cluster: caches, leadership, probes, signals, an orderly stop."""

import asyncio
import contextlib
import gc
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from fairway.kube.client import Client
from fairway.kube.config import ClusterAccess
from fairway.kube.resource import Catalogue, Resource
from fairway.kube.transport import Transport
from fairway.runtime.apply import ClusterWorld, no_fence
from fairway.runtime.controller import Controller
from fairway.runtime.endpoints import Address, Endpoints
from fairway.runtime.events import EventRecorder
from fairway.runtime.lease import Elector, LeaseTerms
from fairway.runtime.metrics import RuntimeMetrics, Sources
from fairway.runtime.queue import Backoff
from fairway.runtime.reflector import Reflector
from fairway.runtime.store import Store

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """How this program is known to the cluster and to those who watch it."""

    name: str
    field_manager: str
    hash_annotation: str
    metrics_prefix: str
    version: str = "0"
    instance: str = field(default_factory=lambda: f"{socket.gethostname()}_{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True)
class Tuning:
    """What can change while the program runs: how fast, how many at once, how often. None leaves a controller's own."""

    rate: float = 0.0
    burst: int = 100
    workers: int | None = None
    backoff: Backoff | None = None
    resync: float | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator of this operator can turn. Addresses of None serve nothing; no namespaces means all of them."""

    metrics: Address | None = None
    probes: Address | None = None
    lease: LeaseTerms | None = None
    namespaces: tuple[str, ...] = ()
    label_selectors: Mapping[Resource, str] = field(default_factory=dict)
    connections: int = 32
    tuning: Tuning = field(default_factory=Tuning)
    grace: float = 10.0


class Manager:
    """Owns the loop's life: start the caches, lead if there is a lease, work, stop.

    `run` returns the exit code: 0 after a stop that was asked for, 1 when the lease was lost. A bug in a reflector or
    in the queue ends it with that exception, because going on half blind would be worse.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        controllers: Sequence[Controller],
        catalogue: Catalogue,
        identity: Identity,
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        self.registry = CollectorRegistry()
        self.controllers = tuple(controllers)
        self.store = Store()
        self._metrics = RuntimeMetrics(
            self.registry, prefix=identity.metrics_prefix, host=urlsplit(access.server).netloc
        )
        self.client = Client(
            Transport(
                access,
                user_agent=f"{identity.name}/{identity.version}",
                connections=self.options.connections,
                observe=self._metrics.request,
            ),
            field_manager=identity.field_manager,
        )
        self._elector = (
            Elector(self.client, terms=self.options.lease, identity=identity.instance) if self.options.lease else None
        )
        self.world = ClusterWorld(
            client=self.client,
            store=self.store,
            catalogue=catalogue,
            hash_annotation=identity.hash_annotation,
            fence=self._elector.fence if self._elector else no_fence,
        )
        self._recorder = EventRecorder(self.client, controller=identity.name, instance=identity.instance)
        self.reflectors = self._reflectors()
        self._endpoints = Endpoints(
            probes=self.options.probes,
            metrics=self.options.metrics,
            registry=self.registry,
            readiness=self._missing,
        )
        self._metrics.read_from(
            Sources(
                self.controllers,
                self.reflectors,
                self.store,
                self.world.counts,
                lambda: self._elector is None or self._elector.leading,
            )
        )
        self._stop = asyncio.Event()
        self._log = structlog.get_logger(identity.name)
        self.tune(self.options.tuning)

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Where probes and metrics are really served."""
        return self._endpoints.bound

    def stop(self) -> None:
        self._stop.set()

    def tune(self, tuning: Tuning) -> None:
        """Takes effect at once, also in the middle of the work."""
        self.client.limit(rate=tuning.rate, burst=tuning.burst)
        for controller in self.controllers:
            controller.tune(workers=tuning.workers, backoff=tuning.backoff, resync=tuning.resync)

    async def run(
        self,
        *,
        signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
        beside: Mapping[str, Work] = MappingProxyType({}),
    ) -> int:
        """`beside` is work that lasts as long as the manager and must not end before it."""
        loop = asyncio.get_running_loop()
        handled = tuple(signals)
        for number in handled:
            loop.add_signal_handler(number, self.stop)
        try:
            await self._endpoints.start()
            async with _Tasks() as caches:
                for reflector in self.reflectors:
                    caches.start(reflector.run(), str(reflector.resource))
                caches.start(self._metrics.measure_loop_lag(), "loop lag")
                for name, work in beside.items():
                    caches.start(work(), name)
                return await self._lead(caches)
        finally:
            self._log.info("stopped", **asdict(self.world.counts))
            for number in handled:
                loop.remove_signal_handler(number)
            await self._endpoints.close()
            await self.client.close()

    async def _lead(self, caches: "_Tasks") -> int:
        if not await caches.race(self.store.wait_synced(self._required()), self._stop.wait()):
            return 0
        # What is in the caches stays for long: the collector need not walk it again and again.
        gc.collect()
        gc.freeze()
        self._log.info("caches are filled", objects=sum(len(self.store.list(r)) for r in self._resources()))
        if self._elector is None:
            await self._work(caches, self._stop.wait())
            return 0
        if not await caches.race(self._elector.acquire(), self._stop.wait()):
            return 0
        try:
            lost = await self._work(caches, self._elector.hold(), self._stop.wait())
        finally:
            await self._elector.release()
        return 1 if lost else 0

    async def _work(self, caches: "_Tasks", *until: Awaitable[object]) -> bool:
        """Runs the controllers until one of `until` is over; says whether it was the first of them."""
        async with _Tasks() as work:
            work.start(self._recorder.run(), "events")
            for controller in self.controllers:
                work.start(
                    controller.run(self.world, recorder=self._recorder, meter=self._metrics, grace=self.options.grace),
                    controller.name,
                )
            return await caches.race(*until, beside=work)

    def _resources(self) -> tuple[Resource, ...]:
        return tuple(dict.fromkeys(resource for controller in self.controllers for resource in controller.resources))

    def _required(self) -> tuple[Resource, ...]:
        """What work cannot begin without: what some controller needs and does not call optional."""
        return tuple(dict.fromkeys(resource for controller in self.controllers for resource in controller.required))

    def _reflectors(self) -> tuple[Reflector, ...]:
        made: list[Reflector] = []
        for resource in self._resources():
            users = [controller for controller in self.controllers if resource in controller.resources]
            namespaces: tuple[str | None, ...] = self.options.namespaces if resource.namespaced else ()
            for namespace in namespaces or (None,):
                reflector = Reflector(
                    client=self.client,
                    store=self.store,
                    resource=resource,
                    namespace=namespace,
                    label_selector=self.options.label_selectors.get(resource, ""),
                    metadata_only=all(resource in controller.metadata_only for controller in users),
                )
                made.append(reflector)
            trims = {controller.trims.get(resource) for controller in users}
            if len(trims) > 1:
                names = ", ".join(controller.name for controller in users)
                raise ValueError(f"the controllers {names} share {resource} and must agree on how it is trimmed")
            self.store.register(resource, trim=trims.pop())
        for controller in self.controllers:
            for resource, indexes in controller.indexes.items():
                self.store.register(resource, indexes=indexes)
        return tuple(made)

    def _missing(self) -> list[str]:
        if self._stop.is_set():
            return ["stopping"]
        missing = []
        required = frozenset(self._required())
        for reflector in self.reflectors:
            if reflector.resource in required and not self.store.synced(reflector.resource):
                why = f": {reflector.last_error}" if reflector.last_error else ""
                missing.append(f"{reflector.resource} is not listed yet{why}")
        return missing


class _Tasks:
    """Tasks that live as long as a block; one that fails fails everything that races beside it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> "_Tasks":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(work, name=name))

    async def race(self, *contenders: Awaitable[object], beside: "_Tasks | None" = None) -> bool:
        """Waits for the first contender to end; True if that was the first one named."""
        racing = [asyncio.ensure_future(contender) for contender in contenders]
        background = self._tasks | (beside._tasks if beside else set())
        try:
            done, _ = await asyncio.wait([*racing, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in done & background:
                task.result()
                raise RuntimeError(f"{task.get_name()} ended, which it never should")
            for task in done:
                task.result()
            return racing[0] in done and len(done) == 1
        finally:
            for task in racing:
                task.cancel()
            for task in racing:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
