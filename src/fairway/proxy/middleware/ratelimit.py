"""Rate limits: token buckets for the server, each client and each tool, in whole numbers and bounded memory.

A bucket is one number: the time at which it will be full again. That is the generic cell rate algorithm; it takes no
timer, needs no refilling, and a client that is not heard of costs nothing. Times are nanoseconds multiplied by the
bucket's size, so that nothing is ever rounded and the wait that is told is exact.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fairway.api import policy
from fairway.proxy.answers import Refusal

Clock = Callable[[], int]
"""Nanoseconds that never go back: time.monotonic_ns."""

_NANOSECONDS: Final = 1_000_000_000


class Rate:
    """The numbers of one limit: `tokens` at once, and as many again in each `per` seconds."""

    __slots__ = ("room", "scale", "step")

    def __init__(self, bucket: policy.Bucket) -> None:
        self.scale = bucket.tokens
        self.step = round(bucket.per * _NANOSECONDS)
        """What one token costs, in scaled nanoseconds."""
        self.room = self.step * (bucket.tokens - 1)
        """How far in the future the time of fullness may lie for another token to be there."""


class Buckets:
    """Buckets of one rate by key. A new key beyond `bound` displaces the longest unused full bucket.

    If there is none, the key shares one bucket with all others that found no place: who invents names by the thousand
    gets less, not more.
    """

    __slots__ = ("_full_at", "_overflow", "bound", "overflowed", "rate")

    def __init__(self, rate: Rate, *, bound: int) -> None:
        self.rate = rate
        self.bound = bound
        self.overflowed = 0
        self._full_at: OrderedDict[str, int] = OrderedDict()
        self._overflow = 0

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: str, now: int) -> int:
        """Scaled nanoseconds until a token is there; 0 or less when it is."""
        full_at = self._full_at.get(key)
        if full_at is None:
            if len(self._full_at) < self.bound or self._oldest_is_full(now):
                return -1
            full_at = self._overflow
        return full_at - self.rate.room - now * self.rate.scale

    def take(self, key: str, now: int, amount: int = 1) -> None:
        """Takes a token that `wait` said is there; a larger amount may leave the bucket in debt."""
        step = self.rate.step * amount
        scaled = now * self.rate.scale
        full_at = self._full_at.get(key)
        if full_at is not None:
            self._full_at.move_to_end(key)
        elif len(self._full_at) >= self.bound:
            if not self._oldest_is_full(now):
                self.overflowed += 1
                self._overflow = max(self._overflow, scaled) + step
                return
            self._full_at.popitem(last=False)
        self._full_at[key] = (scaled if full_at is None or full_at < scaled else full_at) + step

    def _oldest_is_full(self, now: int) -> bool:
        return next(iter(self._full_at.values())) <= now * self.rate.scale


class RateLimiter:
    """Every limit that applies must have a token; then one is taken from each, else from none."""

    __slots__ = ("_by_principal", "_by_tool", "_clock", "_shared", "refused")

    def __init__(self, config: policy.RateLimit, *, clock: Clock) -> None:
        self._clock = clock
        self._shared = _buckets(config.shared, 1)
        self._by_principal = _buckets(config.principal, config.max_principals)
        self._by_tool = {
            limit.tool: (_buckets(limit.shared, 1), _buckets(limit.principal, config.max_principals))
            for limit in config.tools
        }
        self.refused = 0

    def check(self, principal: str, tool: str | None = None) -> Refusal | None:
        """One request of a principal (its key); `tool` is the name that the client used, if it calls one."""
        now = self._clock()
        shared, own = self._shared, self._by_principal
        if shared is not None and (wait := shared.wait("", now)) > 0:
            return self._refuse(wait, shared.rate, "this server")
        if own is not None and (wait := own.wait(principal, now)) > 0:
            return self._refuse(wait, own.rate, "this client")
        limits = self._by_tool.get(tool) if tool is not None else None
        if limits is not None:
            tool_shared, tool_own = limits
            if tool_shared is not None and (wait := tool_shared.wait("", now)) > 0:
                return self._refuse(wait, tool_shared.rate, f"tool {tool}")
            if tool_own is not None and (wait := tool_own.wait(principal, now)) > 0:
                return self._refuse(wait, tool_own.rate, f"tool {tool} and this client")
            if tool_shared is not None:
                tool_shared.take("", now)
            if tool_own is not None:
                tool_own.take(principal, now)
        if shared is not None:
            shared.take("", now)
        if own is not None:
            own.take(principal, now)
        return None

    def _refuse(self, wait: int, rate: Rate, what: str) -> Refusal:
        self.refused += 1
        seconds = -(-wait // (rate.scale * _NANOSECONDS))
        return Refusal(
            429,
            f"too many requests for {what}: try again in {seconds} s",
            429,
            (("Retry-After", str(seconds)),),
        )


def _buckets(bucket: policy.Bucket | None, bound: int) -> Buckets | None:
    return None if bucket is None else Buckets(Rate(bucket), bound=bound)
