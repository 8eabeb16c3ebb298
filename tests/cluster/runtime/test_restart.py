"""The API server itself is killed and comes back, under a running operator."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.errors import KubeError
from fairway.kube.resource import CONFIG_MAP, CRD, SERVICE
from fairway.kube.transport import Transport
from rig.state import State
from rig.testcluster import RigCluster, run_rig
from tests.cluster.runtime import toys
from tests.cluster.runtime.toys import TOY, toy
from tests.cluster.runtime.waiting import at_rest, eventually, ready

pytestmark = pytest.mark.anyio


@pytest.fixture
def own_rig(rig_api: RigCluster, tmp_path: Path) -> Iterator[State]:
    """A cluster that nobody else needs."""
    state = State(root=tmp_path / "rig")
    run_rig("up", "--quiet", "--owner", str(os.getpid()), state=state)
    yield state
    run_rig("down", "--wipe", state=state)


async def test_an_operator_outlives_its_api_server(own_rig: State) -> None:
    transport = Transport(load_access(kubeconfig=own_rig.kubeconfig), user_agent="test")
    async with Client(transport, field_manager="somebody") as client:
        await client.create(CRD, toys.CRD)

        async def served() -> bool:
            with contextlib.suppress(KubeError):
                await client.create(TOY, toy("t", "default"), namespace="default")
                return True
            return False

        await eventually(served)
        manager = toys.manager(own_rig.kubeconfig, "default")
        running = asyncio.create_task(manager.run(signals=()))
        await ready(client, "default")

        os.kill(json.loads((own_rig.run / "kube-apiserver.pid").read_text())["pid"], signal.SIGKILL)
        await asyncio.sleep(1)
        assert not running.done()
        await asyncio.to_thread(run_rig, "up", "--quiet", "--owner", str(os.getpid()), state=own_rig)

        async def answered() -> bool:
            with contextlib.suppress(KubeError):
                await client.delete(CONFIG_MAP, "default", "t")
                await client.merge(TOY, "default", "t", {"spec": {"withoutService": True}})
                return True
            return False

        await eventually(answered, seconds=60)
        await ready(client, "default", generation=2)

        async def repaired() -> bool:
            names = {obj["metadata"]["name"] async for obj in client.list(CONFIG_MAP, namespace="default")}
            services = {obj["metadata"]["name"] async for obj in client.list(SERVICE, namespace="default")}
            return "t" in names and "t" not in services

        await eventually(repaired)
        await at_rest(manager)
        assert manager.world.counts.noop == 0
        manager.stop()
        assert await running == 0
