"""Prometheus metrics under the names that dashboards for controllers already know."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairway.runtime.apply import WriteCounts
from fairway.runtime.controller import Controller
from fairway.runtime.reflector import Reflector
from fairway.runtime.store import Store

_RECONCILE_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WAIT_BUCKETS = (0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is read at the time of a scrape, because counting it twice would cost on every reconcile."""

    controllers: tuple[Controller, ...]
    reflectors: tuple[Reflector, ...]
    store: Store
    counts: WriteCounts
    leading: Callable[[], bool]


class RuntimeMetrics:
    """A Meter for controllers and an observer for the transport; everything goes to one registry."""

    def __init__(self, registry: CollectorRegistry, *, prefix: str, host: str) -> None:
        self._registry = registry
        self._prefix = prefix
        self._host = host
        self._reconciles = Counter(
            "controller_runtime_reconcile", "Reconciles by result", ["controller", "result"], registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed", ["controller"], registry=registry
        )
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconcile",
            ["controller"],
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a key waited in line",
            ["name"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Time that a key was in hand",
            ["name"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests", "Requests to the API server", ["code", "host", "method"], registry=registry
        )

        self._lag = Histogram(
            f"{prefix}_event_loop_lag_seconds",
            "How late the event loop gets to what is due",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        ProcessCollector(registry=registry)

    async def measure_loop_lag(self, *, every: float = 0.25) -> None:
        """Until cancelled. Whatever blocks the loop delays everything else by as much, probes and leases included."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            self._lag.observe(max(0.0, loop.time() - due))

    def started(self, controller: str, waited: float) -> None:
        self._waited.labels(controller).observe(waited)

    def finished(self, controller: str, result: str, seconds: float) -> None:
        self._reconciles.labels(controller, result).inc()
        self._seconds.labels(controller).observe(seconds)
        self._worked.labels(controller).observe(seconds)
        if result == "error":
            self._errors.labels(controller).inc()

    def request(self, method: str, status: int) -> None:
        self._requests.labels(str(status) if status else "<error>", self._host, method).inc()

    def read_from(self, sources: Sources) -> None:
        for controller in sources.controllers:
            self._errors.labels(controller.name)
            for result in ("success", "requeue", "requeue_after", "error"):
                self._reconciles.labels(controller.name, result)
        self._registry.register(_Snapshot(sources, self._prefix))


class _Snapshot(Collector):
    def __init__(self, sources: Sources, prefix: str) -> None:
        self._sources = sources
        self._prefix = prefix

    def collect(self) -> Iterable[Metric]:
        yield from self._queues()
        yield from self._cluster()

    def _queues(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Keys in line", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Keys added", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Keys added again after a failure", labels=["name"])
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds that the keys in hand have taken so far", labels=["name"]
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Seconds of the slowest key in hand", labels=["name"]
        )
        workers = GaugeMetricFamily(
            "controller_runtime_max_concurrent_reconciles", "Reconciles allowed at once", labels=["controller"]
        )
        active = GaugeMetricFamily("controller_runtime_active_workers", "Reconciles under way", labels=["controller"])
        braking = GaugeMetricFamily(
            f"{self._prefix}_brake_engaged", "1 while most reconciles fail and few are let start", labels=["controller"]
        )
        for controller in self._sources.controllers:
            name, queue = [controller.name], controller.queue
            ages = [time.monotonic() - taken for taken in queue.in_hand.values()]
            depth.add_metric(name, queue.depth)
            adds.add_metric(name, queue.adds)
            retries.add_metric(name, queue.retries)
            unfinished.add_metric(name, sum(ages))
            longest.add_metric(name, max(ages, default=0.0))
            workers.add_metric(name, controller.workers)
            active.add_metric(name, controller.active)
            braking.add_metric([controller.name], float(queue.brake.engaged))
        yield from (depth, adds, retries, unfinished, longest, workers, active, braking)

    def _cluster(self) -> Iterator[Metric]:
        counts, prefix = self._sources.counts, self._prefix
        noop = CounterMetricFamily(f"{prefix}_apply_noop", "Writes that changed nothing on the server")
        noop.add_metric([], counts.noop)
        writes = CounterMetricFamily(f"{prefix}_writes", "Writes to the API server", labels=["verb"])
        for verb, count in (("apply", counts.applied), ("status", counts.statuses), ("delete", counts.deleted)):
            writes.add_metric([verb], count)
        conflicts = CounterMetricFamily(
            f"{prefix}_write_conflicts", "Writes that were refused because somebody else wrote first"
        )
        conflicts.add_metric([], counts.conflicts)
        objects = GaugeMetricFamily(f"{prefix}_store_objects", "Objects in the store", labels=["resource"])
        for resource in self._sources.store.resources:
            objects.add_metric([str(resource)], len(self._sources.store.list(resource)))
        lists = CounterMetricFamily(f"{prefix}_lists", "Complete lists taken", labels=["resource"])
        for reflector in self._sources.reflectors:
            lists.add_metric([str(reflector.resource)], reflector.lists)
        leading = GaugeMetricFamily("leader_election_master_status", "1 for the leader", labels=["name"])
        leading.add_metric([prefix], float(self._sources.leading()))
        yield from (noop, writes, conflicts, objects, lists, leading)
