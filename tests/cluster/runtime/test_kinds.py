"""Kinds that are not always there, kinds of which only the metadata is kept, and objects that are trimmed."""

from collections.abc import AsyncIterator

import pytest

from fairway.kube.client import Client
from fairway.kube.resource import CONFIG_MAP, CRD, SECRET, SERVICE, Catalogue, Obj, Resource
from fairway.runtime.controller import Controller
from fairway.runtime.endpoints import Address
from fairway.runtime.outcome import Outcome
from fairway.runtime.store import StoreView
from fairway.runtime.world import World
from tests.cluster.runtime import toys
from tests.cluster.runtime.conftest import Operate
from tests.cluster.runtime.toys import TOY, toy
from tests.cluster.runtime.waiting import at_rest, eventually, ready

pytestmark = pytest.mark.anyio

GADGET = Resource(toys.GROUP, "v1", "Gadget", "gadgets")
GADGETS: Obj = {
    **toys.CRD,
    "metadata": {"name": f"gadgets.{toys.GROUP}"},
    "spec": {
        **toys.CRD["spec"],
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
    },
}


@pytest.fixture
async def no_gadgets(client: Client) -> AsyncIterator[None]:
    yield
    await client.delete(CRD, None, GADGETS["metadata"]["name"])


async def with_gadget(owner: Obj, world: World) -> Outcome:
    """A Gadget beside a ConfigMap, as far as the cluster knows what a Gadget is."""
    name = owner["metadata"]["name"]
    objects: list[Obj] = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}]
    if world.store.synced(GADGET):
        objects.append({"apiVersion": GADGET.api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": {}})
    applied = await world.apply(owner=owner, objects=objects)
    await world.prune(owner=owner, keep=applied.refs)
    return Outcome(
        status={"observedGeneration": owner["metadata"]["generation"], "phase": "Ready", "made": len(applied.live)}
    )


async def test_a_kind_that_is_installed_later_is_found_and_used(
    client: Client, namespace: str, operate: Operate, no_gadgets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toys, "CATALOGUE", Catalogue([*toys.CATALOGUE.values(), GADGET]))
    using = Controller(resource=TOY, reconcile=with_gadget, owns=(CONFIG_MAP, GADGET), optional=(GADGET,))
    await client.create(TOY, toy("t", namespace), namespace=namespace)
    async with operate(using=using, probes=Address("127.0.0.1", 0)) as manager:

        async def made() -> int:
            status = (await client.get(TOY, namespace, "t")).get("status") or {}
            return int(status.get("made", 0))

        async def one() -> bool:
            return await made() == 1

        async def two() -> bool:
            return await made() == 2

        await eventually(one)
        assert manager._missing() == [], "what is optional keeps nobody from being ready"
        await client.create(CRD, GADGETS)
        await eventually(two, seconds=60)
        assert (await client.get(GADGET, namespace, "t"))["metadata"]["ownerReferences"]

        await client.delete(CRD, None, GADGETS["metadata"]["name"])

        async def lost() -> bool:
            return not manager.store.synced(GADGET)

        await eventually(lost, seconds=60)
        await client.merge(TOY, namespace, "t", {"spec": {"port": 9}})
        await ready(client, namespace, generation=2)
        await eventually(one)
        assert manager.world.counts.noop == 0
        await client.create(CRD, GADGETS)
        await eventually(two, seconds=60)


async def test_of_secrets_only_the_metadata_is_kept_and_services_are_trimmed(
    client: Client, namespace: str, operate: Operate
) -> None:
    woken: list[str] = []

    def users_of(secret: Obj, _: StoreView) -> list[tuple[str, str]]:
        woken.append(secret["metadata"]["name"])
        return [(namespace, "t")]

    def without_spec(service: Obj) -> Obj:
        return {name: value for name, value in service.items() if name != "spec"}

    async def reconcile(owner: Obj, world: World) -> Outcome:
        versions = {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in world.store.list(SECRET)}
        generation = owner["metadata"]["generation"]
        return Outcome(status={"observedGeneration": generation, "phase": "Ready", "secrets": versions})

    using = Controller(
        resource=TOY,
        reconcile=reconcile,
        watches={SECRET: users_of, SERVICE: lambda _obj, _store: []},
        metadata_only=(SECRET,),
        trims={SERVICE: without_spec},
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    await client.create(SECRET, secret, namespace=namespace)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    await client.create(SERVICE, service, namespace=namespace)
    await client.create(TOY, toy("t", namespace), namespace=namespace)
    async with operate(using=using) as manager:
        await ready(client, namespace)
        kept = manager.store.get(SECRET, namespace, "s")
        assert kept is not None
        assert kept.keys() == {"apiVersion", "kind", "metadata"}
        assert kept["kind"] == "Secret"
        assert "hunter2" not in str(manager.store.list(SECRET))
        trimmed = manager.store.get(SERVICE, namespace, "s")
        assert trimmed is not None
        assert "spec" not in trimmed

        woken.clear()
        changed = await client.merge(SECRET, namespace, "s", {"stringData": {"password": "correct horse"}})

        async def seen() -> bool:
            status = (await client.get(TOY, namespace, "t"))["status"]
            return bool(status["secrets"]["s"] == changed["metadata"]["resourceVersion"])

        await eventually(seen)
        assert "s" in woken
        await at_rest(manager)


async def test_objects_of_another_shard_are_left_alone(client: Client, namespace: str, operate: Operate) -> None:
    for shard in ("a", "b"):
        made = toy(f"of-{shard}", namespace)
        made["metadata"]["labels"] = {"shard": shard}
        await client.create(TOY, made, namespace=namespace)
    using = Controller(resource=TOY, reconcile=toys.reconcile, owns=toys.CHILDREN)
    using.extend(selector="shard=a")
    async with operate(using=using) as manager:
        await ready(client, namespace, "of-a")
        await at_rest(manager)
        assert manager.world.counts.writes == 4
    assert "status" not in await client.get(TOY, namespace, "of-b")
