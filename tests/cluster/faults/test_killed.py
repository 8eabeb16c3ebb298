"""SIGKILL at every single write: the next start comes to the same end, and nothing is done twice."""

import itertools
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from rig.api import Object, wait_for
from tests.faultproxy import Rule, Signal, When, writes
from tests.faultproxy.scene import Scene
from tests.faultproxy.toy import toy

POSITIONS = (When.BEFORE_SEND, When.AFTER_SEND, When.AFTER_RESPONSE)


@dataclass(frozen=True)
class Change:
    """Two sets of specs, and how many writes lead from the one to the other and back, by one toy."""

    name: str
    one: Object
    other: Object
    there: int
    back: int

    def sides(self, toys: int) -> tuple[list[Object], list[Object]]:
        return _many(self.one, toys), _many(self.other, toys)


CHANGES = (
    Change("update", toy("t", text="a"), toy("t", text="b"), there=3, back=3),
    Change("port", toy("t", port=8080), toy("t", port=9090), there=3, back=3),
    Change("scale", toy("t", replicas=1), toy("t", replicas=3), there=2, back=2),
    Change("grow and shrink", toy("t", pages=0), toy("t", pages=2), there=3, back=3),
)
CREATION_WRITES = 4


def _many(one: Object, toys: int) -> list[Object]:
    return [{**one, "metadata": {"name": f"t{number}"}} for number in range(toys)]


def kill_on_the_way(scene: Scene, after: Sequence[Object], *, write: int, when: When) -> None:
    """From a settled namespace with a running toy to `after`, with a death at that write and a new start."""
    before = scene.snapshot().uids
    scene.proxy.use(Rule(writes(), Signal(signal.SIGKILL, when), nth=write))
    scene.want(after)
    scene.toy.wait_killed()
    scene.proxy.calm()
    scene.toy.start()
    found = scene.settle(after)
    survivors = before.keys() & found.uids.keys()
    assert {name: found.uids[name] for name in survivors} == {name: before[name] for name in survivors}
    assert scene.toy.tracebacks() == []
    assert scene.proxy.log.careless_deletes() == []


@pytest.mark.timeout(900)  # nine deaths, nine new starts
@pytest.mark.parametrize(
    "change",
    [pytest.param(c, id=c.name, marks=[pytest.mark.soak] if c.name == "port" else []) for c in CHANGES],
)
def test_a_death_at_any_write_of_a_change_leaves_no_trace(scene: Scene, change: Change) -> None:
    one, other = change.sides(1)
    scene.started(one)
    sides = itertools.cycle([(other, change.there), (one, change.back)])
    for write in range(1, max(change.there, change.back) + 1):
        for when in POSITIONS:
            # There and back again, so that every write is met in both directions over the three positions.
            after, length = next(sides)
            mark = scene.proxy.mark
            kill_on_the_way(scene, after, write=min(write, length), when=when)
            done = [entry for entry in scene.proxy.log.writes(since=mark) if entry.done]
            assert len(done) == length, f"{change.name}, write {write}, {when}: " + ", ".join(map(str, done))


@pytest.mark.parametrize("when", POSITIONS, ids=lambda when: when.name.lower())
@pytest.mark.parametrize("write", range(1, CREATION_WRITES + 1))
def test_a_death_at_any_write_of_a_creation_leaves_no_trace(scene: Scene, write: int, when: When) -> None:
    wanted = [toy("t0")]
    scene.proxy.use(Rule(writes(), Signal(signal.SIGKILL, when), nth=write))
    scene.want(wanted)
    scene.toy.start().wait_killed()
    scene.proxy.calm()
    scene.toy.start()
    scene.settle(wanted)
    done = [entry for entry in scene.proxy.log.writes() if entry.done]
    assert len(done) == CREATION_WRITES, ", ".join(map(str, done))


@pytest.mark.parametrize("before_the_deletion", [True, False])
def test_a_death_around_a_deletion_leaves_nothing_behind(scene: Scene, before_the_deletion: bool) -> None:
    scene.started([toy("t0"), toy("t1", pages=2)])
    mark = scene.proxy.mark
    if before_the_deletion:
        scene.toy.kill()
    scene.want([])
    if not before_the_deletion:
        scene.toy.kill()
    scene.toy.start()
    # Garbage collection learns of a new kind within 30 s.
    wait_for("everything to be gone", lambda: not scene.snapshot().objects, seconds=60)
    assert scene.proxy.log.writes(since=mark) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", POSITIONS, ids=lambda when: when.name.lower())
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_three_toys_survive_a_death_at_every_write_both_ways(scene: Scene, change: Change, when: When) -> None:
    toys = 3
    one, other = change.sides(toys)
    scene.started(one)
    for write in range(1, toys * max(change.there, change.back) + 1):
        for after, length in ((other, change.there), (one, change.back)):
            kill_on_the_way(scene, after, write=min(write, toys * length), when=when)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", POSITIONS, ids=lambda when: when.name.lower())
def test_three_toys_survive_a_death_at_every_write_of_their_creation(
    new_scene: Callable[..., Scene], when: When
) -> None:
    wanted = _many(toy("t", pages=1), 3)
    for write in range(1, 3 * (CREATION_WRITES + 1) + 1):
        scene = new_scene()
        scene.proxy.use(Rule(writes(), Signal(signal.SIGKILL, when), nth=write))
        scene.want(wanted)
        scene.toy.start().wait_killed()
        scene.proxy.calm()
        scene.toy.start()
        scene.settle(wanted)
        scene.toy.stop()
        scene.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_second_death_right_after_the_first_changes_nothing(new_scene: Callable[..., Scene]) -> None:
    """Every ordered pair of writes of a creation, killed in between the sending and the answer."""
    wanted = [toy("t0", pages=1)]
    length = CREATION_WRITES + 1
    for first, second in itertools.product(range(1, length + 1), repeat=2):
        if first + second > length:
            continue
        scene = new_scene()
        scene.want(wanted)
        for write in (first, second):
            scene.proxy.use(Rule(writes(), Signal(signal.SIGKILL, When.AFTER_SEND), nth=write))
            scene.toy.start().wait_killed()
        scene.proxy.calm()
        scene.toy.start()
        scene.settle(wanted)
        scene.toy.stop()
        scene.close()
