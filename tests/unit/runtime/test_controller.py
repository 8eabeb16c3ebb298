"""Controller: what brings an object up, and what becomes of each kind of answer. Over a MemoryWorld."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from fairway.kube.errors import Conflict, Invalid, TooManyRequests
from fairway.kube.resource import CONFIG_MAP, SERVICE, Obj
from fairway.runtime.controller import Controller, Fenced
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.outcome import Notice, Outcome, Requeue
from fairway.runtime.queue import Backoff
from fairway.runtime.world import World
from tests.unit.runtime.toys import CATALOGUE, TOY, toy, until

pytestmark = pytest.mark.anyio


class Probe:
    """A reconciler that makes one ConfigMap and keeps what it was called with."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.then: Callable[[Obj, World], Awaitable[Outcome]] | None = None

    async def __call__(self, obj: Obj, world: World) -> Outcome:
        self.seen.append(obj["metadata"]["name"])
        if self.then is not None:
            return await self.then(obj, world)
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": obj["metadata"]["name"]}, "data": {}}
        applied = await world.apply(owner=obj, objects=[child])
        await world.prune(owner=obj, keep=applied.refs)
        taken = bool(applied.name_taken)
        return Outcome(status={"taken": taken, "observedGeneration": obj["metadata"]["generation"]})


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(catalogue=CATALOGUE)


@pytest.fixture
def probe() -> Probe:
    return Probe()


@asynccontextmanager
async def running(controller: Controller, world: MemoryWorld, **options: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run(world, **options))
    try:
        await asyncio.sleep(0)
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def status(world: MemoryWorld, name: str = "t") -> Any:
    found = world.store.get(TOY, "default", name)
    return found.get("status") if found else None


async def settle(controller: Controller) -> None:
    await until(lambda: controller.queue.depth == 0 and controller.active == 0)


async def test_objects_that_are_there_and_that_come_later_are_reconciled(world: MemoryWorld, probe: Probe) -> None:
    world.put(toy("early"))
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP])
    async with running(controller, world):
        await until(lambda: status(world, "early"))
        world.put(toy("late"))
        await until(lambda: status(world, "late"))
    assert {obj["metadata"]["name"] for obj in world.store.list(CONFIG_MAP)} == {"early", "late"}


async def test_a_deleted_child_is_made_again(world: MemoryWorld, probe: Probe) -> None:
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP])
    async with running(controller, world):
        await until(lambda: status(world))
        await settle(controller)
        world.delete(CONFIG_MAP.ref("default", "t"))
        await until(lambda: world.store.list(CONFIG_MAP))


async def test_it_comes_to_rest(world: MemoryWorld, probe: Probe) -> None:
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP])
    async with running(controller, world):
        await until(lambda: status(world))
        await settle(controller)
        calls = len(probe.seen)
        await asyncio.sleep(0.02)
        assert len(probe.seen) == calls <= 3


async def test_the_owner_comes_up_when_a_name_in_its_way_is_free(world: MemoryWorld, probe: Probe) -> None:
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}, "data": {"whose": "mine"}})
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP])
    async with running(controller, world):
        await until(lambda: status(world) == {"taken": True, "observedGeneration": 1})
        world.delete(CONFIG_MAP.ref("default", "t"))
        await until(lambda: status(world) == {"taken": False, "observedGeneration": 1})


async def test_a_refused_child_is_tried_again_by_and_by(world: MemoryWorld, probe: Probe) -> None:
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}})
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP], refused_retry=0.01)
    async with running(controller, world):
        await until(lambda: len(probe.seen) >= 5)


async def test_a_mapped_object_brings_up_those_that_refer_to_it(world: MemoryWorld, probe: Probe) -> None:
    world.put(toy("uses", config="shared"))
    world.put(toy("other", config="else"))
    by_config = {TOY: {"config": lambda obj: [obj["spec"]["config"]]}}
    world.store.register(TOY, indexes=by_config[TOY])

    controller = Controller(
        resource=TOY,
        reconcile=probe,
        watches={
            SERVICE: lambda obj, store: [
                ("default", user["metadata"]["name"]) for user in store.by_index(TOY, "config", obj["metadata"]["name"])
            ]
        },
        indexes=by_config,
    )
    async with running(controller, world):
        await until(lambda: status(world, "uses") and status(world, "other"))
        await settle(controller)
        probe.seen.clear()
        world.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shared"}})
        await until(lambda: probe.seen)
        await settle(controller)
        assert probe.seen == ["uses"]


async def test_a_bug_in_a_mapping_stops_nothing(world: MemoryWorld, probe: Probe) -> None:
    def broken(obj: Obj, store: object) -> list[tuple[str, str]]:
        raise KeyError("spec")

    controller = Controller(resource=TOY, reconcile=probe, watches={SERVICE: broken})
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world):
            world.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
            world.put(toy())
            await until(lambda: status(world))
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == ["mapping failed"]


async def test_enqueue_from_outside_and_requeue(world: MemoryWorld, probe: Probe) -> None:
    async def look_again(obj: Obj, world: World) -> Outcome:
        return Outcome(requeue=Requeue(0.001, "more to do") if len(probe.seen) < 3 else None)

    probe.then = look_again
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe)
    async with running(controller, world):
        await until(lambda: len(probe.seen) == 3)
        await settle(controller)
        controller.enqueue("default", "t")
        await until(lambda: len(probe.seen) == 4)


async def test_one_object_is_never_in_two_hands_and_others_go_on_beside_it(world: MemoryWorld, probe: Probe) -> None:
    gate = asyncio.Event()
    inside: list[str] = []

    async def slow(obj: Obj, world: World) -> Outcome:
        name = obj["metadata"]["name"]
        assert name not in inside
        inside.append(name)
        await gate.wait()
        inside.remove(name)
        return Outcome()

    probe.then = slow
    for name in ("a", "b", "c"):
        world.put(toy(name))
    controller = Controller(resource=TOY, reconcile=probe, workers=2)
    async with running(controller, world):
        await until(lambda: len(inside) == 2)
        controller.enqueue("default", "a")
        controller.enqueue("default", "a")
        await asyncio.sleep(0.01)
        assert sorted(inside) == ["a", "b"]
        gate.set()
        await settle(controller)
        assert sorted(probe.seen) == ["a", "a", "b", "c"]


async def test_a_bug_is_logged_with_its_traceback_and_retried(world: MemoryWorld, probe: Probe) -> None:
    async def fail_once(obj: Obj, world: World) -> Outcome:
        if len(probe.seen) == 1:
            raise ZeroDivisionError
        return Outcome(status={"fine": True})

    probe.then = fail_once
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, backoff=Backoff(base=0.001))
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world):
            await until(lambda: status(world) == {"fine": True})
            await settle(controller)
    assert [
        (entry["event"], entry["log_level"], entry.get("exc_info")) for entry in logs if entry["event"] != "reconciled"
    ] == [("reconcile failed", "error", True)]
    assert controller.queue.failures(("default", "t")) == 0


async def test_a_transient_failure_waits_as_long_as_the_server_asks(world: MemoryWorld, probe: Probe) -> None:
    times: list[float] = []

    async def busy(obj: Obj, world: World) -> Outcome:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise TooManyRequests("slow down", status=429, retry_after=0.05)
        return Outcome(status={"fine": True})

    probe.then = busy
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, backoff=Backoff(base=0.0001))
    async with running(controller, world):
        await until(lambda: status(world) == {"fine": True})
    assert times[1] - times[0] >= 0.049


async def test_a_refusal_is_a_warning_without_a_traceback(world: MemoryWorld, probe: Probe) -> None:
    async def refused(obj: Obj, world: World) -> Outcome:
        raise Invalid("spec.replicas: too many", status=422, reason="Invalid")

    probe.then = refused
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, backoff=Backoff(base=60))
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world):
            await until(lambda: probe.seen)
            await settle(controller)
    assert [(e["event"], e["log_level"], e["error"]) for e in logs] == [
        ("reconcile will be retried", "warning", "422 Invalid: spec.replicas: too many")
    ]


async def test_a_reconcile_that_hangs_gives_its_slot_back(world: MemoryWorld, probe: Probe) -> None:
    async def hang_once(obj: Obj, world: World) -> Outcome:
        if len(probe.seen) == 1:
            await asyncio.Event().wait()
        return Outcome(status={"fine": True})

    probe.then = hang_once
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, workers=1, timeout=0.01, backoff=Backoff(base=0.001))
    async with running(controller, world):
        await until(lambda: status(world) == {"fine": True})


async def test_a_fenced_write_is_left_to_the_leader(world: MemoryWorld, probe: Probe) -> None:
    async def fenced(obj: Obj, world: World) -> Outcome:
        raise Fenced

    probe.then = fenced
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, backoff=Backoff(base=0.001))
    async with running(controller, world):
        await until(lambda: probe.seen)
        await settle(controller)
        assert controller.queue.next_due() is None


async def test_events_of_an_outcome_are_recorded(world: MemoryWorld, probe: Probe) -> None:
    told: list[tuple[str, Notice]] = []

    class Recorder:
        def record(self, obj: Obj, notice: Notice) -> None:
            told.append((obj["metadata"]["name"], notice))

    notice = Notice("BecameReady", "it answers")

    async def tell(obj: Obj, world: World) -> Outcome:
        return Outcome(events=(notice,))

    probe.then = tell
    world.put(toy())
    async with running(Controller(resource=TOY, reconcile=probe), world, recorder=Recorder()):
        await until(lambda: told)
    assert told == [("t", notice)]


async def test_objects_being_deleted_go_to_on_deleting_or_nowhere(world: MemoryWorld, probe: Probe) -> None:
    dying = toy("dying")
    dying["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    world.put(dying)
    world.put(toy("alive"))
    last: list[str] = []

    async def terminating(obj: Obj, world: World) -> Outcome:
        last.append(obj["metadata"]["name"])
        return Outcome(status={"phase": "Terminating"})

    async with running(Controller(resource=TOY, reconcile=probe), world):
        await until(lambda: status(world, "alive"))
    assert "dying" not in probe.seen
    async with running(Controller(resource=TOY, reconcile=probe, on_deleting=terminating), world):
        await until(lambda: status(world, "dying") == {"phase": "Terminating"})


async def test_stopping_lets_what_is_under_way_finish(world: MemoryWorld, probe: Probe) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(obj: Obj, world: World) -> Outcome:
        entered.set()
        await leave.wait()
        return Outcome(status={"finished": True})

    probe.then = slow
    world.put(toy())
    task = asyncio.create_task(Controller(resource=TOY, reconcile=probe).run(world))
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    world.put(toy("later"))
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert status(world) == {"finished": True}
    assert probe.seen == ["t"]


async def test_stopping_cuts_off_what_does_not_finish(world: MemoryWorld, probe: Probe) -> None:
    entered = asyncio.Event()

    async def forever(obj: Obj, world: World) -> Outcome:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    probe.then = forever
    world.put(toy())
    task = asyncio.create_task(Controller(resource=TOY, reconcile=probe).run(world, grace=0.01))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_log_of_a_reconcile_says_which_object_it_is_about(world: MemoryWorld, probe: Probe) -> None:
    found: dict[str, Any] = {}

    async def look(obj: Obj, world: World) -> Outcome:
        found.update(structlog.contextvars.get_contextvars())
        return Outcome()

    probe.then = look
    world.put(toy())
    async with running(Controller(resource=TOY, reconcile=probe), world):
        await until(lambda: found)
    assert found.pop("reconcile_id")
    assert found == {"controller": "toy", "namespace": "default", "name": "t"}


def test_a_controller_without_workers_is_refused(probe: Probe) -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        Controller(resource=TOY, reconcile=probe, workers=0)


async def test_being_overtaken_is_no_error_and_is_tried_again_at_once(world: MemoryWorld, probe: Probe) -> None:
    async def overtaken_twice(obj: Obj, world: World) -> Outcome:
        if len(probe.seen) <= 2:
            raise Conflict("the object has been modified", status=409)
        return Outcome(status={"fine": True})

    results: list[str] = []

    class Results:
        def started(self, controller: str, waited: float) -> None: ...
        def finished(self, controller: str, result: str, seconds: float) -> None:
            results.append(result)

    probe.then = overtaken_twice
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe)
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world, meter=Results()):
            await until(lambda: status(world) == {"fine": True})
            await settle(controller)
    assert {entry["log_level"] for entry in logs} == {"debug"}
    assert results[:2] == ["requeue", "requeue"]
    assert not controller.queue.brake.engaged


async def test_being_overtaken_without_end_is_said_once(world: MemoryWorld, probe: Probe) -> None:
    async def always(obj: Obj, world: World) -> Outcome:
        raise Conflict("the object has been modified", status=409)

    probe.then = always
    world.put(toy())
    controller = Controller(resource=TOY, reconcile=probe, backoff=Backoff(base=0.0001, maximum=0.0002))
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world):
            await until(lambda: len(probe.seen) > 10)
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == ["overtaken, will look again"]


async def test_objects_that_the_selector_does_not_match_are_left_to_others(world: MemoryWorld, probe: Probe) -> None:
    for shard in ("a", "b"):
        made = toy(f"of-{shard}")
        made["metadata"]["labels"] = {"shard": shard}
        world.put(made)
    controller = Controller(resource=TOY, reconcile=probe)
    controller.extend(selector="shard=a")
    async with running(controller, world):
        await until(lambda: status(world, "of-a"))
        await settle(controller)
    assert set(probe.seen) == {"of-a"}
    assert len(world.store.list(TOY)) == 2


async def test_every_object_comes_up_when_an_optional_kind_appears(world: MemoryWorld, probe: Probe) -> None:
    world.put(toy())
    world.store.desync(SERVICE)
    controller = Controller(resource=TOY, reconcile=probe, owns=[CONFIG_MAP, SERVICE], optional=[SERVICE])
    async with running(controller, world):
        await until(lambda: status(world))
        await settle(controller)
        probe.seen.clear()
        world.store.begin(SERVICE)
        world.store.commit(SERVICE, "7")
        await until(lambda: probe.seen == ["t"])
        await settle(controller)
        world.store.begin(SERVICE)
        world.store.commit(SERVICE, "8")
        await settle(controller)
        assert probe.seen == ["t"], "an ordinary relist brings nobody up"


def test_its_own_kind_is_never_optional() -> None:
    for option in ("optional", "metadata_only"):
        with pytest.raises(ValueError, match="its own resource"):
            Controller(resource=TOY, reconcile=Probe(), **{option: [TOY]})  # type: ignore[arg-type]


def test_what_it_owns_is_read_as_a_whole() -> None:
    with pytest.raises(ValueError, match="as a whole"):
        Controller(resource=TOY, reconcile=Probe(), owns=[SERVICE], metadata_only=[SERVICE])
    with pytest.raises(ValueError, match="as a whole"):
        Controller(resource=TOY, reconcile=Probe(), owns=[SERVICE], trims={SERVICE: lambda obj: obj})


async def test_it_can_be_tuned_in_the_middle_of_the_work(world: MemoryWorld, probe: Probe) -> None:
    gate = asyncio.Event()

    async def slow(obj: Obj, world: World) -> Outcome:
        await gate.wait()
        return Outcome()

    probe.then = slow
    for number in range(4):
        world.put(toy(f"t{number}"))
    controller = Controller(resource=TOY, reconcile=probe, workers=1)
    async with running(controller, world):
        await until(lambda: len(probe.seen) == 1)
        controller.tune(workers=3)
        await until(lambda: len(probe.seen) == 3)
        gate.set()
        await until(lambda: len(probe.seen) == 4)
        await settle(controller)
        controller.tune(resync=0.01)
        await until(lambda: len(probe.seen) > 12)
        controller.tune(resync=0.0, backoff=Backoff(base=7.0))
        await settle(controller)
        assert controller.queue.backoff.base == 7.0
    assert controller.workers == 3
