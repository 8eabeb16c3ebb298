"""Metrics: the names that dashboards know, with values from real work."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fairway.kube.resource import Obj
from fairway.runtime.apply import WriteCounts
from fairway.runtime.controller import Controller
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.metrics import RuntimeMetrics, Sources
from fairway.runtime.outcome import Outcome
from fairway.runtime.queue import Backoff
from fairway.runtime.world import World
from tests.unit.runtime.toys import CATALOGUE, TOY, toy, until

pytestmark = pytest.mark.anyio


async def test_what_happened_is_what_is_scraped() -> None:
    calls = 0

    async def reconcile(_obj: Obj, _world: World) -> Outcome:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return Outcome()

    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry, prefix="toys", host="127.0.0.1:6443")
    world = MemoryWorld(catalogue=CATALOGUE)
    controller = Controller(resource=TOY, reconcile=reconcile, workers=3, backoff=Backoff(base=0.001))
    counts = WriteCounts(applied=4, statuses=2, deleted=1, noop=1)
    metrics.read_from(Sources((controller,), (), world.store, counts, lambda: True))
    metrics.request("GET", 200)
    metrics.request("GET", 0)
    world.put(toy())
    task = asyncio.create_task(controller.run(world, meter=metrics))
    await until(lambda: calls == 2 and not controller.active)
    task.cancel()

    def value(metric: str, **labels: str) -> float | None:
        return registry.get_sample_value(metric, labels)

    assert value("controller_runtime_reconcile_total", controller="toy", result="success") == 1
    assert value("controller_runtime_reconcile_total", controller="toy", result="error") == 1
    assert value("controller_runtime_reconcile_total", controller="toy", result="requeue_after") == 0
    assert value("controller_runtime_reconcile_errors_total", controller="toy") == 1
    assert value("controller_runtime_reconcile_time_seconds_count", controller="toy") == 2
    assert value("controller_runtime_max_concurrent_reconciles", controller="toy") == 3
    assert value("controller_runtime_active_workers", controller="toy") == 0
    assert value("workqueue_adds_total", name="toy") == 2
    assert value("workqueue_retries_total", name="toy") == 1
    assert value("workqueue_depth", name="toy") == 0
    assert value("workqueue_queue_duration_seconds_count", name="toy") == 2
    assert value("workqueue_work_duration_seconds_count", name="toy") == 2
    assert value("workqueue_unfinished_work_seconds", name="toy") == 0
    assert value("workqueue_longest_running_processor_seconds", name="toy") == 0
    assert value("rest_client_requests_total", code="200", host="127.0.0.1:6443", method="GET") == 1
    assert value("rest_client_requests_total", code="<error>", host="127.0.0.1:6443", method="GET") == 1
    assert value("leader_election_master_status", name="toys") == 1
    assert value("toys_apply_noop_total") == 1
    assert value("toys_writes_total", verb="apply") == 4
    assert value("toys_store_objects", resource="toys.runtime.example.dev") == 1
    assert b"# HELP toys_lists_total" in generate_latest(registry)
