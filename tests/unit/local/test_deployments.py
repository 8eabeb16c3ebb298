"""The deployment controller over a real world, with pods that nobody runs."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from fairway.kube.resource import DEPLOYMENT, POD
from fairway.local.deployments import Deployments
from fairway.local.pod import HASH_LABEL, is_gone
from tests.unit.local.objects import deployment, new_world, pods, set_ready, status_of_deployment

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(world):
    ports = itertools.count(20000)
    task = asyncio.create_task(Deployments(world, ports_for=lambda _: {8080: next(ports)}).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled():
    """Lets the controller act on what has just changed; it never waits for anything else."""
    for _ in range(10):
        await asyncio.sleep(0)


def standing(world):
    return [pod for pod in pods(world) if not is_gone(pod)]


async def test_pods_are_made_and_counted():
    world = new_world()
    world.put(deployment(replicas=2))
    async with running(world):
        await settled()
        assert len(pods(world)) == 2
        assert status_of_deployment(world) == {
            "observedGeneration": 1,
            "replicas": 2,
            "updatedReplicas": 2,
            "unavailableReplicas": 2,
        }
        for pod in pods(world):
            set_ready(world, pod)
        await settled()
        assert status_of_deployment(world)["readyReplicas"] == 2


async def test_every_pod_has_ports_of_its_own():
    world = new_world()
    world.put(deployment(replicas=3))
    async with running(world):
        await settled()
        ports = [pod["spec"]["containers"][0]["ports"][0]["hostPort"] for pod in pods(world)]
        assert len(set(ports)) == 3


async def test_a_changed_template_rolls_without_a_gap():
    world = new_world()
    world.put(deployment(image="old"))
    async with running(world):
        await settled()
        (old,) = pods(world)
        set_ready(world, old)
        await settled()
        world.put(deployment(image="new"))
        await settled()
        (new,) = [pod for pod in pods(world) if pod["metadata"]["name"] != old["metadata"]["name"]]
        assert not is_gone(world.store.get(POD, "default", old["metadata"]["name"]))
        assert status_of_deployment(world)["observedGeneration"] == 2
        set_ready(world, new)
        await settled()
        assert is_gone(world.store.get(POD, "default", old["metadata"]["name"]))
        assert [pod["metadata"]["labels"][HASH_LABEL] for pod in standing(world)] == [
            new["metadata"]["labels"][HASH_LABEL]
        ]
        assert status_of_deployment(world) == {
            "observedGeneration": 2,
            "replicas": 1,
            "updatedReplicas": 1,
            "readyReplicas": 1,
            "availableReplicas": 1,
        }


async def test_scaling_rolls_nothing():
    world = new_world()
    world.put(deployment(replicas=1))
    async with running(world):
        await settled()
        (first,) = pods(world)
        world.put(deployment(replicas=3))
        await settled()
        assert len(standing(world)) == 3
        set_ready(world, first)
        world.put(deployment(replicas=1))
        await settled()
        assert [pod["metadata"]["name"] for pod in standing(world)] == [first["metadata"]["name"]]


async def test_a_pod_that_vanished_is_made_again():
    world = new_world()
    world.put(deployment())
    async with running(world):
        await settled()
        (pod,) = pods(world)
        world.delete(POD.ref("default", pod["metadata"]["name"]))
        await settled()
        assert len(pods(world)) == 1
        assert pods(world)[0]["metadata"]["uid"] != pod["metadata"]["uid"]


async def test_a_deleted_deployment_leaves_no_pods():
    world = new_world()
    world.put(deployment())
    async with running(world):
        await settled()
        world.delete(DEPLOYMENT.ref("default", "hello"))
        await settled()
        assert pods(world) == ()


async def test_nothing_is_written_once_all_is_well():
    world = new_world()
    world.put(deployment())
    async with running(world):
        await settled()
        set_ready(world, pods(world)[0])
        await settled()
        changes = []
        world.subscribe(DEPLOYMENT, changes.append)
        world.subscribe(POD, changes.append)
        world.put(deployment())
        await settled()
        assert changes == []
