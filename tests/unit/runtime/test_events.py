"""Events: one per notice, repetitions counted ever more rarely, nothing in the way of the work."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from fairway.kube.errors import Forbidden, NotFound
from fairway.kube.resource import Obj, Resource
from fairway.runtime.events import EventRecorder
from fairway.runtime.outcome import Notice
from tests.unit.runtime.toys import config_map, until

pytestmark = pytest.mark.anyio

READY = Notice("BecameReady", "it answers")


class Server:
    def __init__(self) -> None:
        self.created: list[Obj] = []
        self.merged: list[tuple[str, Obj]] = []
        self.fail: Exception | None = None
        self.forgets = False

    async def create(self, _resource: Resource, obj: Obj, *, namespace: str | None = None) -> Obj:
        if self.fail is not None:
            raise self.fail
        assert namespace == obj["metadata"]["namespace"]
        self.created.append(obj)
        return obj

    async def merge(self, _resource: Resource, _namespace: str | None, name: str, patch: Obj) -> Obj:
        if self.forgets:
            raise NotFound("gone", status=404)
        self.merged.append((name, patch))
        return patch


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(server: Server, clock: Clock) -> EventRecorder:
    return EventRecorder(
        server,
        controller="example.dev/operator",
        instance="pod-1",
        clock=clock,
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )


async def test_a_notice_becomes_an_event_on_the_object(recorder: EventRecorder, server: Server) -> None:
    recorder.record(config_map("a"), READY)
    assert await recorder.flush() is None
    (event,) = server.created
    name = event["metadata"].pop("name")
    assert name.startswith("a.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.dev/operator",
        "reportingInstance": "pod-1",
        "action": "Reconcile",
        "reason": "BecameReady",
        "type": "Normal",
        "regarding": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "a",
            "namespace": "default",
            "uid": "uid-a",
            "resourceVersion": "1",
        },
        "note": "it answers",
    }


async def test_repetitions_are_counted_and_written_ever_more_rarely(
    recorder: EventRecorder, server: Server, clock: Clock
) -> None:
    for _ in range(1000):
        recorder.record(config_map(), READY)
        await recorder.flush()
        clock.now += 1
    assert len(server.created) == 1
    assert len(server.merged) <= 10
    name, patch = server.merged[-1]
    assert name == server.created[0]["metadata"]["name"]
    assert patch["series"]["count"] > 500


async def test_flush_says_when_more_is_due(recorder: EventRecorder, clock: Clock, server: Server) -> None:
    recorder.record(config_map(), READY)
    await recorder.flush()
    recorder.record(config_map(), READY)
    assert await recorder.flush() == 5.0
    clock.now += 5
    assert await recorder.flush() is None
    assert server.merged[0][1]["series"]["count"] == 2


async def test_an_event_that_the_server_forgot_begins_anew(
    recorder: EventRecorder, server: Server, clock: Clock
) -> None:
    recorder.record(config_map(), READY)
    await recorder.flush()
    server.forgets = True
    clock.now += 4000
    recorder.record(config_map(), READY)
    await recorder.flush()
    assert [event.get("series", {}).get("count") for event in server.created] == [None, 2]


async def test_different_notices_and_objects_are_different_events(recorder: EventRecorder, server: Server) -> None:
    recorder.record(config_map("a"), READY)
    recorder.record(config_map("a"), Notice("BecameReady", "another note"))
    recorder.record(config_map("b", uid="uid-b"), READY)
    await recorder.flush()
    assert len({event["metadata"]["name"] for event in server.created}) == 3


async def test_one_object_cannot_flood(recorder: EventRecorder, server: Server) -> None:
    for number in range(100):
        recorder.record(config_map(), Notice("Flap", f"number {number}"))
    await recorder.flush()
    assert len(server.created) == 25
    assert recorder.dropped == 75


async def test_an_event_that_cannot_be_written_is_dropped(recorder: EventRecorder, server: Server) -> None:
    server.fail = Forbidden("namespace is terminating", status=403)
    recorder.record(config_map(), READY)
    assert await recorder.flush() is None
    assert recorder.dropped == 1


@pytest.mark.parametrize("note", ["x" * 5000, "é" * 2000])
async def test_a_long_note_is_cut_to_what_the_api_takes(recorder: EventRecorder, server: Server, note: str) -> None:
    recorder.record(config_map("n" * 253), Notice("Long", note))
    await recorder.flush()
    (event,) = server.created
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("…")
    assert len(event["metadata"]["name"]) <= 253


async def test_a_cluster_scoped_object_has_its_events_in_default(recorder: EventRecorder, server: Server) -> None:
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
    recorder.record(node, READY)
    await recorder.flush()
    assert server.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in server.created[0]["regarding"]


async def test_the_writer_wakes_for_a_new_notice(server: Server) -> None:
    recorder = EventRecorder(server, controller="c", instance="i")
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    recorder.record(config_map(), READY)
    await until(lambda: server.created)
    running.cancel()
