"""Queue: deduplication, timers, backoff; and a model that nothing is lost or doubled in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairway.runtime.queue import Backoff, Queue, Taken


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue[str]:
    return Queue(clock=clock, spread=lambda: 0.0)


def drain(queue: Queue[str]) -> list[str]:
    keys = []
    while (taken := queue.take()) is not None:
        keys.append(taken.key)
        queue.done(taken.key)
    return keys


def test_keys_come_out_in_order_and_once(queue: Queue[str]) -> None:
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert queue.depth == 3
    assert drain(queue) == ["a", "b", "c"]


def test_a_key_added_while_in_hand_comes_again_after_done(queue: Queue[str]) -> None:
    queue.add("a")
    assert queue.take() == Taken("a", 0.0)
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert drain(queue) == ["a"]


def test_a_delayed_key_comes_when_it_is_due(queue: Queue[str], clock: Clock) -> None:
    queue.add_after("a", 5)
    assert queue.take() is None
    assert queue.next_due() == 5
    clock.now += 5
    assert queue.next_due() == 0
    assert drain(queue) == ["a"]
    assert queue.next_due() is None


def test_the_earliest_of_several_timers_wins_and_fires_once(queue: Queue[str], clock: Clock) -> None:
    for delay in (9, 5, 7):
        queue.add_after("a", delay)
    assert queue.next_due() == 5
    clock.now += 20
    assert drain(queue) == ["a"]
    assert queue.next_due() is None


def test_no_delay_is_an_add(queue: Queue[str]) -> None:
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert drain(queue) == ["a", "b"]


def test_retries_back_off_until_forgotten(queue: Queue[str]) -> None:
    assert [round(queue.retry("a"), 3) for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert queue.failures("a") == 4
    queue.forget("a")
    assert queue.retry("a") == 0.005


def test_a_retry_waits_at_least_as_long_as_asked(queue: Queue[str]) -> None:
    assert queue.retry("a", at_least=7) == 7


def test_all_retries_together_pass_one_limit(clock: Clock) -> None:
    queue: Queue[int] = Queue(clock=clock, retry_rate=10, retry_burst=5, spread=lambda: 0.0)
    delays = [queue.retry(number) for number in range(25)]
    assert delays[:5] == [0.005] * 5
    assert delays[-1] == pytest.approx(2.0)


def test_the_time_in_line_is_measured(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    clock.now += 3
    assert queue.take() == Taken("a", 3.0)


def test_it_says_when_something_became_ready(clock: Clock) -> None:
    rang: list[float] = []
    queue: Queue[str] = Queue(clock=clock, on_ready=lambda: rang.append(clock.now))
    queue.add("a")
    queue.add("a")
    assert len(rang) == 1
    queue.add_after("b", 10)
    queue.add_after("c", 20)
    assert len(rang) == 2, "a later timer changes nothing for who waits for the first"
    queue.add_after("d", 5)
    assert len(rang) == 3
    taken = queue.take()
    assert taken is not None
    queue.add("a")
    assert len(rang) == 3
    queue.done("a")
    assert len(rang) == 4


def test_being_overtaken_backs_off_but_takes_nothing_from_the_shared_limit(clock: Clock) -> None:
    queue: Queue[int] = Queue(clock=clock, backoff=Backoff(base=0.01), retry_rate=1, retry_burst=1, spread=lambda: 0.0)
    assert [queue.overtaken(1) for _ in range(3)] == [0.01, 0.02, 0.04]
    assert not queue.brake.engaged
    assert queue.retry(2) == 0.01


def test_while_most_attempts_fail_only_a_few_may_start(clock: Clock) -> None:
    queue: Queue[int] = Queue(clock=clock, spread=lambda: 0.0)
    for key in range(100):
        queue.add(key)
    taken = 0
    while (found := queue.take()) is not None:
        taken += 1
        queue.retry(found.key)
        queue.done(found.key)
    assert taken < 30
    assert queue.next_due() == pytest.approx(queue.brake.wait())
    assert 0 < queue.brake.wait() < 1
    clock.now += queue.brake.wait()
    assert queue.take() is not None
    assert queue.take() is None
    for key in range(20):
        queue.forget(key)
    assert queue.take() is not None
    assert queue.next_due() == 0


@given(failures=st.integers(1, 10_000), spread=st.floats(0, 1, exclude_max=True))
def test_a_backoff_grows_never_beyond_its_maximum_and_jitter(failures: int, spread: float) -> None:
    backoff = Backoff(base=0.005, maximum=300, jitter=0.2)
    delay = backoff.delay(failures, spread)
    assert 0.005 <= delay <= 360
    assert backoff.delay(failures + 1, spread) >= delay


class QueueModel(RuleBasedStateMachine):
    """Every add is followed by a take that began after it; no key is in two hands; every timer fires.

    A key that fails waits ever longer, up to the maximum, until it succeeds; the brake slows takes, and loses none.
    """

    KEYS = st.sampled_from("abcd")
    queue_type: type[Queue[str]] = Queue

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = self.queue_type(clock=self.clock)
        self.owed: set[str] = set()
        self.hands: set[str] = set()
        self.timers: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owed.add(key)

    @rule(key=KEYS, delay=st.floats(0.001, 100))
    def add_after(self, key: str, delay: float) -> None:
        self.queue.add_after(key, delay)
        self.timers[key] = min(self.timers.get(key, float("inf")), self.clock.now + delay)

    @rule(key=KEYS)
    def retry(self, key: str) -> None:
        self.backed_off(key, self.queue.retry(key))

    @rule(key=KEYS)
    def overtaken(self, key: str) -> None:
        self.backed_off(key, self.queue.overtaken(key))

    def backed_off(self, key: str, delay: float) -> None:
        self.failures[key] = self.failures.get(key, 0) + 1
        assert delay >= min(self.queue.backoff.base * 2.0 ** (self.failures[key] - 1), self.queue.backoff.maximum)
        assert self.queue.failures(key) == self.failures[key]
        self.timers[key] = min(self.timers.get(key, float("inf")), self.clock.now + delay)

    @rule(key=KEYS)
    def succeeded(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.floats(0, 120))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def take(self) -> None:
        due = {key for key, at in self.timers.items() if at <= self.clock.now}
        self.owed |= due
        for key in due:
            del self.timers[key]
        taken = self.queue.take()
        if taken is None:
            ready = self.owed - self.hands
            assert not ready or self.queue.brake.wait() > 0, "whatever is owed and not in hand can be taken"
            return
        assert taken.key in self.owed
        assert taken.key not in self.hands
        assert taken.waited >= 0
        self.owed.discard(taken.key)
        self.hands.add(taken.key)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.hands)))
        self.hands.discard(key)
        self.queue.done(key)

    @invariant()
    def it_never_sleeps_past_something(self) -> None:
        due = self.queue.next_due()
        ready = self.owed - self.hands
        if ready:
            assert due == self.queue.brake.wait()
        elif self.timers:
            assert due is not None
            assert due <= max(0.0, min(self.timers.values()) - self.clock.now) + 1e-6

    @invariant()
    def it_knows_what_is_in_hand(self) -> None:
        assert set(self.queue.in_hand) == self.hands


QueueModel.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, database=None, derandomize=True
)
TestQueueModel = QueueModel.TestCase
