"""Waiting for what comes about in a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairway.kube.client import Client
from fairway.kube.resource import Obj
from fairway.runtime.manager import Manager
from tests.cluster.runtime import toys

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], *, seconds: float = 60.0) -> T:
    """Looks until it finds something true, and returns that; raises TimeoutError if it never does."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.02)
        return found


async def at_rest(manager: Manager, *, quiet: float = 0.3) -> None:
    """Until nothing is queued or under way, and nothing was written for a while."""
    async with asyncio.timeout(60):
        writes, since = -1, 0.0
        while True:
            controller = manager.controllers[0]
            now = asyncio.get_running_loop().time()
            if controller.queue.depth or controller.active or manager.world.counts.writes != writes:
                writes, since = manager.world.counts.writes, now
            elif now - since > quiet:
                return
            await asyncio.sleep(0.02)


async def ready(client: Client, namespace: str, name: str = "t", *, generation: int = 1) -> Obj:
    """The Toy, once its status is that of the generation and Ready."""

    async def look() -> Obj | None:
        toy = await client.get(toys.TOY, namespace, name)
        status = toy.get("status") or {}
        done = status.get("observedGeneration") == generation and status.get("phase") == "Ready"
        return toy if done else None

    return await eventually(look)
