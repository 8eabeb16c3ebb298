"""The runtime on a real API server: converges with the fewest writes, stays, repairs, takes nothing from others."""

import asyncio
import contextlib
from typing import Any

import pytest

from fairway.kube.client import Client
from fairway.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, EVENT, SERVICE, Obj, Resource
from fairway.runtime.apply import ClusterWorld
from fairway.runtime.manager import Manager
from fairway.runtime.store import Store
from tests.cluster.runtime import toys
from tests.cluster.runtime.conftest import Operate
from tests.cluster.runtime.toys import FIELD_MANAGER, HASH, TOY, toy
from tests.cluster.runtime.waiting import at_rest, eventually, ready

pytestmark = pytest.mark.anyio


async def gone(client: Client, resource: Resource, namespace: str, name: str) -> bool:
    try:
        await client.get(resource, namespace, name)
    except NotFound:
        return True
    return False


async def make(client: Client, namespace: str, name: str = "t", **spec: Any) -> Obj:
    return await client.create(TOY, toy(name, namespace, **spec), namespace=namespace)


async def test_every_object_costs_exactly_four_writes_and_a_restart_none(
    client: Client, namespace: str, operate: Operate
) -> None:
    count = 60
    for number in range(count):
        await make(client, namespace, f"t{number}")
    async with operate() as manager:
        await ready(client, namespace, f"t{count - 1}")
        await at_rest(manager)
        counts = manager.world.counts
        assert (counts.applied, counts.statuses, counts.deleted, counts.noop) == (3 * count, count, 0, 0)
        assert looks_in_vain(manager) == 0, "whether a name is free, the write itself finds out"
    async with operate() as manager:
        await at_rest(manager)
        assert manager.world.counts.writes == 0


def looks_in_vain(manager: Manager) -> float:
    """How many things the operator asked for that were not there."""
    (requests,) = [metric for metric in manager.registry.collect() if metric.name == "rest_client_requests"]
    return sum(s.value for s in requests.samples if s.name.endswith("_total") and s.labels["code"] == "404")


@pytest.mark.parametrize("resource", [CONFIG_MAP, SERVICE, DEPLOYMENT], ids=str)
async def test_a_deleted_child_is_made_again(
    client: Client, namespace: str, operate: Operate, resource: Resource
) -> None:
    await make(client, namespace)
    async with operate() as manager:
        await ready(client, namespace)
        before = await client.get(resource, namespace, "t")
        await client.delete(resource, namespace, "t")

        async def look() -> bool:
            return not await gone(client, resource, namespace, "t")

        await eventually(look)
        after = await client.get(resource, namespace, "t")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        await at_rest(manager)
        assert manager.world.counts.noop == 0


@pytest.mark.parametrize(
    ("resource", "edit", "path"),
    [
        (CONFIG_MAP, {"data": {"config.json": "edited"}}, ("data", "config.json")),
        (SERVICE, {"spec": {"selector": {"toy": "other"}}}, ("spec", "selector", "toy")),
        (DEPLOYMENT, {"spec": {"replicas": 7}}, ("spec", "replicas")),
        (DEPLOYMENT, {"metadata": {"labels": {"app": None}}}, ("metadata", "labels", "app")),
        (CONFIG_MAP, {"metadata": {"annotations": {HASH: None}}}, ("metadata", "annotations", HASH)),
    ],
    ids=["data", "selector", "replicas", "label taken away", "hash taken away"],
)
async def test_a_child_edited_by_hand_is_put_right(
    client: Client, namespace: str, operate: Operate, resource: Resource, edit: Obj, path: tuple[str, ...]
) -> None:
    def at(obj: Obj) -> Any:
        for name in path:
            obj = obj.get(name, {})
        return obj

    await make(client, namespace)
    async with operate() as manager:
        await ready(client, namespace)
        right = at(await client.get(resource, namespace, "t"))
        await client.merge(resource, namespace, "t", edit)

        async def look() -> bool:
            return bool(at(await client.get(resource, namespace, "t")) == right)

        await eventually(look)
        await at_rest(manager)
        assert manager.world.counts.noop == 0


async def test_what_others_add_to_a_child_is_left_alone(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace)
    async with operate() as manager:
        await ready(client, namespace)
        await at_rest(manager)
        before = manager.world.counts.writes
        await client.merge(CONFIG_MAP, namespace, "t", {"data": {"extra": "theirs"}})
        sidecar = {"name": "sidecar", "image": "theirs", "env": [{"name": "A", "value": "b"}]}
        obj = await client.get(DEPLOYMENT, namespace, "t")
        obj["spec"]["template"]["spec"]["containers"].insert(0, sidecar)
        await client.replace(DEPLOYMENT, obj)
        await at_rest(manager)
        assert manager.world.counts.writes == before
    assert (await client.get(CONFIG_MAP, namespace, "t"))["data"]["extra"] == "theirs"


async def test_a_field_that_is_no_longer_desired_is_removed(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace, extra={"a": "1", "b": "2"})
    async with operate():
        await ready(client, namespace)
        assert (await client.get(CONFIG_MAP, namespace, "t"))["data"].keys() == {"config.json", "a", "b"}
        await client.merge(TOY, namespace, "t", {"spec": {"extra": {"b": None}}})
        await ready(client, namespace, generation=2)
        assert (await client.get(CONFIG_MAP, namespace, "t"))["data"].keys() == {"config.json", "a"}


async def test_a_field_removed_while_nobody_looked_is_removed_after_the_restart(
    client: Client, namespace: str, operate: Operate
) -> None:
    await make(client, namespace, extra={"a": "1", "b": "2"})
    async with operate():
        await ready(client, namespace)
    await client.merge(TOY, namespace, "t", {"spec": {"extra": {"b": None}}})
    async with operate():
        await ready(client, namespace, generation=2)
    assert (await client.get(CONFIG_MAP, namespace, "t"))["data"].keys() == {"config.json", "a"}


async def test_a_child_that_is_no_longer_desired_is_pruned_with_an_event(
    client: Client, namespace: str, operate: Operate
) -> None:
    made = await make(client, namespace)
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "foreign", "labels": {"toy": "t"}}}
    await client.create(SERVICE, {**foreign, "spec": {"ports": [{"port": 1}]}}, namespace=namespace)
    async with operate() as manager:
        await ready(client, namespace)
        await client.merge(TOY, namespace, "t", {"spec": {"withoutService": True}})
        await ready(client, namespace, generation=2)

        async def look() -> bool:
            return await gone(client, SERVICE, namespace, "t")

        await eventually(look)
        assert not await gone(client, SERVICE, namespace, "foreign")
        await at_rest(manager)
        assert manager.world.counts.deleted == 1

        async def told() -> list[Obj]:
            events = [event async for event in client.list(EVENT, namespace=namespace)]
            return [event for event in events if event["reason"] == "Pruned"]

        (event,) = await eventually(told)
        assert event["note"] == "removed Service/t"
        assert event["regarding"]["uid"] == made["metadata"]["uid"]
        assert event["reportingController"] == f"{toys.GROUP}/operator"


@pytest.mark.parametrize("controlled", [False, True], ids=["nobody's", "another controller's"])
async def test_a_foreign_object_of_the_same_name_is_not_touched(
    client: Client, namespace: str, operate: Operate, controlled: bool
) -> None:
    metadata: Obj = {"name": "t"}
    if controlled:
        boss = await client.create(
            CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss"}}, namespace=namespace
        )
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "boss",
                "uid": boss["metadata"]["uid"],
                "controller": True,
            }
        ]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"whose": "theirs"}}
    foreign = await client.create(CONFIG_MAP, body, namespace=namespace)
    await make(client, namespace)
    async with operate() as manager:

        async def refused() -> Any:
            return ((await client.get(TOY, namespace, "t")).get("status") or {}).get("taken")

        assert await eventually(refused) == ["ConfigMap/t"]
        await at_rest(manager)
        assert await client.get(CONFIG_MAP, namespace, "t") == foreign
        assert not await gone(client, SERVICE, namespace, "t"), "the others were made all the same"
        await client.delete(CONFIG_MAP, namespace, "t")
        await ready(client, namespace)
        assert (await client.get(CONFIG_MAP, namespace, "t"))["data"].keys() == {"config.json"}


async def test_a_child_that_the_server_refuses_stops_only_itself(
    client: Client, namespace: str, operate: Operate
) -> None:
    await make(client, namespace, template={"imagePullPolicy": "Sometimes"})
    async with operate():

        async def refused() -> Any:
            return ((await client.get(TOY, namespace, "t")).get("status") or {}).get("rejected")

        (message,) = await eventually(refused)
        assert message.startswith("Deployment/t: ")
        assert "imagePullPolicy" in message
        assert not await gone(client, SERVICE, namespace, "t")
        await client.merge(TOY, namespace, "t", {"spec": {"template": None}})
        await ready(client, namespace, generation=2)


async def test_a_field_that_no_schema_has_is_the_users_to_cure(
    client: Client, namespace: str, operate: Operate
) -> None:
    await make(client, namespace, template={"imagePullPolice": "Always"})
    async with operate():

        async def refused() -> Any:
            return ((await client.get(TOY, namespace, "t")).get("status") or {}).get("rejected")

        (message,) = await eventually(refused)
        assert "imagePullPolice" in message


async def test_a_value_that_the_server_writes_differently_is_no_hot_loop(
    client: Client, namespace: str, operate: Operate
) -> None:
    """A builder should write 500m; one that does not shows as writes that change nothing, one after each restart."""
    await make(client, namespace, template={"resources": {"limits": {"cpu": "0.5"}}})
    async with operate() as manager:
        await ready(client, namespace)
        await at_rest(manager)
        assert (manager.world.counts.writes, manager.world.counts.noop) == (4, 0)
        limits = {"name": "server", "resources": {"limits": {"cpu": "2"}}}
        patch = {"spec": {"template": {"spec": {"containers": [limits]}}}}
        await client.apply(DEPLOYMENT, _named(patch, namespace), force=True)
        await at_rest(manager)
        assert (manager.world.counts.writes, manager.world.counts.noop) == (5, 0)
    async with operate() as manager:
        await at_rest(manager)
        assert (manager.world.counts.writes, manager.world.counts.noop) == (1, 1)


def _named(patch: Obj, namespace: str) -> Obj:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "t", "namespace": namespace}, **patch}


async def test_status_is_written_only_when_it_changed(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace)
    async with operate() as manager:
        await ready(client, namespace)
        for label in ("one", "two", "three"):
            await client.merge(TOY, namespace, "t", {"metadata": {"labels": {"l": label}}})
        await at_rest(manager)
        assert manager.world.counts.statuses == 1
        await client.merge(TOY, namespace, "t", {"status": {"phase": "Forged"}}, subresource="status")
        await ready(client, namespace)
        await at_rest(manager)
        assert manager.world.counts.statuses == 2


async def test_an_owner_made_anew_gets_children_of_its_own(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace)
    async with operate():
        await ready(client, namespace)
        await client.delete(TOY, namespace, "t")
        second = await make(client, namespace)
        await ready(client, namespace)
        for resource in toys.CHILDREN:
            child = await client.get(resource, namespace, "t")
            assert child["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]


async def test_an_autoscaler_takes_over_without_a_moment_at_one_replica(
    client: Client, namespace: str, operate: Operate
) -> None:
    await make(client, namespace, replicas=4)
    async with operate() as manager:
        await ready(client, namespace)
        seen: set[int] = set()

        async def watch() -> None:
            async for event in client.watch(DEPLOYMENT, namespace=namespace):
                if event.type != "BOOKMARK":
                    seen.add(event.object["spec"]["replicas"])

        watching = asyncio.create_task(watch())
        await client.merge(TOY, namespace, "t", {"spec": {"autoscaled": True}})
        await ready(client, namespace, generation=2)
        await client.merge(DEPLOYMENT, namespace, "t", {"spec": {"replicas": 6}}, subresource="scale")
        await client.merge(TOY, namespace, "t", {"spec": {"image": "registry.example.dev/server:v2"}})
        await ready(client, namespace, generation=3)
        await at_rest(manager)
        watching.cancel()
        live = await client.get(DEPLOYMENT, namespace, "t", managed_fields=True)
        assert (live["spec"]["replicas"], seen) == (6, {4, 6})
        await client.merge(TOY, namespace, "t", {"spec": {"autoscaled": False, "replicas": 2}})
        await ready(client, namespace, generation=4)
        assert (await client.get(DEPLOYMENT, namespace, "t"))["spec"]["replicas"] == 2


async def test_children_carry_only_our_field_manager_by_apply(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace)
    async with operate():
        await ready(client, namespace)
    for resource in (CONFIG_MAP, SERVICE):
        child = await client.get(resource, namespace, "t", managed_fields=True)
        managers = {(entry["manager"], entry["operation"]) for entry in child["metadata"]["managedFields"]}
        assert managers == {(FIELD_MANAGER, "Apply")}


THEIRS: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}, "data": {"whose": "x"}}


async def test_a_name_that_is_taken_right_before_the_write_is_left_to_its_owner(
    client: Client, namespace: str, operate: Operate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The foreign object has no field in common with ours, so that the server could merge instead of refusing."""
    async with operate() as manager:
        apply = manager.client.apply

        async def lose_the_race(resource: Resource, obj: Obj, **options: Any) -> Obj:
            if resource == CONFIG_MAP:
                with contextlib.suppress(AlreadyExists):
                    await client.create(CONFIG_MAP, THEIRS, namespace=namespace)
            return await apply(resource, obj, **options)

        monkeypatch.setattr(manager.client, "apply", lose_the_race)
        await make(client, namespace)

        async def refused() -> Any:
            return ((await client.get(TOY, namespace, "t")).get("status") or {}).get("taken")

        assert await eventually(refused) == ["ConfigMap/t"]
        await at_rest(manager)
        theirs = await client.get(CONFIG_MAP, namespace, "t")
        assert theirs["data"] == {"whose": "x"}
        assert not {"ownerReferences", "labels", "annotations"} & theirs["metadata"].keys()


async def test_a_name_that_was_found_in_use_is_looked_up_before_the_next_try(client: Client, namespace: str) -> None:
    """What others made is mostly not in the cache, and each try to make it ours would be one more write refused."""
    owner = await make(client, namespace)
    ours = toys.desired(owner)[:1]
    await client.create(CONFIG_MAP, THEIRS, namespace=namespace)
    blind = Store()
    blind.register(CONFIG_MAP, scopes=(namespace,))
    blind.begin(CONFIG_MAP, namespace)
    blind.commit(CONFIG_MAP, "1", namespace)
    world = ClusterWorld(client=client, store=blind, catalogue=toys.CATALOGUE, hash_annotation=HASH)
    for _ in range(3):
        assert (await world.apply(owner=owner, objects=ours)).name_taken == (CONFIG_MAP.ref(namespace, "t"),)
    assert (world.counts.conflicts, world.counts.writes) == (1, 0)
    await client.delete(CONFIG_MAP, namespace, "t")
    assert (await world.apply(owner=owner, objects=ours)).changed == (CONFIG_MAP.ref(namespace, "t"),)
    assert (world.counts.conflicts, world.counts.writes) == (1, 1)


async def test_a_status_for_an_object_made_anew_goes_nowhere(client: Client, namespace: str, operate: Operate) -> None:
    first = await make(client, namespace)
    async with operate() as manager:
        await ready(client, namespace)
        await client.delete(TOY, namespace, "t")
        await make(client, namespace)
        second = await ready(client, namespace)
        assert not await manager.world.write_status(first, {"phase": "Forged"})
        assert await client.get(TOY, namespace, "t") == second


async def test_pruning_spares_a_child_that_changed_hands(client: Client, namespace: str, operate: Operate) -> None:
    owner = await make(client, namespace)
    async with operate():
        await ready(client, namespace)
    behind = Store()
    for resource in (SERVICE, CONFIG_MAP):
        behind.register(resource, scopes=(namespace,))
        behind.begin(resource, namespace)
        behind.stage(resource, await client.get(resource, namespace, "t"), namespace)
        behind.commit(resource, "1", namespace)
    await client.merge(SERVICE, namespace, "t", {"metadata": {"ownerReferences": None}})
    world = ClusterWorld(client=client, store=behind, catalogue=toys.CATALOGUE, hash_annotation=HASH)
    assert await world.prune(owner=owner, keep=()) == (CONFIG_MAP.ref(namespace, "t"),)
    assert not await gone(client, SERVICE, namespace, "t")
    assert await gone(client, CONFIG_MAP, namespace, "t")


async def test_an_outdated_owner_prunes_nothing(client: Client, namespace: str, operate: Operate) -> None:
    before = await make(client, namespace, withoutService=True)
    await client.merge(TOY, namespace, "t", {"spec": {"withoutService": False}})
    async with operate() as manager:
        await ready(client, namespace, generation=2)
        with pytest.raises(Conflict, match="Toy t has changed"):
            await manager.world.prune(owner=before, keep=())
    assert not await gone(client, SERVICE, namespace, "t")


async def test_an_invalid_patch_of_ours_raises_typed_errors(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match="Invalid value"):
        bad = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "UPPER", "namespace": namespace}}
        await client.apply(SERVICE, {**bad, "spec": {"ports": [{"port": 80}]}}, force=True)
