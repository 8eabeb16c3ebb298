"""A work queue that deduplicates, delays and backs off; pure, with an injected clock."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairway.kube.bucket import TokenBucket
from fairway.runtime.brake import Brake

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential from `base` to `maximum` seconds, spread by up to `jitter` of itself so that nothing marches."""

    base: float = 0.005
    maximum: float = 300.0
    jitter: float = 0.2

    def delay(self, failures: int, spread: float) -> float:
        """The wait before the next try after `failures` (at least 1) failures; `spread` is uniform in [0, 1)."""
        exponential = self.base * 2.0 ** min(failures - 1, 64)
        return min(exponential, self.maximum) * (1.0 + self.jitter * spread)


@dataclass(frozen=True, slots=True)
class Taken(Generic[K]):
    key: K
    waited: float


class Queue(Generic[K]):
    """Keys to work on, each at most once in the line and never in two hands at the same time.

    A key added while it is in hand comes back into the line when `done` is called, once, however often it was added.
    A key has at most one timer, and the earliest wins. Retries also pass a token bucket shared by all keys, and while
    most attempts fail, the brake lets only a few start. `on_ready` is called whenever something may have become
    takeable, or due earlier than `next_due` said before.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        backoff: Backoff | None = None,
        retry_rate: float = 10.0,
        retry_burst: int = 100,
        brake: Brake | None = None,
        spread: Callable[[], float] = random.random,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self.backoff = backoff or Backoff()
        self.brake = brake or Brake(clock=clock)
        self._bucket = TokenBucket(rate=retry_rate, burst=retry_burst, clock=clock)
        self._spread = spread
        self._on_ready = on_ready
        self._line: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        self._in_hand: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._serial = 0
        self.adds = 0
        self.retries = 0

    def add(self, key: K) -> None:
        if key in self._dirty:
            return
        self.adds += 1
        self._dirty[key] = self._clock()
        if key not in self._in_hand:
            self._line.append(key)
            self._on_ready()

    def add_after(self, key: K, delay: float) -> None:
        if delay <= 0:
            self.add(key)
            return
        due = self._clock() + delay
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._serial += 1
        heapq.heappush(self._timers, (due, self._serial, key))
        if self._timers[0][0] == due:
            self._on_ready()

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Adds a key whose attempt failed again after its backoff and the shared limit; returns the delay chosen."""
        self.brake.note(failed=True)
        return self._again(key, max(self._bucket.reserve(), at_least))

    def overtaken(self, key: K) -> float:
        """Adds a key again whose attempt came to nothing because the world had changed; nothing failed by that."""
        return self._again(key, 0.0)

    def _again(self, key: K, at_least: float) -> float:
        self.retries += 1
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(self.backoff.delay(self._failures[key], self._spread()), at_least)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts the backoff anew."""
        self.brake.note(failed=False)
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def take(self) -> Taken[K] | None:
        """The next key to work on, if one is ready; the caller owes a `done` for it."""
        self._ring()
        if not self._line or self.brake.wait() > 0:
            return None
        self.brake.start()
        key = self._line.popleft()
        now = self._clock()
        waited = now - self._dirty.pop(key)
        self._in_hand[key] = now
        return Taken(key, waited)

    def done(self, key: K) -> None:
        del self._in_hand[key]
        if key in self._dirty:
            self._line.append(key)
            self._on_ready()

    def next_due(self) -> float | None:
        """Seconds until `take` can succeed: 0 if now, None if nothing is waiting."""
        if self._line:
            return self.brake.wait()
        self._drop_stale_timers()
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None

    @property
    def depth(self) -> int:
        return len(self._line)

    @property
    def in_hand(self) -> dict[K, float]:
        """The keys being worked on, with the time at which each was taken."""
        return dict(self._in_hand)

    def _ring(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    def _drop_stale_timers(self) -> None:
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heapq.heappop(self._timers)
