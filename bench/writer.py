"""A client of the API server as benchmarks of controllers use it, and many of its writes side by side."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.transport import Transport

CONCURRENCY: Final = 16
_T = TypeVar("_T")


@contextlib.asynccontextmanager
async def client(kubeconfig: Path, *, field_manager: str) -> AsyncIterator[Client]:
    transport = Transport(load_access(kubeconfig=kubeconfig), user_agent="bench")
    async with Client(transport, field_manager=field_manager) as made:
        yield made


async def in_parallel(work: Callable[[_T], Awaitable[object]], items: Iterable[_T]) -> None:
    pending = iter(items)

    async def worker() -> None:
        for item in pending:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
