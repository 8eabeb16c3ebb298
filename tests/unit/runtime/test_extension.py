"""Validators and hooks around somebody else's reconciler, as they are called and as they can go wrong."""

from collections.abc import Iterable

import pytest
import structlog

from fairway.kube.errors import Unreachable
from fairway.kube.resource import Obj
from fairway.runtime.controller import Controller
from fairway.runtime.extension import Extension, Hook, dotted_names, load_extensions
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.outcome import Notice, Outcome, Requeue
from fairway.runtime.queue import Backoff
from fairway.runtime.setting import InvalidSetting
from fairway.runtime.store import StoreView
from fairway.runtime.world import World
from tests.unit.runtime.test_controller import running, settle, status
from tests.unit.runtime.toys import CATALOGUE, TOY, toy, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(catalogue=CATALOGUE)


class Diary(Hook):
    """Writes down what it sees; does what the test tells it to."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.put_off: list[Requeue] = []
        self.fail: list[Exception] = []

    async def before(self, obj: Obj, store: StoreView) -> Requeue | None:
        self.pages.append("before")
        return self.put_off.pop() if self.put_off else None

    async def after(self, obj: Obj, outcome: Outcome) -> None:
        if self.fail:
            raise self.fail.pop()
        self.pages.append(f"after {outcome.reason}")


class Events:
    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def record(self, obj: Obj, notice: Notice) -> None:
        self.notices.append(notice)


async def reconcile(obj: Obj, world: World) -> Outcome:
    return Outcome(status={"done": True}, reason="Done")


def only_small(obj: Obj, store: StoreView) -> Iterable[str]:
    if obj["spec"].get("size", 0) > 3:
        yield f"spec.size: {obj['spec']['size']} is more than 3"
    if obj["spec"].get("colour") == "mauve":
        yield "spec.colour: mauve is not for sale"


async def test_hooks_are_called_around_the_reconcile_and_see_its_outcome(world: MemoryWorld) -> None:
    diary = Diary()
    controller = Controller(resource=TOY, reconcile=reconcile)
    controller.extend(extensions=[Extension(hooks=(diary,))])
    world.put(toy())
    async with running(controller, world):
        await until(lambda: status(world))
        await settle(controller)
    assert diary.pages[:2] == ["before", "after Done"]


async def test_a_hook_may_put_the_reconcile_off(world: MemoryWorld) -> None:
    diary = Diary()
    diary.put_off = [Requeue(0.01, "Maintenance")]
    controller = Controller(resource=TOY, reconcile=reconcile)
    controller.extend(extensions=[Extension(hooks=(diary,))])
    world.put(toy())
    async with running(controller, world):
        await until(lambda: status(world))
        await settle(controller)
    assert diary.pages[:3] == ["before", "before", "after Done"]


async def test_what_goes_wrong_in_a_hook_is_tried_again(world: MemoryWorld) -> None:
    diary = Diary()
    diary.fail = [ZeroDivisionError(), Unreachable("the inventory is away")]
    controller = Controller(resource=TOY, reconcile=reconcile, backoff=Backoff(base=0.001))
    controller.extend(extensions=[Extension(hooks=(diary,))])
    world.put(toy())
    with structlog.testing.capture_logs() as logs:
        async with running(controller, world):
            await until(lambda: "after Done" in diary.pages)
            await settle(controller)
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == [
        "reconcile will be retried",
        "reconcile failed",
    ]


async def test_an_object_that_validators_refuse_is_not_reconciled_and_all_they_say_is_told(world: MemoryWorld) -> None:
    events = Events()
    controller = Controller(resource=TOY, reconcile=reconcile)
    controller.extend(extensions=[Extension(validators=(only_small,))])
    world.put(toy(size=5, colour="mauve"))
    async with running(controller, world, recorder=events):
        await until(lambda: events.notices)
        await settle(controller)
        assert status(world) is None
        note = "spec.size: 5 is more than 3; spec.colour: mauve is not for sale"
        assert events.notices == [Notice("Refused", note, type="Warning", action="Validate")]
        world.put(toy(size=2))
        await until(lambda: status(world) == {"done": True})


async def test_the_kind_decides_what_becomes_of_a_refused_object(world: MemoryWorld) -> None:
    async def refuse(obj: Obj, world: World, problems: Iterable[str]) -> Outcome:
        return Outcome(status={"wrong": list(problems)})

    controller = Controller(resource=TOY, reconcile=reconcile, refuse=refuse)
    controller.extend(extensions=[Extension(validators=(only_small,))])
    world.put(toy(size=5))
    async with running(controller, world):
        await until(lambda: status(world) == {"wrong": ["spec.size: 5 is more than 3"]})


async def test_an_extension_for_another_kind_is_not_asked(world: MemoryWorld) -> None:
    controller = Controller(resource=TOY, reconcile=reconcile)
    controller.extend(extensions=[Extension(kind="Train", validators=(only_small,))])
    world.put(toy(size=5))
    async with running(controller, world):
        await until(lambda: status(world) == {"done": True})


NOTHING = Extension()


def test_extensions_are_loaded_by_name() -> None:
    assert load_extensions([f"{__name__}:NOTHING"]) == (NOTHING,)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module:x", "No module named 'no'; is it installed in this image?"),
        ("json:x", "the module json has no x"),
        ("json:dumps", "is a function, not an Extension"),
    ],
)
def test_an_extension_that_is_none_is_one_line(name: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_extensions([name])
    assert str(raised.value) == f"extension {name}: {says}"


@pytest.mark.parametrize("text", ["a", "a:", ":b", "a:b c", "a/b:c", "a:b.c"])
def test_text_that_names_no_extension_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write package\.module:name"):
        dotted_names(text)
    assert dotted_names("a.b:c, d:e") == ("a.b:c", "d:e")
