"""Limits in whole numbers: never one too many, never one too few, and a wait that is exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api.policy import Bucket, RateLimit, ToolLimit
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.ratelimit import Buckets, Rate, RateLimiter

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def limiter(clock: Clock, **limits: object) -> RateLimiter:
    return RateLimiter(RateLimit(**limits), clock=clock)  # type: ignore[arg-type]


def granted(limits: RateLimiter, count: int, principal: str = "a", tool: str | None = None) -> int:
    return sum(limits.check(principal, tool) is None for _ in range(count))


def test_a_full_bucket_gives_all_its_tokens_at_once_and_then_one_at_a_time():
    clock = Clock()
    limits = limiter(clock, principal=Bucket(tokens=10, per=1))
    assert granted(limits, 15) == 10
    clock.sleep(0.1)
    assert granted(limits, 5) == 1
    clock.sleep(0.099999999)
    assert granted(limits, 5) == 0
    clock.sleep(0.000000001)
    assert granted(limits, 5) == 1
    clock.sleep(3600)
    assert granted(limits, 15) == 10


@pytest.mark.parametrize(
    ("tokens", "per"), [(10, 1), (3, 1), (7, 3), (1, 60), (60, 60), (999, 0.7), (1_000_000, 86400)]
)
def test_no_rate_is_ever_rounded(tokens, per):
    clock = Clock()
    limits = limiter(clock, principal=Bucket(tokens=tokens, per=per))
    assert granted(limits, min(tokens, 5000) + 1) == min(tokens, 5000) + (1 if tokens > 5000 else 0)


@given(
    st.integers(1, 20),
    st.integers(1, 100),
    st.lists(st.integers(0, 3 * SECOND), max_size=80),
)
def test_no_window_ever_holds_more_than_a_bucket_and_what_flowed_in(tokens, per, pauses):
    clock = Clock()
    limits = limiter(clock, principal=Bucket(tokens=tokens, per=per))
    times = []
    for pause in pauses:
        clock.now += pause
        if limits.check("a") is None:
            times.append(clock.now)
    for first in range(len(times)):
        for last in range(first, len(times)):
            # exact: n requests within t nanoseconds need n <= tokens + t * tokens / per
            span = times[last] - times[first]
            assert (last - first + 1 - tokens) * per * SECOND <= span * tokens


@given(st.integers(1, 20), st.integers(1, 100), st.lists(st.integers(0, SECOND), min_size=1, max_size=60))
def test_the_wait_that_is_told_is_enough_and_a_second_less_is_not(tokens, per, pauses):
    clock = Clock()
    limits = limiter(clock, shared=Bucket(tokens=tokens, per=per))
    for pause in pauses:
        clock.now += pause
        said = limits.check("a")
        if said is not None:
            wait = int(dict(said.headers)["Retry-After"])
            assert wait >= 1
            refused_at = clock.now
            clock.now = refused_at + (wait - 1) * SECOND
            assert limits.check("a") is not None
            clock.now = refused_at + wait * SECOND
            assert limits.check("a") is None


def test_a_refusal_says_which_limit_and_when_to_come_back():
    clock = Clock()
    limits = limiter(
        clock,
        shared=Bucket(tokens=100),
        principal=Bucket(tokens=50),
        tools=(ToolLimit(tool="slow", shared=Bucket(tokens=2, per=60), principal=Bucket(tokens=1, per=30)),),
    )
    assert limits.check("a", "slow") is None
    said = limits.check("a", "slow")
    assert said == Refusal(
        429, "too many requests for tool slow and this client: try again in 30 s", 429, (("Retry-After", "30"),)
    )
    assert limits.check("b", "slow") is None
    said = limits.check("c", "slow")
    assert said is not None
    assert said.message == "too many requests for tool slow: try again in 30 s"
    assert limits.check("a", "fast") is None
    assert limits.refused == 2


def test_a_request_that_one_limit_refuses_takes_nothing_from_the_others():
    clock = Clock()
    limits = limiter(
        clock, shared=Bucket(tokens=3, per=60), tools=(ToolLimit(tool="x", shared=Bucket(tokens=1, per=60)),)
    )
    assert granted(limits, 10, tool="x") == 1
    assert granted(limits, 10, tool="y") == 2


def test_each_client_has_its_own_bucket():
    clock = Clock()
    limits = limiter(clock, principal=Bucket(tokens=2, per=1))
    assert [granted(limits, 5, who) for who in ("a", "b", "a", "c")] == [2, 2, 0, 2]


def test_nothing_configured_refuses_nothing():
    assert granted(limiter(Clock()), 1000) == 1000


def test_memory_is_bounded_and_inventing_names_wins_nothing():
    clock = Clock()
    limits = limiter(clock, principal=Bucket(tokens=10, per=10), max_principals=16)
    everybody = [f"p{n}" for n in range(16)]
    for who in everybody:
        assert granted(limits, 20, who) == 10
    # no full bucket can make room: all newcomers together share one
    assert sum(granted(limits, 1, f"invented{n}") for n in range(1000)) == 10
    assert granted(limits, 5, "p0") == 0, "a flood of names must not refill anybody's bucket"
    assert len(limits._by_principal._full_at) == 16
    assert limits._by_principal.overflowed == 10
    clock.sleep(10)
    assert sum(granted(limits, 1, f"later{n}") for n in range(1000)) > 10
    assert len(limits._by_principal._full_at) == 16


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, SECOND)), max_size=200))
def test_a_bounded_table_never_grants_one_client_more_than_an_unbounded_one(requests):
    rate = Rate(Bucket(tokens=3, per=5))
    small, large = Buckets(rate, bound=4), Buckets(rate, bound=10_000)
    now = 0
    for who, pause in requests:
        now += pause
        key = str(who)
        if small.wait(key, now) <= 0:
            assert large.wait(key, now) <= 0
            small.take(key, now)
            large.take(key, now)
        assert len(small) <= 4
