"""Reflectors and a real API server, with and without something that goes wrong between them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.errors import NotFound, WatchSilent
from fairway.kube.resource import CONFIG_MAP
from fairway.kube.transport import Transport
from fairway.runtime.reflector import Reflector
from fairway.runtime.store import Change, Store
from rig.testcluster import RigCluster
from tests.cluster.runtime.toys import TOY
from tests.cluster.runtime.waiting import eventually
from tests.faultproxy import (
    Answer,
    CloseAfter,
    Corrupt,
    Events,
    FaultProxy,
    Hang,
    InStreamError,
    Requests,
    Reset,
    Rule,
    SilentAfter,
    When,
    gone,
    too_many_requests,
    unavailable,
)

pytestmark = pytest.mark.anyio

LOOKS = Requests(verbs={"list", "watch"})


@pytest.fixture
def proxy(rig_api: RigCluster) -> Iterator[FaultProxy]:
    with FaultProxy.start(rig_api.kubeconfig) as started:
        yield started


class Running:
    def __init__(self, reflector: Reflector, store: Store, namespace: str) -> None:
        self.reflector = reflector
        self.store = store
        self.namespace = namespace
        self.heard: list[Change] = []
        store.subscribe(reflector.resource, self.heard.append)

    @property
    def state(self) -> dict[str, str]:
        found = self.store.list(self.reflector.resource, self.namespace)
        return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in found}


@asynccontextmanager
async def reflecting(proxy: FaultProxy, namespace: str, **options: Any) -> AsyncIterator[Running]:
    transport = Transport(load_access(kubeconfig=proxy.kubeconfig), user_agent="reflector")
    async with Client(transport, field_manager="reflector") as client:
        store = Store()
        options.setdefault("resource", CONFIG_MAP)
        reflector = Reflector(client=client, store=store, namespace=namespace, **options)
        running = Running(reflector, store, namespace)
        task = asyncio.create_task(reflector.run())
        try:
            yield running
            assert not task.done(), task.exception()
        finally:
            task.cancel()


async def put(client: Client, namespace: str, *names: str) -> None:
    for name in names:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
        stamp = str(asyncio.get_running_loop().time())
        await client.apply(CONFIG_MAP, {**body, "data": {"stamp": stamp}}, force=True)


async def truth(client: Client, namespace: str) -> dict[str, str]:
    found = [obj async for obj in client.list(CONFIG_MAP, namespace=namespace)]
    return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in found}


async def agrees(running: Running, client: Client) -> None:
    expected = await truth(client, running.namespace)

    async def look() -> bool:
        return running.state == expected

    await eventually(look)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "in pages"])
async def test_it_starts_complete_and_follows(
    proxy: FaultProxy, client: Client, rig_namespace: str, streaming: bool
) -> None:
    await put(client, rig_namespace, *(f"m{number}" for number in range(25)))
    async with reflecting(proxy, rig_namespace, streaming=streaming, page_size=10) as running:
        await running.store.wait_synced([CONFIG_MAP])
        assert running.state == await truth(client, rig_namespace)
        await put(client, rig_namespace, "m1", "later")
        await client.delete(CONFIG_MAP, rig_namespace, "m2")
        await agrees(running, client)
        lists = proxy.log.matching(Requests(verbs={"list"}))
        assert len(lists) == (0 if streaming else 3)
        assert running.reflector.lists == 1


async def test_listed_objects_know_their_kind_and_carry_no_managed_fields(
    proxy: FaultProxy, client: Client, rig_namespace: str
) -> None:
    await put(client, rig_namespace, "a")
    for streaming in (True, False):
        async with reflecting(proxy, rig_namespace, streaming=streaming) as running:
            await running.store.wait_synced([CONFIG_MAP])
            obj = running.store.get(CONFIG_MAP, rig_namespace, "a")
            assert obj is not None
            assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")
            assert "managedFields" not in obj["metadata"]


async def test_metadata_alone_can_be_reflected(proxy: FaultProxy, client: Client, rig_namespace: str) -> None:
    await put(client, rig_namespace, "a")
    for streaming in (True, False):
        async with reflecting(proxy, rig_namespace, streaming=streaming, metadata_only=True) as running:
            await running.store.wait_synced([CONFIG_MAP])
            await put(client, rig_namespace, "a", f"b-{int(streaming)}")
            await agrees(running, client)
            for obj in running.store.list(CONFIG_MAP):
                assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")
                assert obj.keys() == {"apiVersion", "kind", "metadata"}


async def test_selectors_choose_and_leaving_them_is_a_deletion(
    proxy: FaultProxy, client: Client, rig_namespace: str
) -> None:
    await put(client, rig_namespace, "in", "out")
    await client.merge(CONFIG_MAP, rig_namespace, "in", {"metadata": {"labels": {"app": "x"}}})
    async with reflecting(proxy, rig_namespace, label_selector="app=x") as running:
        await running.store.wait_synced([CONFIG_MAP])
        assert running.state.keys() == {"in"}
        await client.merge(CONFIG_MAP, rig_namespace, "in", {"metadata": {"labels": {"app": "y"}}})
        await eventually(_async(lambda: not running.state))
    async with reflecting(proxy, rig_namespace, field_selector="metadata.name=out") as running:
        await running.store.wait_synced([CONFIG_MAP])
        assert running.state.keys() == {"out"}


def _async(look: Any) -> Any:
    async def looking() -> Any:
        return look()

    return looking


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "in pages"])
async def test_gone_as_a_status_and_in_the_stream_brings_what_was_missed(
    proxy: FaultProxy, client: Client, rig_namespace: str, streaming: bool
) -> None:
    await put(client, rig_namespace, "stays", "goes")
    async with reflecting(proxy, rig_namespace, streaming=streaming) as running:
        await running.store.wait_synced([CONFIG_MAP])
        expected = 1
        for fault in (
            Rule(Events(), InStreamError(), times=1),
            Rule(Requests(verbs={"watch"}, initial_events=False), gone(), times=1),
        ):
            proxy.refuse()
            await put(client, rig_namespace, "stays", f"new-{expected}")
            if expected == 1:
                await client.delete(CONFIG_MAP, rig_namespace, "goes")
            book = proxy.use(fault)
            proxy.accept()
            await agrees(running, client)
            assert book.used(fault) == 1
            expected += 1
            assert running.reflector.lists == expected
    gone_names = [change.obj["metadata"]["name"] for change in running.heard if change.new is None]
    assert gone_names == ["goes"]


async def test_a_list_whose_token_expired_begins_anew(proxy: FaultProxy, client: Client, rig_namespace: str) -> None:
    await put(client, rig_namespace, *(f"m{number}" for number in range(9)))
    rule = Rule(Requests(verbs={"list"}), gone(), nth=2)
    book = proxy.use(rule)
    async with reflecting(proxy, rig_namespace, streaming=False, page_size=3) as running:
        await running.store.wait_synced([CONFIG_MAP])
        assert running.state == await truth(client, rig_namespace)
    assert book.used(rule) == 1
    assert len(proxy.log.matching(Requests(verbs={"list"}))) == 3, "the second time in one piece"


async def test_a_server_without_watch_list_is_listed(proxy: FaultProxy, client: Client, rig_namespace: str) -> None:
    await put(client, rig_namespace, "a")
    refused = Answer(422, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature is enabled")
    proxy.use(Rule(Requests(initial_events=True), refused))
    async with reflecting(proxy, rig_namespace) as running:
        await running.store.wait_synced([CONFIG_MAP])
        await put(client, rig_namespace, "b")
        await agrees(running, client)


async def test_a_server_that_ignores_the_wish_for_initial_events_is_listed(
    proxy: FaultProxy, client: Client, rig_namespace: str
) -> None:
    """It looks like a stream that never says that it is complete."""
    await put(client, rig_namespace, "a", "b")
    proxy.use(Rule(Events(), SilentAfter(), nth=1))
    async with reflecting(proxy, rig_namespace, silence=0.3) as running:
        await running.store.wait_synced([CONFIG_MAP])
        assert running.state == await truth(client, rig_namespace)
        assert len(proxy.log.matching(Requests(verbs={"list"}))) == 1


HICCUPS: dict[str, Rule] = {
    "closed after every event": Rule(Events(), CloseAfter()),
    "garbled": Rule(Events(), Corrupt(), times=2),
    "silent": Rule(Events(), SilentAfter(), times=1),
    "refused with 429": Rule(LOOKS, too_many_requests(1), times=1),
    "unavailable": Rule(LOOKS, unavailable(), times=2),
    "reset before": Rule(LOOKS, Reset(), times=2),
    "reset in the middle": Rule(LOOKS, Reset(When.MID_BODY), times=2),
    "hanging": Rule(LOOKS, Hang(), times=1),
}


@pytest.mark.parametrize("rule", HICCUPS.values(), ids=HICCUPS)
@pytest.mark.parametrize("phase", ["at the start", "later"])
async def test_a_hiccup_loses_nothing(
    proxy: FaultProxy, client: Client, rig_namespace: str, rule: Rule, phase: str
) -> None:
    await put(client, rig_namespace, "a", "b")
    if phase == "at the start":
        proxy.use(rule)
    async with reflecting(proxy, rig_namespace, silence=0.5) as running:
        await asyncio.wait_for(running.store.wait_synced([CONFIG_MAP]), 20)
        if phase == "later":
            proxy.use(rule)
            proxy.drop_connections()
        await put(client, rig_namespace, "a", "c")
        await client.delete(CONFIG_MAP, rig_namespace, "b")
        await agrees(running, client)
        await put(client, rig_namespace, "d")
        await agrees(running, client)


async def test_a_server_that_went_away_is_found_again(proxy: FaultProxy, client: Client, rig_namespace: str) -> None:
    await put(client, rig_namespace, "a", "b")
    async with reflecting(proxy, rig_namespace) as running:
        await running.store.wait_synced([CONFIG_MAP])
        proxy.refuse()
        await put(client, rig_namespace, "a", "c")
        await client.delete(CONFIG_MAP, rig_namespace, "b")
        await asyncio.sleep(0.5)
        assert running.store.synced(CONFIG_MAP), "what is known stays known"
        proxy.accept()
        await agrees(running, client)
        assert running.reflector.lists == 1, "resumed, not listed again"


async def test_a_kind_that_is_not_served_yet_is_waited_for(proxy: FaultProxy, client: Client, namespace: str) -> None:
    proxy.use(Rule(LOOKS, Answer(404, "NotFound"), times=3))
    async with reflecting(proxy, namespace, resource=TOY) as running:
        await running.store.wait_synced([TOY])
        assert isinstance(running.reflector.last_error, NotFound) or running.reflector.last_error is None


async def test_a_version_that_the_server_has_forgotten_or_not_reached(client: Client, namespace: str) -> None:
    """What the real server says, on which the state machine relies: the one is Gone, the other is silence."""
    # Of a kind that came later: a server that has just been made knows all that ever happened to config maps.
    (event,) = [event async for event in client.watch(TOY, resource_version="1", timeout=5)]
    assert (event.type, event.object["code"], event.object["reason"]) == ("ERROR", 410, "Expired")
    watch = client.watch(CONFIG_MAP, namespace=namespace, resource_version="99999999999", silence=0.5)
    await put(client, namespace, "unseen")
    with pytest.raises(WatchSilent):
        await anext(watch)
