"""Store: reading, indexes, our own writes, relists; and a model of a server that races with all of it."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairway.kube.resource import CONFIG_MAP, SECRET, Obj
from fairway.runtime.store import Change, Store
from tests.unit.runtime.toys import config_map, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> Store:
    made = Store()
    made.register(CONFIG_MAP, scopes=(None,), indexes={"data": lambda obj: list(obj["data"])})
    sync(made, [])
    return made


def sync(store: Store, objects: list[Obj], version: str = "1") -> None:
    store.begin(CONFIG_MAP)
    for obj in objects:
        store.stage(CONFIG_MAP, obj)
    store.commit(CONFIG_MAP, version)


def names(objects: tuple[Obj, ...]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in objects)


def found(store: Store, name: str = "a") -> str | None:
    obj = store.get(CONFIG_MAP, "default", name)
    return obj["metadata"]["resourceVersion"] if obj else None


def test_objects_are_found_by_name_namespace_index_and_owner(store: Store) -> None:
    sync(
        store,
        [
            config_map("a", data={"x": "1"}, owner="o1"),
            config_map("b", namespace="other", uid="uid-b", data={"x": "1", "y": "2"}),
        ],
    )
    assert names(store.list(CONFIG_MAP)) == ["a", "b"]
    assert names(store.list(CONFIG_MAP, "other")) == ["b"]
    assert names(store.by_index(CONFIG_MAP, "data", "x")) == ["a", "b"]
    assert names(store.owned_by("o1")) == ["a"]
    assert store.owned_by("o1", CONFIG_MAP) == store.owned_by("o1")
    assert store.get(CONFIG_MAP, "default", "b") is None


def test_an_index_follows_the_object(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=2, data={"x": "1"}))
    store.observe(CONFIG_MAP, config_map(version=3, data={"y": "1"}))
    assert store.by_index(CONFIG_MAP, "data", "x") == ()
    assert names(store.by_index(CONFIG_MAP, "data", "y")) == ["a"]
    store.observe_deleted(CONFIG_MAP, config_map(version=4))
    assert store.by_index(CONFIG_MAP, "data", "y") == ()


def test_an_index_added_late_has_what_was_there_before(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=2, data={"x": "1"}))
    store.register(CONFIG_MAP, indexes={"count": lambda obj: [str(len(obj["data"]))]})
    assert names(store.by_index(CONFIG_MAP, "count", "1")) == ["a"]


def test_two_indexes_of_one_name_are_a_bug(store: Store) -> None:
    with pytest.raises(ValueError, match="another index named 'data'"):
        store.register(CONFIG_MAP, indexes={"data": lambda _: []})


def test_asking_for_what_nobody_declared_says_so(store: Store) -> None:
    with pytest.raises(LookupError, match="secrets is not in the store"):
        store.get(SECRET, "default", "a")
    with pytest.raises(LookupError, match=r"no index 'nope'; it has \['data', 'owner-uid'\]"):
        store.by_index(CONFIG_MAP, "nope", "x")


def test_it_is_synced_after_the_first_complete_list() -> None:
    store = Store()
    assert not store.synced(CONFIG_MAP)
    store.register(CONFIG_MAP, scopes=("one", "two"))
    store.begin(CONFIG_MAP, "one")
    store.commit(CONFIG_MAP, "1", "one")
    assert not store.synced(CONFIG_MAP)
    store.begin(CONFIG_MAP, "two")
    store.commit(CONFIG_MAP, "1", "two")
    assert store.synced(CONFIG_MAP)
    store.desync(CONFIG_MAP, "two")
    assert not store.synced(CONFIG_MAP)


async def test_waiting_for_sync_ends_with_the_list() -> None:
    store = Store()
    store.register(CONFIG_MAP, scopes=(None,))
    waiting = asyncio.create_task(store.wait_synced([CONFIG_MAP]))
    await asyncio.sleep(0)
    assert not waiting.done()
    sync(store, [])
    await until(waiting.done)


def test_readers_see_the_old_state_until_a_list_is_complete(store: Store) -> None:
    sync(store, [config_map("old", version=1)])
    store.begin(CONFIG_MAP)
    store.stage(CONFIG_MAP, config_map("new", uid="uid-n", version=5))
    assert names(store.list(CONFIG_MAP)) == ["old"]
    store.commit(CONFIG_MAP, "6")
    assert names(store.list(CONFIG_MAP)) == ["new"]


def test_a_list_tells_what_vanished_what_changed_and_what_came(store: Store) -> None:
    sync(store, [config_map("same"), config_map("changed"), config_map("gone")])
    heard: list[Change] = []
    store.subscribe(CONFIG_MAP, heard.append)
    sync(store, [config_map("same"), config_map("changed", version=2), config_map("new", version=3)])
    assert {(c.obj["metadata"]["name"], c.old is not None, c.new is not None) for c in heard} == {
        ("changed", True, True),
        ("new", False, True),
        ("gone", True, False),
    }


def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    store = Store()
    store.register(CONFIG_MAP, scopes=("one", "two"))
    for scope in ("one", "two"):
        store.begin(CONFIG_MAP, scope)
        store.stage(CONFIG_MAP, config_map(namespace=scope), scope)
        store.commit(CONFIG_MAP, "2", scope)
    store.begin(CONFIG_MAP, "one")
    store.commit(CONFIG_MAP, "3", "one")
    assert [obj["metadata"]["namespace"] for obj in store.list(CONFIG_MAP)] == ["two"]


def test_an_initial_stream_can_take_back_what_it_said(store: Store) -> None:
    store.begin(CONFIG_MAP)
    store.stage(CONFIG_MAP, config_map())
    store.unstage(CONFIG_MAP, config_map())
    store.commit(CONFIG_MAP, "5")
    assert store.list(CONFIG_MAP) == ()


def test_a_reply_is_visible_at_once_and_an_older_event_does_not_undo_it(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=5, data={"v": "old"}))
    assert store.written(CONFIG_MAP, config_map(version=9, data={"v": "ours"}))
    store.observe(CONFIG_MAP, config_map(version=7, data={"v": "between"}))
    assert found(store) == "9"
    store.observe(CONFIG_MAP, config_map(version=11, data={"v": "later"}))
    assert found(store) == "11"


def test_a_reply_never_replaces_something_newer(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=12))
    assert not store.written(CONFIG_MAP, config_map(version=9))
    assert found(store) == "12"


def test_a_reply_that_arrives_after_the_deletion_was_seen_makes_no_ghost(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=9))
    store.observe_deleted(CONFIG_MAP, config_map(version=10))
    assert not store.written(CONFIG_MAP, config_map(version=9))
    assert found(store) is None


def test_a_reply_survives_a_list_that_began_before_it(store: Store) -> None:
    store.begin(CONFIG_MAP)
    store.written(CONFIG_MAP, config_map(version=9))
    store.commit(CONFIG_MAP, "8")
    assert found(store) == "9"


def test_a_reply_that_comes_late_does_not_survive_a_list_that_is_past_it(store: Store) -> None:
    store.begin(CONFIG_MAP)
    store.written(CONFIG_MAP, config_map(version=9))
    store.commit(CONFIG_MAP, "11")
    assert found(store) is None


def test_a_list_that_began_after_a_reply_knows_better(store: Store) -> None:
    store.written(CONFIG_MAP, config_map(version=9))
    sync(store, [], version="12")
    assert found(store) is None


def test_a_restored_cluster_with_smaller_versions_wins(store: Store) -> None:
    sync(store, [config_map(version=9000)], version="9100")
    sync(store, [config_map(version=40)], version="50")
    assert found(store) == "40"


def test_what_we_deleted_does_not_come_back_through_a_late_event_or_list(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=5))
    store.begin(CONFIG_MAP)
    store.stage(CONFIG_MAP, config_map(version=5))
    store.erased(CONFIG_MAP, "default", "a", "uid-a")
    store.observe(CONFIG_MAP, config_map(version=6))
    assert found(store) is None
    store.commit(CONFIG_MAP, "5")
    assert found(store) is None
    store.observe(CONFIG_MAP, config_map(version=9, uid="uid-next"))
    assert found(store) == "9"


def test_deleting_by_uid_leaves_a_successor_alone(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=8, uid="uid-next"))
    store.erased(CONFIG_MAP, "default", "a", "uid-a")
    assert found(store) == "8"


def test_a_late_deletion_of_the_predecessor_leaves_the_successor(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=5))
    store.written(CONFIG_MAP, config_map(version=9, uid="uid-next"))
    store.observe_deleted(CONFIG_MAP, config_map(version=7))
    assert found(store) == "9"


def test_an_object_made_anew_is_told_as_deletion_and_creation(store: Store) -> None:
    store.observe(CONFIG_MAP, config_map(version=5))
    heard: list[Change] = []
    store.subscribe(CONFIG_MAP, heard.append)
    store.observe(CONFIG_MAP, config_map(version=9, uid="uid-next"))
    assert [(c.old is not None, c.new is not None) for c in heard] == [(True, False), (False, True)]


def test_every_difference_is_told_once(store: Store) -> None:
    heard: list[Change] = []
    unsubscribe = store.subscribe(CONFIG_MAP, heard.append)
    store.written(CONFIG_MAP, config_map(version=9))
    store.observe(CONFIG_MAP, config_map(version=9))
    store.progress(CONFIG_MAP, "12")
    assert len(heard) == 1
    unsubscribe()
    store.observe(CONFIG_MAP, config_map(version=13))
    assert len(heard) == 1


def test_a_reply_that_its_own_watch_would_not_see_is_a_bug() -> None:
    store = Store()
    store.register(CONFIG_MAP, scopes=(None,), selector="app=toy")
    assert store.written(CONFIG_MAP, config_map(labels={"app": "toy"}))
    with pytest.raises(ValueError, match="'app=toy'"):
        store.written(CONFIG_MAP, config_map(labels={"app": "other"}))


def test_trimming_happens_on_the_way_in() -> None:
    def without_data(obj: Obj) -> Obj:
        return {key: value for key, value in obj.items() if key != "data"}

    store = Store()
    store.register(CONFIG_MAP, scopes=(None,), trim=without_data)
    sync(store, [config_map("listed", data={"big": "x"})])
    store.observe(CONFIG_MAP, config_map("seen", version=2, data={"big": "x"}))
    store.written(CONFIG_MAP, config_map("written", version=3, data={"big": "x"}))
    assert len(store.list(CONFIG_MAP)) == 3
    assert not any("data" in obj for obj in store.list(CONFIG_MAP))


@pytest.mark.parametrize("version", ["opaque", "0x10", ""])
def test_versions_that_are_no_numbers_go_by_arrival(store: Store, version: str) -> None:
    store.observe(CONFIG_MAP, config_map(version="first"))
    store.observe(CONFIG_MAP, config_map(version=version))
    assert found(store) == version
    store.observe_deleted(CONFIG_MAP, config_map(version="last"))
    assert found(store) is None


class StoreAgainstServer(RuleBasedStateMachine):
    """A server with one history; a watch that lags behind it; replies to our writes that arrive at any later time."""

    NAMES = st.sampled_from("ab")
    store_type: type[Store] = Store

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.uids = 0
        self.server: dict[str, Obj] = {}
        self.events: list[tuple[str, Obj]] = []
        self.delivered = 0
        self.replies: list[tuple[str, Obj]] = []
        self.listing: tuple[dict[str, Obj], int, int] | None = None
        self.mirror: dict[str, Obj] = {}
        self.erased: set[str] = set()
        self.after_the_swap: tuple[Obj, ...] | None = None
        self.store = self.store_type()
        self.store.register(CONFIG_MAP, scopes=(None,), indexes={"data": lambda obj: list(obj["data"])})
        sync(self.store, [])
        self.store.subscribe(CONFIG_MAP, self.hear)

    def hear(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if self.listing is not None:
            shown = self.store.list(CONFIG_MAP)
            assert self.after_the_swap in (None, shown), "a list shows as a whole before anybody hears of it"
            self.after_the_swap = shown
        assert self.mirror.get(name) == change.old, "a change starts where the last one ended"
        if change.new is None:
            del self.mirror[name]
        else:
            self.mirror[name] = change.new

    def write(self, name: str, data: str) -> Obj:
        self.version += 1
        old = self.server.get(name)
        if old is None:
            self.uids += 1
        uid = old["metadata"]["uid"] if old else f"uid-{self.uids}"
        obj = config_map(name, uid=uid, version=self.version, data={data: "1"})
        self.server[name] = obj
        self.events.append(("PUT", obj))
        return obj

    @rule(name=NAMES, data=st.sampled_from("xyz"))
    def somebody_writes(self, name: str, data: str) -> None:
        self.write(name, data)

    @rule(name=NAMES, data=st.sampled_from("xyz"))
    def we_write(self, name: str, data: str) -> None:
        self.replies.append(("PUT", self.write(name, data)))

    def remove(self, name: str) -> Obj | None:
        old = self.server.pop(name, None)
        if old is not None:
            self.version += 1
            gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
            self.events.append(("DELETE", gone))
        return old

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        self.remove(name)

    @rule(name=NAMES)
    def we_delete(self, name: str) -> None:
        if (old := self.remove(name)) is not None:
            self.replies.append(("DELETE", old))

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def a_reply_arrives(self, data: st.DataObject) -> None:
        self.after_the_swap = None
        kind, obj = self.replies.pop(data.draw(st.integers(0, len(self.replies) - 1)))
        metadata = obj["metadata"]
        if kind == "PUT":
            self.store.written(CONFIG_MAP, obj)
            newest = self.store.get(CONFIG_MAP, "default", metadata["name"])
            if newest is not None and metadata["uid"] not in self.erased:
                assert int(newest["metadata"]["resourceVersion"]) >= int(metadata["resourceVersion"])
        else:
            self.erased.add(metadata["uid"])
            self.store.erased(CONFIG_MAP, "default", metadata["name"], metadata["uid"])

    @precondition(lambda self: self.delivered < len(self.events) and self.listing is None)
    @rule()
    def the_watch_delivers(self) -> None:
        kind, obj = self.events[self.delivered]
        self.delivered += 1
        name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
        before = self.store.get(CONFIG_MAP, "default", name)
        if kind == "PUT":
            self.store.observe(CONFIG_MAP, obj)
        else:
            self.store.observe_deleted(CONFIG_MAP, obj)
        if before is not None and int(before["metadata"]["resourceVersion"]) > int(version):
            assert self.store.get(CONFIG_MAP, "default", name) == before, "an event takes nothing back that is newer"

    @precondition(lambda self: self.listing is None)
    @rule()
    def a_relist_begins(self) -> None:
        self.store.begin(CONFIG_MAP)
        self.listing = dict(self.server), self.version, len(self.events)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def a_relist_ends(self) -> None:
        assert self.listing is not None
        objects, version, delivered = self.listing
        before = self.store.list(CONFIG_MAP)
        for obj in objects.values():
            self.store.stage(CONFIG_MAP, obj)
        assert self.store.list(CONFIG_MAP) == before, "nothing of a list shows before it is complete"
        self.after_the_swap = None
        self.store.commit(CONFIG_MAP, str(version))
        self.delivered, self.listing = delivered, None

    @invariant()
    def subscribers_know_exactly_what_is_stored(self) -> None:
        assert self.mirror == {obj["metadata"]["name"]: obj for obj in self.store.list(CONFIG_MAP)}

    @invariant()
    def indexes_are_what_a_scan_would_find(self) -> None:
        for key in "xyz":
            expected = names(tuple(obj for obj in self.store.list(CONFIG_MAP) if key in obj["data"]))
            assert names(self.store.by_index(CONFIG_MAP, "data", key)) == expected

    def teardown(self) -> None:
        """Once everything is delivered, the store is the server."""
        if self.listing is not None:
            self.a_relist_ends()
        while self.delivered < len(self.events):
            self.the_watch_delivers()
        for kind, obj in self.replies:
            metadata = obj["metadata"]
            if kind == "PUT":
                self.store.written(CONFIG_MAP, obj)
            else:
                self.store.erased(CONFIG_MAP, "default", metadata["name"], metadata["uid"])
        assert {obj["metadata"]["name"]: obj for obj in self.store.list(CONFIG_MAP)} == self.server


StoreAgainstServer.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, database=None, derandomize=True
)
TestStoreAgainstServer = StoreAgainstServer.TestCase
