"""A third of everything fails, in every way at once, while people go on working."""

import itertools
import random
import time
from dataclasses import dataclass

import pytest

from rig.api import Object
from tests.faultproxy import (
    READS,
    WRITES,
    CloseAfter,
    Duplicate,
    Events,
    Hang,
    InStreamError,
    OneOf,
    Postpone,
    Requests,
    Reset,
    Rule,
    Swap,
    Trickle,
    When,
    conflict,
    gateway_timeout,
    gone,
    internal_error,
    too_many_requests,
    unavailable,
)
from tests.faultproxy.scene import Scene
from tests.faultproxy.toy import toy

TOYS = 8
EDITS_PER_SECOND = 4.0
SHARE = 0.3
SECONDS_TO_CONVERGE = 30.0

OF_REQUESTS = OneOf(
    (
        conflict(),
        too_many_requests(1),
        internal_error(),
        unavailable(),
        gateway_timeout(),
        Reset(When.BEFORE_SEND),
        Reset(When.AFTER_SEND),
        Reset(When.MID_BODY),
        Trickle(bytes_per_second=2000),
    )
)
OF_WATCHES = OneOf((gone(), unavailable(), too_many_requests(1), Reset(When.AFTER_HEADERS)))
STORM = (
    Rule(Requests(verbs={"watch"}), OF_WATCHES, probability=SHARE),
    Rule(Requests(without={"leases.coordination.k8s.io"}), OF_REQUESTS, probability=SHARE),
    Rule(Events(), CloseAfter(), probability=SHARE / 6),
    Rule(Events(), InStreamError(), probability=SHARE / 6),
    Rule(Events(), Duplicate(), probability=SHARE / 6),
    Rule(Events(), Swap(), probability=SHARE / 6),
    Rule(Events(), Postpone(0.5), probability=SHARE / 6),
)

# A request that hangs costs its whole time limit: not in the last seconds, or they would be all that is measured after
# the storm. Watches that die in silence have a limit of their own, and a test of their own.
HANGS = Rule(Requests(verbs=READS - {"watch"} | WRITES), Hang(), probability=0.01)
SECONDS_WITHOUT_HANGS = 10.0


@dataclass
class People:
    """Change specs and spoil children at a steady pace."""

    scene: Scene
    wanted: dict[str, Object]
    dice: random.Random

    def work(self, seconds: float) -> None:
        began = time.monotonic()
        for number in itertools.count(1):
            self.act(number)
            pause = began + number / EDITS_PER_SECOND - time.monotonic()
            if time.monotonic() - began > seconds:
                return
            time.sleep(max(0.0, pause))

    def act(self, number: int) -> None:
        name = self.dice.choice(sorted(self.wanted))
        match number % 4:
            case 0:
                self.scene.api.delete(self.scene.path("Service", name))
            case 1:
                spoilt = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": name},
                    "data": {"text": "spoilt"},
                }
                self.scene.api.apply(spoilt, namespace=self.scene.namespace)
            case _:
                self.wanted[name] = toy(name, text=f"edit {number}", replicas=number % 3 + 1, pages=number % 3)
                self.scene.api.apply(self.wanted[name], namespace=self.scene.namespace)


def weather(scene: Scene, *, calm_seconds: float, storm_seconds: float) -> None:
    wanted = {f"t{number}": toy(f"t{number}") for number in range(TOYS)}
    scene.started(list(wanted.values()))

    mark = scene.proxy.mark
    People(scene, wanted, random.Random(1)).work(calm_seconds)
    scene.settle(list(wanted.values()))
    calm = (scene.proxy.mark - mark) * storm_seconds / calm_seconds

    mark = scene.proxy.mark
    people = People(scene, wanted, random.Random(1))
    scene.proxy.use(HANGS, *STORM, seed=7)
    people.work(storm_seconds - SECONDS_WITHOUT_HANGS)
    scene.proxy.use(*STORM, seed=8)
    people.work(SECONDS_WITHOUT_HANGS)
    stormy = [entry for entry in scene.proxy.log if entry.request.number > mark]
    scene.proxy.calm()
    over = time.monotonic()
    scene.settle(list(wanted.values()), seconds=SECONDS_TO_CONVERGE)
    took = time.monotonic() - over

    faults = sum(bool(entry.fault) for entry in stormy)
    asked = scene.proxy.mark - mark
    print(f"{asked} requests ({calm:.0f} in calm weather), {faults} faults, converged {took:.1f} s after the storm")
    assert faults > 0.2 * len(stormy), f"only {faults} of {len(stormy)} requests met a fault"
    assert asked <= 2 * calm, f"{asked} requests in the storm, {calm:.0f} in the calm"
    assert scene.toy.running
    assert scene.toy.tracebacks() == []
    assert scene.proxy.log.careless_deletes() == []
    scene.toy.stop()
    assert scene.toy.counts()["noop"] == 0


def test_after_a_storm_everything_converges_without_having_asked_more_than_twice(scene: Scene) -> None:
    weather(scene, calm_seconds=10, storm_seconds=60)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_after_a_storm_of_ten_minutes_everything_converges(scene: Scene) -> None:
    weather(scene, calm_seconds=60, storm_seconds=600)
