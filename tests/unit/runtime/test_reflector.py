"""Reflector: the pure state machine by example and by model, and the driver over a server in memory."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairway.kube.client import Page, WatchEvent
from fairway.kube.errors import (
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    Unreachable,
    WatchSilent,
)
from fairway.kube.resource import CONFIG_MAP, Obj
from fairway.runtime.reflector import (
    INITIAL_EVENTS_END,
    Apply,
    Began,
    Closed,
    Delete,
    Failed,
    Init,
    InitApply,
    InitDelete,
    InitDone,
    ListPage,
    Lost,
    OpenWatch,
    Phase,
    Progress,
    ReadOn,
    Reflector,
    State,
    Step,
    step,
)
from fairway.runtime.store import Store
from tests.unit.runtime.toys import config_map, until

pytestmark = pytest.mark.anyio

WATCHING = State(Phase.WATCHING, "10")
STREAM = State(Phase.INIT_STREAM)
PAGES = State(Phase.INIT_PAGES, streaming=False)


def bookmark(version: str, *, end: bool = False) -> WatchEvent:
    annotations = {"annotations": {INITIAL_EVENTS_END: "true"}} if end else {}
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": version, **annotations}})


def error(code: int, message: str = "", **details: Any) -> WatchEvent:
    return WatchEvent("ERROR", {"kind": "Status", "code": code, "message": message, "details": details})


def test_it_begins_with_a_stream_of_what_is_there() -> None:
    now = step(State(), Began())
    assert (now.state.phase, list(now.effects)) == (Phase.INIT_STREAM, [Init()])
    assert now.request == OpenWatch("", initial=True)


def test_the_stream_becomes_the_watch_without_another_request() -> None:
    obj = config_map()
    now = step(STREAM, WatchEvent("ADDED", obj))
    assert (list(now.effects), now.request) == ([InitApply(obj)], ReadOn())
    now = step(now.state, WatchEvent("DELETED", obj))
    assert list(now.effects) == [InitDelete(obj)]
    now = step(now.state, bookmark("7"))
    assert (now.state.phase, list(now.effects)) == (Phase.INIT_STREAM, [])
    now = step(now.state, bookmark("9", end=True))
    assert (now.state.phase, now.state.version) == (Phase.WATCHING, "9")
    assert (list(now.effects), now.request) == ([InitDone("9")], ReadOn())


@pytest.mark.parametrize(
    "happened",
    [
        Failed(Invalid("sendInitialEvents is forbidden", status=422)),
        error(500, "required storage feature RequestWatchProgress is disabled"),
        Failed(WatchSilent("nothing for 90s")),
    ],
    ids=["refused", "storage too old", "ignored"],
)
def test_a_server_that_cannot_stream_is_listed_in_pages(happened: WatchEvent | Failed) -> None:
    now = step(STREAM, happened)
    assert (now.state.phase, now.state.streaming) == (Phase.INIT_PAGES, False)
    assert (list(now.effects), now.request) == ([Init()], ListPage("", paged=True))
    assert step(WATCHING, Failed(Unreachable("x"))).state.streaming, "but only that one"


@pytest.mark.parametrize("failure", [Unreachable("refused"), ServerUnavailable("starting", status=503)])
def test_a_server_that_is_just_away_is_streamed_from_again(failure: KubeError) -> None:
    now = step(STREAM, Failed(failure))
    assert isinstance(now.request, OpenWatch)
    assert (now.request.initial, now.request.wait > 0) == (True, True)


def test_pages_are_followed_to_the_end_and_then_watched_from_there() -> None:
    first, second = config_map("a"), config_map("b")
    now = step(PAGES, Page([first], "next", "5"))
    assert (list(now.effects), now.request) == ([InitApply(first)], ListPage("next", paged=True))
    now = step(now.state, Page([second], "", "5"))
    assert list(now.effects) == [InitApply(second), InitDone("5")]
    assert now.request == OpenWatch("5", initial=False)


def test_a_page_that_failed_for_now_is_asked_for_again() -> None:
    now = step(State(Phase.INIT_PAGES, continue_token="next", streaming=False), Failed(Unreachable("reset")))
    assert (list(now.effects), now.request) == ([], ListPage("next", paged=True, wait=0.1))


def test_a_list_too_slow_for_its_continue_token_is_taken_in_one() -> None:
    now = step(State(Phase.INIT_PAGES, continue_token="old", streaming=False), Failed(Gone("expired", status=410)))
    assert (list(now.effects), now.request) == ([Init()], ListPage("", paged=False))


def test_events_move_the_version_on() -> None:
    obj = config_map(version=11)
    now = step(WATCHING, WatchEvent("MODIFIED", obj))
    assert (now.state.version, list(now.effects), now.request) == ("11", [Apply(obj)], ReadOn())
    now = step(now.state, WatchEvent("DELETED", config_map(version=12)))
    assert (now.state.version, list(now.effects)) == ("12", [Delete(config_map(version=12))])
    now = step(now.state, bookmark("40"))
    assert (now.state.version, list(now.effects)) == ("40", [Progress("40")])


def test_a_watch_that_was_closed_is_resumed_where_it_was() -> None:
    now = step(WATCHING, Closed(eventful=True))
    assert (list(now.effects), now.request) == ([], OpenWatch("10", initial=False))


def test_a_server_that_closes_at_once_is_asked_ever_more_slowly() -> None:
    waits, state = [], WATCHING
    for _ in range(4):
        now = step(state, Closed(eventful=False))
        assert isinstance(now.request, OpenWatch)
        waits.append(now.request.wait)
        state = now.state
    assert waits == [0.1, 0.2, 0.4, 0.8]
    assert step(state, bookmark("11")).state.failures == 0


@pytest.mark.parametrize("failure", [Unreachable("reset"), WatchSilent("dead"), Forbidden("no", status=403)])
def test_a_broken_watch_is_resumed_where_it_was(failure: KubeError) -> None:
    now = step(WATCHING, Failed(failure))
    assert (list(now.effects), now.request) == ([], OpenWatch("10", initial=False, wait=0.1))


@pytest.mark.parametrize(
    "happened", [error(410, "too old"), Failed(Gone("too old", status=410))], ids=["in the stream", "as HTTP status"]
)
def test_gone_means_list_again_at_once(happened: WatchEvent | Failed) -> None:
    now = step(WATCHING, happened)
    assert (now.state.phase, list(now.effects)) == (Phase.INIT_STREAM, [Init()])
    assert now.request == OpenWatch("", initial=True, wait=0.0)


def test_gone_again_and_again_is_no_tight_loop() -> None:
    state, wait = WATCHING, 0.0
    for _ in range(12):
        now = step(state, error(410))
        assert isinstance(now.request, OpenWatch)
        wait = now.request.wait
        state = step(now.state, bookmark("9", end=True)).state
    assert wait == 30.0


def test_a_version_from_the_future_means_list_again() -> None:
    beyond = error(504, "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])
    assert step(WATCHING, beyond).state.phase is Phase.INIT_STREAM


def test_silence_is_resumed_once_and_then_listed_again() -> None:
    now = step(WATCHING, Failed(WatchSilent("nothing for 90s")))
    assert isinstance(now.request, OpenWatch)
    assert now.request.version == "10"
    again = step(now.state, Failed(WatchSilent("nothing for 90s")))
    assert again.state.phase is Phase.INIT_STREAM
    told = step(now.state, bookmark("11"))
    assert step(told.state, Failed(WatchSilent("nothing for 90s"))).state.phase is Phase.WATCHING


def test_a_stream_that_ends_early_twice_is_asked_for_in_pages() -> None:
    now = step(STREAM, Closed(eventful=True))
    assert (now.state.phase, now.state.streaming) == (Phase.INIT_STREAM, True)
    now = step(now.state, Closed(eventful=True))
    assert (now.state.phase, now.state.streaming) == (Phase.INIT_PAGES, False)


def test_a_kind_that_is_not_served_makes_the_store_unsure() -> None:
    now = step(WATCHING, Failed(NotFound("no such kind", status=404)))
    assert list(now.effects) == [Lost(), Init()]
    assert isinstance(now.request, OpenWatch)
    assert now.request.wait > 0


@pytest.mark.parametrize("state", [WATCHING, STREAM, PAGES])
def test_a_server_that_says_how_long_is_believed(state: State) -> None:
    now = step(state, Failed(TooManyRequests("busy", status=429, retry_after=17)))
    assert isinstance(now.request, (OpenWatch, ListPage))
    assert now.request.wait == 17


class Server:
    """A server's history of one resource, as far as a reflector can tell."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, Obj] = {}
        self.history: list[tuple[int, WatchEvent]] = []
        self.oldest = 0

    def put(self, name: str) -> None:
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.version += 1
        self.objects[name] = config_map(name, uid=f"uid-{name}", version=self.version)
        self.history.append((self.version, WatchEvent(kind, self.objects[name])))

    def delete(self, name: str) -> None:
        if (old := self.objects.pop(name, None)) is not None:
            self.version += 1
            gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
            self.history.append((self.version, WatchEvent("DELETED", gone)))

    def compact(self) -> None:
        self.oldest = self.version
        self.history.clear()


class ReflectorAgainstServer(RuleBasedStateMachine):
    """Whatever goes wrong between them, the store is what the server was at the version that the reflector is at."""

    NAMES = st.sampled_from("abc")
    store_type: type[Store] = Store
    step: Callable[[State, Any], Step] = staticmethod(step)

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.store = self.store_type()
        self.store.register(CONFIG_MAP, scopes=(None,))
        self.reflector = Reflector(client=None, store=self.store, resource=CONFIG_MAP)  # type: ignore[arg-type]
        self.now = self.step(State(), Began())
        self.tell()
        self.pages: list[list[Obj]] = []
        self.listed = ""
        self.stream: list[WatchEvent] | None = None
        self.position = 0
        self.past: dict[str, dict[str, str]] = {}

    def tell(self) -> None:
        self.reflector._tell(self.now.effects)

    def happen(self, happened: Any) -> None:
        self.now = self.step(self.now.state, happened)
        self.tell()
        if not isinstance(self.now.request, ReadOn):
            self.stream = None

    def remember(self) -> None:
        self.past[str(self.server.version)] = {
            name: obj["metadata"]["resourceVersion"] for name, obj in self.server.objects.items()
        }

    @rule(name=NAMES)
    def somebody_writes(self, name: str) -> None:
        self.remember()
        self.server.put(name)

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        self.remember()
        self.server.delete(name)

    @rule()
    def history_is_compacted(self) -> None:
        self.remember()
        self.server.compact()

    @rule(times=st.integers(1, 6))
    def the_server_answers(self, times: int) -> None:
        for _ in range(times):
            self.answer()

    def answer(self) -> None:
        self.remember()
        request = self.now.request
        match request:
            case OpenWatch(initial=True):
                objects = [WatchEvent("ADDED", obj) for obj in self.server.objects.values()]
                self.stream = [*objects, bookmark(str(self.server.version), end=True)]
                self.position = self.server.version
                self.read()
            case OpenWatch(version=version):
                if int(version) < self.server.oldest:
                    self.happen(Failed(Gone("compacted", status=410)))
                    return
                self.stream, self.position = [], int(version)
                self.read()
            case ListPage(continue_token=""):
                objects = list(self.server.objects.values())
                self.pages = [objects[:1], objects[1:]]
                self.listed = str(self.server.version)
                self.happen(Page(self.pages[0], "1", self.listed))
            case ListPage():
                self.happen(Page(self.pages[1], "", self.listed))
            case ReadOn():
                self.read()

    def read(self) -> None:
        assert self.stream is not None
        if not self.stream:
            if self.position < self.server.oldest:
                self.happen(error(410, "compacted"))
                return
            self.stream = [event for version, event in self.server.history if version > self.position]
            self.position = self.server.version
        if self.stream:
            self.happen(self.stream.pop(0))
        elif self.now.state.phase is Phase.WATCHING:
            self.happen(bookmark(str(self.position)))

    @rule()
    def the_connection_breaks(self) -> None:
        self.happen(Failed(Unreachable("reset")))

    @rule()
    def the_server_closes(self) -> None:
        if isinstance(self.now.request, (ReadOn, OpenWatch)):
            self.happen(Closed(eventful=True))

    @rule()
    def streaming_stops_working(self) -> None:
        if self.now.state.phase is Phase.INIT_STREAM:
            self.happen(error(500, "RequestWatchProgress is disabled"))

    @invariant()
    def the_store_is_some_moment_of_the_server(self) -> None:
        if self.now.state.phase is not Phase.WATCHING:
            return
        self.remember()
        stored = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in self.store.list(CONFIG_MAP)}
        assert stored == self.past[self.now.state.version]

    @invariant()
    def it_asks_from_where_it_is(self) -> None:
        request = self.now.request
        if isinstance(request, OpenWatch) and not request.initial:
            assert request.version == self.now.state.version != ""

    def teardown(self) -> None:
        """Left in peace, it catches up."""
        self.the_server_answers(60)
        assert self.now.state.version == str(self.server.version)
        assert self.store.synced(CONFIG_MAP)


ReflectorAgainstServer.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, database=None, derandomize=True
)
TestReflectorAgainstServer = ReflectorAgainstServer.TestCase


class Script:
    """A client that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def list_page(self, _resource: object, **options: Any) -> Page:
        self.asked.append(("list", options))
        answer = self.next()
        if isinstance(answer, KubeError):
            raise answer
        assert isinstance(answer, Page)
        return answer

    async def watch(self, _resource: object, **options: Any) -> AsyncGenerator[WatchEvent]:
        self.asked.append(("watch", options))
        answer = self.next()
        if isinstance(answer, KubeError):
            raise answer
        for event in answer:
            if isinstance(event, KubeError):
                raise event
            yield event
        if not self.answers:
            await asyncio.Event().wait()

    def next(self) -> Any:
        if not self.answers:
            raise Unreachable("the script is over")
        return self.answers.pop(0)


@pytest.fixture
def reflect() -> Callable[..., tuple[Reflector, Store, Script, list[float]]]:
    def make(*answers: Any, **options: Any) -> tuple[Reflector, Store, Script, list[float]]:
        store, script = Store(), Script(*answers)
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await asyncio.sleep(0)

        made = Reflector(client=script, store=store, resource=CONFIG_MAP, sleep=sleep, spread=lambda: 0.0, **options)
        return made, store, script, slept

    return make


async def test_the_driver_streams_then_relists_after_gone(reflect: Callable[..., Any]) -> None:
    reflector, store, script, _ = reflect(
        [WatchEvent("ADDED", config_map("a")), WatchEvent("ADDED", config_map("b")), bookmark("5", end=True),
         WatchEvent("MODIFIED", config_map("a", version=6)), error(410)],
        [WatchEvent("ADDED", config_map("a", version=8)), bookmark("9", end=True)],
    )  # fmt: skip
    task = asyncio.create_task(reflector.run())
    await until(lambda: reflector.lists == 2)
    assert [obj["metadata"]["resourceVersion"] for obj in store.list(CONFIG_MAP)] == ["8"]
    assert [options["initial"] for _, options in script.asked] == [True, True]
    task.cancel()


async def test_the_driver_falls_back_resumes_and_waits(reflect: Callable[..., Any]) -> None:
    reflector, store, script, slept = reflect(
        Invalid("no such parameter", status=422),
        Page([config_map("a")], "more", "5"),
        Unreachable("reset"),
        Page([config_map("b")], "", "5"),
        [WatchEvent("ADDED", config_map("c", version=6)), Unreachable("cut")],
        [WatchEvent("DELETED", config_map("a", version=7))],
        namespace="default",
        label_selector="x=y",
        page_size=1,
    )
    task = asyncio.create_task(reflector.run())
    await until(lambda: len(store.list(CONFIG_MAP)) == 2 and not script.answers)
    assert {obj["metadata"]["name"] for obj in store.list(CONFIG_MAP)} == {"b", "c"}
    lists = [options for kind, options in script.asked if kind == "list"]
    assert [(o["continue_token"], o["limit"], o["namespace"]) for o in lists] == [
        ("", 1, "default"),
        ("more", 1, "default"),
        ("more", 1, "default"),
    ]
    watches = [options for kind, options in script.asked if kind == "watch"]
    assert [(o["resource_version"], o["initial"], o["label_selector"]) for o in watches] == [
        ("", True, "x=y"),
        ("5", False, "x=y"),
        ("6", False, "x=y"),
    ]
    assert slept == [0.2, 0.1]
    task.cancel()
