"""A token bucket that answers with the time to wait."""

from collections.abc import Callable


class TokenBucket:
    """Allows `rate` per second on average and `burst` at once; `reserve` takes a token now and says when it is due.

    Reservations are honoured in order: whoever reserves later waits longer. A rate of 0 means no limit.
    """

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float]) -> None:
        if rate < 0 or (rate > 0 and burst < 1):
            raise ValueError(f"rate {rate} and burst {burst} allow nothing at all")
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock()

    def reserve(self) -> float:
        if not self._rate:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0 else -self._tokens / self._rate
