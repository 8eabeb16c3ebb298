"""MemoryWorld: bookkeeping, ownership, garbage collection, and what subscribers hear."""

from datetime import UTC, datetime

import pytest

from fairway.kube.resource import CONFIG_MAP, SERVICE, Obj, UnknownResource
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.store import Change
from tests.unit.runtime.toys import CATALOGUE, TOY, toy

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> MemoryWorld:
    uids = iter(f"uid-{n}" for n in range(1000))
    return MemoryWorld(
        catalogue=CATALOGUE, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), new_uid=lambda: next(uids)
    )


def child(name: str = "c", **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_put_object_gets_uid_version_generation_and_time(world: MemoryWorld) -> None:
    stored = world.put(toy(replicas=1))
    assert stored["metadata"] == {
        "name": "t",
        "namespace": "default",
        "uid": "uid-0",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    assert world.store.get(TOY, "default", "t") is stored


def test_generation_grows_with_the_spec_and_not_with_labels_or_status(world: MemoryWorld) -> None:
    first = world.put(toy(replicas=1))
    labelled = toy(replicas=1)
    labelled["metadata"]["labels"] = {"a": "b"}
    second = world.put(labelled)
    assert (second["metadata"]["generation"], second["metadata"]["resourceVersion"]) == (1, "2")
    third = world.set_status(TOY.ref("default", "t"), {"phase": "Ready"})
    assert third is not None
    assert (third["metadata"]["generation"], third["metadata"]["resourceVersion"]) == (1, "3")
    fourth = world.put(toy(replicas=2))
    assert (fourth["metadata"]["generation"], fourth["metadata"]["uid"]) == (2, first["metadata"]["uid"])
    assert fourth["status"] == {"phase": "Ready"}


def test_a_put_that_changes_nothing_is_no_write_and_tells_nobody(world: MemoryWorld) -> None:
    first = world.put(toy(replicas=1))
    heard: list[Change] = []
    world.subscribe(TOY, heard.append)
    assert world.put(toy(replicas=1)) is first
    assert heard == []


def test_what_the_writer_claims_about_bookkeeping_does_not_count(world: MemoryWorld) -> None:
    forged = toy()
    forged["metadata"] |= {"uid": "mine", "resourceVersion": "99", "generation": 7}
    stored = world.put(forged)
    assert (stored["metadata"]["uid"], stored["metadata"]["resourceVersion"]) == ("uid-0", "1")
    assert stored["metadata"]["generation"] == 1


def test_later_changes_of_what_was_handed_in_do_not_reach_the_world(world: MemoryWorld) -> None:
    mine = toy(items=[1])
    world.put(mine)
    mine["spec"]["items"].append(2)
    found = world.store.get(TOY, "default", "t")
    assert found is not None
    assert found["spec"]["items"] == [1]


def test_an_object_of_an_undeclared_kind_is_refused(world: MemoryWorld) -> None:
    with pytest.raises(UnknownResource, match="kind 'Wheel'"):
        world.put({"apiVersion": "v1", "kind": "Wheel", "metadata": {"name": "x"}})


async def test_children_get_the_namespace_and_the_owner(world: MemoryWorld) -> None:
    owner = world.put(toy(namespace="blue"))
    applied = await world.apply(owner=owner, objects=[child()])
    (ref,) = applied.refs
    assert (ref.namespace, applied.changed, applied.complete) == ("blue", (ref,), True)
    assert applied.live[ref]["metadata"]["ownerReferences"][0] == {
        "apiVersion": TOY.api_version,
        "kind": "Toy",
        "name": "t",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert world.store.owned_by(owner["metadata"]["uid"]) == (applied.live[ref],)


async def test_applying_the_same_again_changes_nothing(world: MemoryWorld) -> None:
    owner = world.put(toy())
    first = await world.apply(owner=owner, objects=[child(a="1")])
    again = await world.apply(owner=owner, objects=[child(a="1")])
    assert again.changed == ()
    assert again.live == first.live


async def test_a_field_that_is_no_longer_desired_goes(world: MemoryWorld) -> None:
    owner = world.put(toy())
    await world.apply(owner=owner, objects=[child(a="1", b="2")])
    applied = await world.apply(owner=owner, objects=[child(a="1")])
    assert next(iter(applied.live.values()))["data"] == {"a": "1"}


async def test_applying_leaves_the_status_that_the_node_wrote(world: MemoryWorld) -> None:
    owner = world.put(toy())
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"a": 1}}
    applied = await world.apply(owner=owner, objects=[service])
    (ref,) = applied.refs
    world.set_status(ref, {"up": True})
    applied = await world.apply(owner=owner, objects=[{**service, "spec": {"a": 2}}])
    assert applied.live[ref]["status"] == {"up": True}
    assert applied.live[ref]["metadata"]["generation"] == 2


async def test_a_name_that_is_taken_stops_only_that_object(world: MemoryWorld) -> None:
    foreign = world.put(child("taken", mine="yes"))
    owner = world.put(toy())
    applied = await world.apply(owner=owner, objects=[child("taken", a="1"), child("free", a="1")])
    assert applied.name_taken == (CONFIG_MAP.ref("default", "taken"),)
    assert applied.changed == (CONFIG_MAP.ref("default", "free"),)
    assert not applied.complete
    assert world.store.get(CONFIG_MAP, "default", "taken") is foreign


async def test_a_child_of_another_owner_is_taken_too(world: MemoryWorld) -> None:
    first, second = world.put(toy("one")), world.put(toy("two"))
    await world.apply(owner=first, objects=[child(a="1")])
    applied = await world.apply(owner=second, objects=[child(a="2")])
    assert applied.name_taken == (CONFIG_MAP.ref("default", "c"),)
    assert applied.live == {}


async def test_prune_deletes_own_children_and_nothing_else(world: MemoryWorld) -> None:
    owner, other = world.put(toy("one")), world.put(toy("two"))
    world.put(child("foreign"))
    await world.apply(owner=owner, objects=[child("keep"), child("drop")])
    await world.apply(owner=other, objects=[child("others")])
    pruned = await world.prune(owner=owner, keep={CONFIG_MAP.ref("default", "keep")})
    assert pruned == (CONFIG_MAP.ref("default", "drop"),)
    assert {obj["metadata"]["name"] for obj in world.store.list(CONFIG_MAP)} == {"foreign", "keep", "others"}


async def test_deleting_an_owner_collects_children_and_grandchildren(world: MemoryWorld) -> None:
    owner = world.put(toy())
    applied = await world.apply(owner=owner, objects=[child()])
    (parent,) = applied.live.values()
    grandchild = child("grandchild")
    grandchild["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": parent["metadata"]["uid"], "controller": True}
    ]
    world.put(grandchild)
    gone: list[str] = []
    world.subscribe(CONFIG_MAP, lambda change: gone.append(change.obj["metadata"]["name"]))
    assert world.delete(TOY.ref("default", "t"))
    assert gone == ["c", "grandchild"]
    assert world.store.list(CONFIG_MAP) == ()
    assert not world.delete(TOY.ref("default", "t"))


async def test_an_object_with_a_second_owner_stays_until_that_goes_too(world: MemoryWorld) -> None:
    first, second = world.put(toy("one")), world.put(toy("two"))
    shared = child("shared")
    shared["metadata"]["ownerReferences"] = [
        {"apiVersion": TOY.api_version, "kind": "Toy", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in (first, second)
    ]
    world.put(shared)
    world.delete(TOY.ref("default", "one"))
    assert len(world.store.list(CONFIG_MAP)) == 1
    world.delete(TOY.ref("default", "two"))
    assert world.store.list(CONFIG_MAP) == ()


async def test_an_owner_that_went_meanwhile_gets_no_children_and_no_status(world: MemoryWorld) -> None:
    owner = world.put(toy())
    world.delete(TOY.ref("default", "t"))
    world.put(toy())  # of the same name, but another one
    applied = await world.apply(owner=owner, objects=[child()])
    assert (applied.live, applied.changed) == ({}, ())
    assert not await world.write_status(owner, {"phase": "Ready"})
    assert world.store.list(CONFIG_MAP) == ()


async def test_status_is_written_only_when_it_changed(world: MemoryWorld) -> None:
    owner = world.put(toy())
    assert await world.write_status(owner, {"phase": "Ready"})
    assert not await world.write_status(owner, {"phase": "Ready"})
    assert await world.write_status(owner, {})


def test_setting_the_status_of_what_is_gone_does_nothing(world: MemoryWorld) -> None:
    assert world.set_status(SERVICE.ref("default", "gone"), {"up": True}) is None


async def test_the_same_object_desired_twice_is_a_bug(world: MemoryWorld) -> None:
    owner = world.put(toy())
    with pytest.raises(ValueError, match="ConfigMap/c is desired twice"):
        await world.apply(owner=owner, objects=[child(), child()])


async def test_a_child_in_another_namespace_is_a_bug(world: MemoryWorld) -> None:
    owner = world.put(toy())
    far = child()
    far["metadata"]["namespace"] = "elsewhere"
    with pytest.raises(ValueError, match="outside namespace 'default'"):
        await world.apply(owner=owner, objects=[far])
