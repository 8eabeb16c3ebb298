"""Leases: who may take one, and that the fence falls before anybody else can."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable
from fairway.kube.resource import Obj, Resource
from fairway.runtime.controller import Fenced
from fairway.runtime.lease import Elector, LeaseTerms, Seen, is_free, observe

pytestmark = pytest.mark.anyio

TERMS = LeaseTerms("default", "lead", duration=15, renew_within=10)


def record(holder: str = "a", version: str = "1", duration: int = 15) -> Obj:
    return {
        "metadata": {"resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration},
    }


@pytest.mark.parametrize(
    ("holder", "age", "free"),
    [("", 0, True), ("me", 0, True), ("other", 14.9, False), ("other", 15, True)],
)
def test_a_lease_is_free_if_unheld_ours_or_run_out(holder: str, age: float, free: bool) -> None:
    assert is_free(record(holder), Seen("1", 100), "me", now=100 + age) is free


def test_every_renewal_starts_the_wait_anew() -> None:
    seen = observe(None, record(version="1"), now=100)
    assert observe(seen, record(version="1"), now=110) == Seen("1", 100)
    assert observe(seen, record(version="2"), now=110) == Seen("2", 110)


@pytest.mark.parametrize("bad", [{"duration": 5}, {"retry": 20}, {"retry": 0}])
def test_terms_that_cannot_hold_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="duration > renew_within > retry"):
        LeaseTerms("default", "lead", **bad)


class Server:
    """Compare-and-swap on one object, with a clock for all."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lease: Obj | None = None
        self.version = 0
        self.down: set[str] = set()
        self.latency = 0.0

    def client(self, identity: str) -> "Client":
        return Client(self, identity)


class Client:
    def __init__(self, server: Server, identity: str) -> None:
        self._server = server
        self._identity = identity

    def _answer(self) -> None:
        self._server.now += self._server.latency
        if self._identity in self._server.down:
            raise Unreachable("down")

    async def get(self, _resource: Resource, _namespace: str | None, _name: str) -> Obj:
        self._answer()
        if self._server.lease is None:
            raise NotFound("no lease", status=404)
        return copy.deepcopy(self._server.lease)

    async def create(
        self, _resource: Resource, obj: Obj, *, namespace: str | None = None, deadline: float | None = None
    ) -> Obj:
        self._answer()
        if self._server.lease is not None:
            raise AlreadyExists("there", status=409)
        return self._store(obj)

    async def replace(self, _resource: Resource, obj: Obj, *, deadline: float | None = None) -> Obj:
        self._answer()
        if self._server.lease is None:
            raise NotFound("no lease", status=404)
        if obj["metadata"]["resourceVersion"] != self._server.lease["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        return self._store(obj)

    def _store(self, obj: Obj) -> Obj:
        self._server.version += 1
        self._server.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._server.version)}}
        return copy.deepcopy(self._server.lease)


class World:
    """Candidates whose sleeps are steps that the test allows."""

    def __init__(self) -> None:
        self.server = Server()
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.slept: list[float] = []

    def candidate(self, identity: str, terms: LeaseTerms = TERMS) -> Elector:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.waiting[identity] = asyncio.get_running_loop().create_future()
            await self.waiting[identity]

        return Elector(
            self.server.client(identity),
            terms=terms,
            identity=identity,
            clock=lambda: self.server.now,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.server.now),
            sleep=sleep,
        )

    async def step(self, identity: str, seconds: float = 0.0) -> None:
        """Lets time pass, and that candidate act once."""
        self.server.now += seconds
        self.waiting.pop(identity).set_result(None)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def task(work: Callable[[], object]) -> AsyncIterator["asyncio.Task[object]"]:
    made = asyncio.ensure_future(work())  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    try:
        yield made  # type: ignore[misc]
    finally:
        made.cancel()


async def test_the_first_candidate_makes_the_lease_and_leads(world: World) -> None:
    a = world.candidate("a")
    with pytest.raises(Fenced):
        a.fence()
    await a.acquire()
    assert a.leading
    assert a.fence() == world.server.now + TERMS.renew_within
    assert world.server.lease is not None
    assert world.server.lease["spec"]["holderIdentity"] == "a"
    assert world.server.lease["spec"]["leaseTransitions"] == 0


async def test_the_second_waits_until_the_first_has_been_silent_for_the_whole_duration(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await a.acquire()
    async with task(b.acquire) as acquiring:
        for _ in range(9):
            await world.step("b", 1.6)
            assert not acquiring.done()
        with pytest.raises(Fenced):
            a.fence()
        await world.step("b", 1.6)
        assert acquiring.done()
    assert b.leading
    assert world.server.lease is not None
    assert world.server.lease["spec"]["leaseTransitions"] == 1


async def test_a_candidate_looks_twice_a_second_or_so_and_not_in_step_with_others(world: World) -> None:
    """Within two seconds of a clean stop another leads, however slow the one look is that finds it."""
    async with task(world.candidate("a").acquire), task(world.candidate("b").acquire):
        for _ in range(20):
            await world.step("b")
    assert len(world.slept) == 21
    assert all(0.5 <= seconds <= 1.0 for seconds in world.slept)
    assert len(set(world.slept)) > 10


async def test_renewals_keep_the_lease_and_move_the_fence(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await a.acquire()
    async with task(a.hold), task(b.acquire) as acquiring:
        for _ in range(30):
            await world.step("a", 1.5)
            await world.step("b")
            assert a.fence() == world.server.now + TERMS.renew_within
            assert not acquiring.done()


async def test_a_release_lets_the_next_one_in_at_once(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await a.acquire()
    async with task(b.acquire) as acquiring:
        await a.release()
        with pytest.raises(Fenced):
            a.fence()
        await world.step("b")
        assert acquiring.done()


async def test_a_holder_that_cannot_renew_stops_before_the_lease_is_free(world: World) -> None:
    a = world.candidate("a")
    await a.acquire()
    world.server.down.add("a")
    async with task(a.hold) as holding:
        while not holding.done():
            await world.step("a", 1.5)
        assert world.server.now < 1000 + TERMS.duration
    with pytest.raises(Fenced):
        a.fence()


async def test_the_time_that_a_renewal_takes_counts_against_the_holder(world: World) -> None:
    a = world.candidate("a")
    world.server.latency = 2.0
    await a.acquire()
    assert a.fence() == 1000 + TERMS.renew_within


async def test_another_holder_in_the_record_ends_it_at_the_next_look(world: World) -> None:
    a = world.candidate("a")
    await a.acquire()
    assert world.server.lease is not None
    world.server.lease["spec"]["holderIdentity"] = "usurper"
    world.server.lease["metadata"]["resourceVersion"] = "77"
    async with task(a.hold) as holding:
        await world.step("a", 1.5)
        assert holding.done()
    assert not a.leading


async def test_an_edit_by_others_that_leaves_the_holder_alone_is_survived(world: World) -> None:
    a = world.candidate("a")
    await a.acquire()
    assert world.server.lease is not None
    world.server.lease["metadata"] |= {"resourceVersion": "77", "labels": {"x": "y"}}
    async with task(a.hold) as holding:
        await world.step("a", 1.5)
        assert a.fence() == 1000 + TERMS.renew_within, "the look alone is no renewal"
        await world.step("a", 1.5)
        assert not holding.done()
        assert a.fence() == 1003 + TERMS.renew_within


async def test_a_deleted_lease_is_made_again_by_its_holder(world: World) -> None:
    a = world.candidate("a")
    await a.acquire()
    world.server.lease = None
    async with task(a.hold) as holding:
        await world.step("a", 1.5)
        await world.step("a", 1.5)
        assert not holding.done()
        assert world.server.lease is not None
        assert a.fence() == 1003 + TERMS.renew_within


async def test_a_holder_with_a_longer_promise_is_waited_for(world: World) -> None:
    a = world.candidate("a", LeaseTerms("default", "lead", duration=60))
    b = world.candidate("b")
    await a.acquire()
    async with task(b.acquire) as acquiring:
        for _ in range(3):
            await world.step("b", 19)
        assert not acquiring.done()
        await world.step("b", 4)
        assert acquiring.done()


@given(
    schedule=st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 12), st.floats(0, 3), st.booleans()), min_size=5, max_size=60
    )
)
def test_no_two_candidates_may_ever_write_at_the_same_time(
    schedule: list[tuple[str, float, float, bool]],
) -> None:
    """Whatever the pauses, the latencies and the outages: at most one fence is open, and never within the margin."""

    async def play() -> None:
        world = World()
        made = {identity: world.candidate(identity) for identity in "abc"}

        async def life(candidate: Elector) -> None:
            while True:
                await candidate.acquire()
                await candidate.hold()

        tasks = [asyncio.ensure_future(life(candidate)) for candidate in made.values()]
        for _ in range(20):
            await asyncio.sleep(0)
        last: tuple[str, float] | None = None
        for identity, pause, latency, down in schedule:
            world.server.latency = latency
            (world.server.down.add if down else world.server.down.discard)(identity)
            if identity in world.waiting:
                await world.step(identity, pause)
            open_now = []
            for name, candidate in made.items():
                try:
                    until = candidate.fence()
                except Fenced:
                    continue
                open_now.append(name)
                if last is not None and last[0] != name:
                    assert world.server.now >= last[1], "the one before could still have been writing"
                last = name, until
            assert len(open_now) <= 1
        for running in tasks:
            running.cancel()

    asyncio.run(play())
