"""TokenBucket: never more than the burst at once, never more than the rate for long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.kube.bucket import TokenBucket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_burst_is_free_and_then_the_rate_counts() -> None:
    bucket = TokenBucket(rate=10, burst=2, clock=Clock())
    assert [round(bucket.reserve(), 3) for _ in range(5)] == [0, 0, 0.1, 0.2, 0.3]


def test_time_brings_tokens_back_up_to_the_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=1, burst=2, clock=clock)
    for _ in range(2):
        bucket.reserve()
    clock.now = 100
    assert [bucket.reserve() for _ in range(3)] == [0, 0, 1]


def test_a_rate_of_zero_is_no_limit() -> None:
    bucket = TokenBucket(rate=0, burst=1, clock=Clock())
    assert {bucket.reserve() for _ in range(1000)} == {0.0}


@pytest.mark.parametrize(("rate", "burst"), [(-1, 5), (5, 0)])
def test_limits_that_allow_nothing_are_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="allow nothing"):
        TokenBucket(rate=rate, burst=burst, clock=Clock())


@given(pauses=st.lists(st.floats(0, 3), max_size=60), rate=st.floats(0.5, 20), burst=st.integers(1, 10))
def test_in_no_window_is_there_more_than_allowed(pauses: list[float], rate: float, burst: int) -> None:
    clock = Clock()
    bucket = TokenBucket(rate=rate, burst=burst, clock=clock)
    due = []
    for pause in pauses:
        clock.now += pause
        due.append(clock.now + bucket.reserve())
    for first in range(len(due)):
        for last in range(first, len(due)):
            assert last - first + 1 <= burst + rate * (due[last] - due[first]) + 1e-6
