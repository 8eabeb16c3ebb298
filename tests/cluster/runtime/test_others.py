"""Other managers write to the same objects all the time: repairs come through, quietly, and nothing is undone."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from fairway.kube.client import Client
from fairway.kube.errors import Conflict, NotFound
from fairway.kube.resource import DEPLOYMENT
from tests.cluster.runtime.conftest import Operate
from tests.cluster.runtime.toys import TOY, toy
from tests.cluster.runtime.waiting import at_rest, eventually, ready

pytestmark = pytest.mark.anyio

OBJECTS = 10
WRITES_PER_SECOND = 20.0
ROUNDS = 8
LONGEST = 2.0
"""Seconds of a round, on a machine that does what it is asked at once; on one that is slow, so many times what
spoiling takes."""
TIMES_SPOILING = 20


class Others:
    """Write to every Deployment and every Toy as a busy node and a busy user do: to the status, and to annotations."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.writes = 0

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._bother(f"t{number}")) for number in range(OBJECTS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _bother(self, name: str) -> None:
        while True:
            beat = {"lastHeartbeat": str(self.writes)}
            condition = {"type": "Progressing", "status": "True", "reason": "Beat", "message": str(self.writes)}
            patch = {"status": {"conditions": [condition]}}
            with_annotation = {"metadata": {"annotations": beat}}
            try:
                await self._client.merge(DEPLOYMENT, self._namespace, name, patch, subresource="status")
                await self._client.merge(TOY, self._namespace, name, with_annotation)
            except (Conflict, NotFound):
                pass
            self.writes += 2
            await asyncio.sleep(2 / WRITES_PER_SECOND)


async def test_writes_of_others_starve_no_repair(client: Client, namespace: str, operate: Operate) -> None:
    for number in range(OBJECTS):
        await client.create(TOY, toy(f"t{number}", namespace), namespace=namespace)
    rounds: list[tuple[float, float]] = []
    with structlog.testing.capture_logs() as logs:
        async with operate() as manager:
            for number in range(OBJECTS):
                await ready(client, namespace, f"t{number}")
            await at_rest(manager)
            others = Others(client, namespace)
            counts = manager.world.counts
            before, began = counts.applied, time.monotonic()
            async with others.busy():
                for round_ in range(ROUNDS):
                    hands = time.monotonic()
                    for number in range(OBJECTS):
                        spoilt = {"metadata": {"labels": {"toy": f"spoilt-{round_}"}}}
                        await client.merge(DEPLOYMENT, namespace, f"t{number}", spoilt)
                    spoiling = time.monotonic() - hands

                    async def repaired() -> bool:
                        found = [d async for d in client.list(DEPLOYMENT, namespace=namespace)]
                        return all(d["metadata"]["labels"]["toy"] == d["metadata"]["name"] for d in found)

                    await eventually(repaired, seconds=60)
                    rounds.append((time.monotonic() - hands, spoiling))
            seconds = time.monotonic() - began
            repairs = counts.applied - before
            await at_rest(manager)
    slowest, _ = max(rounds)
    loud = [entry for entry in logs if entry["log_level"] in ("warning", "error")]
    print(
        f"{others.writes / seconds:.0f} writes of others a second, {repairs} repairs, {counts.conflicts} conflicts, "
        f"slowest round {slowest:.2f} s"
    )
    assert repairs == ROUNDS * OBJECTS
    assert counts.noop == 0
    assert [took for took, spoiling in rounds if took > max(LONGEST, TIMES_SPOILING * spoiling)] == []
    assert counts.conflicts <= 4 * repairs, "a few attempts are enough"
    # Which is worth a word only where an object is overtaken many times in a row.
    assert {entry["event"] for entry in loud} <= {"overtaken, will look again"}
    assert len(loud) <= repairs / 10
