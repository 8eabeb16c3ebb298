"""A client, a namespace and a running toy operator for tests against a real API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.errors import AlreadyExists, NotFound
from fairway.kube.resource import CRD
from fairway.kube.transport import Transport
from fairway.runtime.manager import Manager
from rig.testcluster import RigCluster
from tests.cluster.runtime import toys

Operate = Callable[..., AbstractAsyncContextManager[Manager]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(rig_api: RigCluster) -> AsyncIterator[Client]:
    """An administrator who is not the operator."""
    transport = Transport(load_access(kubeconfig=rig_api.kubeconfig), user_agent="test")
    async with Client(transport, field_manager="somebody") as made:
        yield made


@pytest.fixture
async def namespace(rig_namespace: str, client: Client) -> str:
    """A namespace in which Toys are served."""
    with contextlib.suppress(AlreadyExists):
        await client.create(CRD, toys.CRD)
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NotFound):
                await client.list_page(toys.TOY)
                return rig_namespace
            await asyncio.sleep(0.05)


@pytest.fixture
def operate(rig_api: RigCluster, namespace: str) -> Operate:
    """Runs the toy operator inside the test, in its namespace."""

    @asynccontextmanager
    async def running(**options: Any) -> AsyncIterator[Manager]:
        kubeconfig = options.pop("kubeconfig", rig_api.kubeconfig)
        manager = toys.manager(kubeconfig, namespace, **options)
        task = asyncio.create_task(manager.run(signals=()))
        try:
            synced = asyncio.create_task(manager.store.wait_synced(manager.controllers[0].required))
            await asyncio.wait([task, synced], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield manager
        finally:
            manager.stop()
            await task

    return running
