"""Slows all work down while most of it fails; pure, with an injected clock."""

from collections.abc import Callable

from fairway.kube.bucket import TokenBucket


class Brake:
    """Follows the share of attempts that failed lately; while that is above `limit`, `rate` may start a second.

    Backoff is for one key that fails. When nearly everything fails, thousands of keys that back off on their own are
    still a storm for a server that is down already. Newer results weigh more: after `memory` of them, two thirds of
    the share is theirs. So a few failures at the start engage nothing, and a run of good ones releases.
    """

    def __init__(
        self, *, clock: Callable[[], float], limit: float = 0.5, memory: int = 20, rate: float = 5.0, burst: int = 5
    ) -> None:
        if not 0 < limit <= 1 or memory < 1:
            raise ValueError(f"a brake with limit {limit} and memory {memory} cannot work")
        self._clock = clock
        self._limit = limit
        self._weight = 1.0 / memory
        self._rate, self._burst = rate, burst
        self._share = 0.0
        self._bucket: TokenBucket | None = None
        self._next = 0.0

    @property
    def engaged(self) -> bool:
        return self._bucket is not None

    def note(self, *, failed: bool) -> None:
        """How an attempt ended."""
        self._share += self._weight * (failed - self._share)
        if self._share > self._limit and self._bucket is None:
            self._bucket = TokenBucket(rate=self._rate, burst=self._burst, clock=self._clock)
            self._next = self._clock()
        elif self._share <= self._limit:
            self._bucket = None

    def wait(self) -> float:
        """Seconds until the next attempt may start."""
        return 0.0 if self._bucket is None else max(0.0, self._next - self._clock())

    def start(self) -> None:
        """An attempt starts now."""
        if self._bucket is not None:
            self._next = self._clock() + self._bucket.reserve()
