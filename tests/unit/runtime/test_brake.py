"""The brake: engages when most attempts fail, lets a few through, and releases when they succeed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime.brake import Brake
from tests.unit.runtime.test_queue import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def brake(clock: Clock) -> Brake:
    return Brake(clock=clock, limit=0.5, memory=20, rate=5.0, burst=5)


def engage(brake: Brake) -> None:
    while not brake.engaged:
        brake.note(failed=True)


def starts_within(brake: Brake, clock: Clock, seconds: float) -> int:
    """How many attempts may start in that time, if each starts as soon as it may."""
    over, count = clock.now + seconds, 0
    while clock.now + brake.wait() <= over:
        clock.now += brake.wait()
        brake.start()
        count += 1
        if count > 10_000:
            break
    clock.now = over
    return count


def test_it_lets_everything_through_as_long_as_most_succeeds(brake: Brake, clock: Clock) -> None:
    for number in range(1000):
        brake.note(failed=number % 5 < 2)
    assert not brake.engaged
    assert starts_within(brake, clock, 0.0) > 10_000


def test_a_few_failures_right_at_the_start_engage_nothing(brake: Brake) -> None:
    for _ in range(10):
        brake.note(failed=True)
    assert not brake.engaged


def test_a_row_of_failures_engages_it_and_then_only_a_few_start(brake: Brake, clock: Clock) -> None:
    engage(brake)
    assert 50 <= starts_within(brake, clock, 10) <= 56


def test_what_succeeds_again_releases_it(brake: Brake, clock: Clock) -> None:
    for _ in range(1000):
        brake.note(failed=True)
    assert brake.engaged
    for _ in range(20):
        brake.note(failed=False)
    assert not brake.engaged
    assert brake.wait() == 0


@given(st.lists(st.booleans(), max_size=200))
def test_whatever_happens_a_run_of_successes_releases_it_and_one_of_failures_engages_it(results: list[bool]) -> None:
    brake = Brake(clock=Clock())
    for failed in results:
        brake.note(failed=failed)
    for _ in range(20):
        brake.note(failed=True)
    assert brake.engaged
    for _ in range(20):
        brake.note(failed=False)
    assert not brake.engaged


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1.5}, {"memory": 0}])
def test_a_brake_that_cannot_work_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cannot work"):
        Brake(clock=Clock(), **options)  # type: ignore[arg-type]
