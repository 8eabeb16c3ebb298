"""Three replicas, one leader: who takes over when, and what a leader does that does not know yet that it is none."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from rig.api import wait_for
from tests.faultproxy import Exchange, Requests
from tests.faultproxy.scene import Scene
from tests.faultproxy.toy import toy

REPLICAS = 3
QUICK = "4,2.5,0.5"
QUICK_DURATION = 4.0
LEASES = Requests(verbs={"create", "update"}, resources={"leases.coordination.k8s.io"})

Scenes = Callable[..., Scene]


def claims(scene: Scene, replica: int, *, since: int = 0) -> list[Exchange]:
    """The writes by which a replica took or renewed the lease, after request number `since`."""
    return [entry for entry in scene.proxies[replica].log.matching(LEASES, since=since) if entry.done and entry.ended]


def leader(scene: Scene) -> int:
    """The replica that renewed last."""
    return max(range(REPLICAS), key=lambda replica: max((e.ended for e in claims(scene, replica)), default=0.0))


def took_over(scene: Scene, since: float, *, but: int) -> tuple[int, float]:
    """The replica that claims the lease after that time, and when it does."""

    def found() -> tuple[int, float] | None:
        later = [
            (entry.ended, replica)
            for replica in range(REPLICAS)
            if replica != but
            for entry in claims(scene, replica)
            if entry.ended > since
        ]
        return (min(later)[1], min(later)[0]) if later else None

    return wait_for("another leader", found, seconds=60)


@dataclass
class Author:
    """Changes the spec of a toy without pause, so that a leader always has something to write."""

    scene: Scene
    edits: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        while not self._over.wait(0.05):
            self.edits += 1
            self.scene.api.apply(toy("t0", text=f"edit {self.edits}"), namespace=self.scene.namespace)

    @contextmanager
    def working(self) -> Iterator[None]:
        thread = threading.Thread(target=self.work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def settle(self) -> None:
        at_rest = [toy("t0", text="at rest")]
        self.scene.want(at_rest)
        self.scene.settle(at_rest)


def test_replicas_wait_while_one_leads(new_scene: Scenes) -> None:
    scene = new_scene(replicas=REPLICAS, options=("--lease", "default"))
    scene.started([toy("t0")])
    busy = [bool(proxy.log.writes()) for proxy in scene.proxies]
    assert sum(busy) == 1
    assert busy[leader(scene)]


def test_a_killed_leader_is_replaced_within_twelve_seconds(new_scene: Scenes) -> None:
    scene = new_scene(replicas=REPLICAS, options=("--lease", "default"))
    scene.started([toy("t0")])
    old = leader(scene)
    scene.toys[old].kill()
    killed = time.monotonic()
    _, at = took_over(scene, killed, but=old)
    print(f"took over {at - killed:.1f} s after the kill")
    assert at - killed <= 12
    scene.want([toy("t0", text="after")])
    scene.settle([toy("t0", text="after")])


def test_a_leader_that_stops_hands_over_within_two_seconds(new_scene: Scenes) -> None:
    scene = new_scene(replicas=REPLICAS, options=("--lease", "default"))
    scene.started([toy("t0")])
    old = leader(scene)
    told = time.monotonic()
    scene.toys[old].stop()
    _, at = took_over(scene, told, but=old)
    print(f"took over {at - told:.1f} s after the leader was told to stop")
    assert at - told <= 2
    scene.want([toy("t0", text="after")])
    scene.settle([toy("t0", text="after")])


def halt_the_leader(scene: Scene, seconds: float) -> bool:
    """Stops the leader for so long in the middle of its work; says whether another one took over."""
    revive(scene)
    author = Author(scene)
    marks = [proxy.mark for proxy in scene.proxies]

    def at_work() -> list[int]:
        # Not the one that led a moment ago: on a busy machine that may have changed.
        return [r for r, proxy in enumerate(scene.proxies) if any(e.done for e in proxy.log.writes(since=marks[r]))]

    with author.working():
        (old, *_) = wait_for("a leader to be at work", at_work, seconds=60, meanwhile=lambda: revive(scene))
        process, proxy, mark = scene.toys[old], scene.proxies[old], marks[old]
        process.send(signal.SIGSTOP)
        halted = time.monotonic()
        time.sleep(seconds)
        process.send(signal.SIGCONT)
        continued = time.monotonic()

        def knows() -> bool:
            return not process.running or any(e.began > continued for e in claims(scene, old, since=mark))

        wait_for("the one that was halted to find out whether it leads", knows, seconds=60)
        if replaced := not process.running:
            # It ended by itself, in order to be started anew as what it is.
            assert process.wait(seconds=0) == 1
            _, at = took_over(scene, halted, but=old)
            late = [e for e in proxy.log.writes(since=mark) if e.began > at]
            assert [str(entry) for entry in late if entry.done] == []
        else:
            others = [e for r in range(REPLICAS) if r != old for e in claims(scene, r) if e.ended > halted]
            assert others == []
    revive(scene)
    author.settle()
    return replaced


def revive(scene: Scene) -> None:
    """As a kubelet does with what has ended: who lost the lease, also for want of CPU time, said so and is gone."""
    for process in scene.toys:
        if not process.running:
            assert process.wait(seconds=0) == 1
            process.start()


def test_a_leader_that_was_halted_does_not_write_after_another_took_over(new_scene: Scenes) -> None:
    scene = new_scene(replicas=REPLICAS, options=("--lease", QUICK))
    scene.started([toy("t0")])
    halt_the_leader(scene, 1.0)
    assert halt_the_leader(scene, QUICK_DURATION - 0.5), "what is past its fence does not wait to be replaced"
    assert halt_the_leader(scene, QUICK_DURATION + 3.0)


WRITES_OF_A_CREATION = 4
TEXTS = ("one", "two", "three")


@dataclass(frozen=True)
class Late:
    """What became of a write that left its process after another one had taken over."""

    write: Exchange
    repairs: int


def send_late(scene: Scene, number: int) -> Late:
    """Halts the leader after its last check and before the first byte of that write; it wakes up deposed."""
    old, wanted = scene.toys[0], [toy("t0", text=TEXTS[2], replicas=2)]
    scene.want([toy("t0", text=TEXTS[0])])
    old.start("--stop-before-write", str(number))
    if number > WRITES_OF_A_CREATION:
        scene.settle([toy("t0", text=TEXTS[0])])
        scene.want([toy("t0", text=TEXTS[1])])
    old.wait_stopped()
    for process in scene.toys[1:]:
        process.start()
    took_over(scene, time.monotonic(), but=0)
    scene.want(wanted)
    before = scene.settle(wanted)
    marks = [proxy.mark for proxy in scene.proxies]
    old.send(signal.SIGCONT)
    assert old.wait(seconds=60) == 1
    scene.proxy.log.wait("the late write", lambda log: any(e.upstream for e in log.writes(since=marks[0])), seconds=60)
    after = scene.settle(wanted)
    assert after.uids == before.uids
    (write,) = scene.proxy.log.writes(since=marks[0])
    pairs = list(zip(scene.proxies, marks, strict=True))[1:]
    return Late(write, sum(len(proxy.log.writes(since=mark)) for proxy, mark in pairs))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(1, id="a creation"),
        pytest.param(2, id="another creation", marks=pytest.mark.soak),
        pytest.param(WRITES_OF_A_CREATION, id="the status of a creation", marks=pytest.mark.soak),
        pytest.param(WRITES_OF_A_CREATION + 1, id="a child"),
        pytest.param(WRITES_OF_A_CREATION + 2, id="another child", marks=pytest.mark.soak),
        pytest.param(WRITES_OF_A_CREATION + 3, id="the status"),
    ],
)
def test_a_write_that_leaves_too_late_has_no_effect(new_scene: Scenes, number: int) -> None:
    late = send_late(new_scene(replicas=REPLICAS, options=("--lease", QUICK)), number)
    assert late.write.upstream == 409, str(late.write)
    assert late.repairs == 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_halts_and_never_two_writers(new_scene: Scenes) -> None:
    scene = new_scene(replicas=REPLICAS, options=("--lease", QUICK))
    scene.started([toy("t0")])
    dice = random.Random(3)
    replaced = [halt_the_leader(scene, dice.uniform(0.5, 10)) for _ in range(190)]
    replaced += [halt_the_leader(scene, dice.uniform(10, 60)) for _ in range(10)]
    print(f"{sum(replaced)} of {len(replaced)} leaders that were halted were replaced")
    assert all(replaced[190:])
