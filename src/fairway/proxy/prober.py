"""Keeps asking the servers of a route whether they speak MCP: at once, when something changed, and now and then."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fairway.api.proxystatus import EndpointState
from fairway.mcp.probe import Outcome
from fairway.proxy.endpoints import Endpoint

FIRST_RETRY: Final = 0.2
LONGEST_RETRY: Final = 5.0
LONGEST_SILENCE: Final = 1.5
"""Likewise for one that nobody answers at: it may be starting, and clients wait for it."""
REFRESH: Final = 300.0
CALM: Final = 1.0
"""Seconds at least between two handshakes with a good server, however often traffic asks for one."""
PATIENCE: Final = 3
"""Failures in a row, none of them certain, after which a server that was good is so no more."""

log = logging.getLogger("fairway.proxy")

Handshake = Callable[[Endpoint], Awaitable[Outcome]]
Hear = Callable[[Endpoint, Outcome, bool], None]
"""Told of each outcome, with whether the server may get requests."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of one server between handshakes."""

    good: bool = False
    failures: int = 0
    silent: bool = False

    def after(self, outcome: Outcome) -> "Record":
        """A server that does not answer in time may just be busy: it stays good until it has failed repeatedly."""
        if outcome.state is EndpointState.OK:
            return Record(good=True)
        failures = self.failures + 1
        certain = outcome.lasting or failures >= PATIENCE
        silent = outcome.state is EndpointState.UNREACHABLE
        return Record(good=self.good and not certain, failures=failures, silent=silent)

    def wait(self, jitter: float) -> float:
        """Seconds until the next handshake; `jitter` is between 0 and 1."""
        if not self.failures:
            return REFRESH * (0.9 + 0.2 * jitter)
        longest = LONGEST_SILENCE if self.silent else LONGEST_RETRY
        return min(longest, FIRST_RETRY * 2.0 ** min(self.failures - 1, 10)) * (0.75 + 0.5 * jitter)


async def watch(endpoint: Endpoint, handshake: Handshake, hear: Hear) -> None:
    """Shakes hands with one server until cancelled."""
    record = Record()
    while True:
        endpoint.recheck.clear()
        outcome = await handshake(endpoint)
        record = record.after(outcome)
        if outcome.message != endpoint.message or outcome.state is not endpoint.state:
            log.info(
                "handshake %s", outcome.state, extra={"endpoint": endpoint.place.address, "reason": outcome.message}
            )
        hear(endpoint, outcome, record.good)
        wait = record.wait(random.random())  # noqa: S311  spreads load, hides nothing
        if not record.good:
            await asyncio.sleep(wait)
            continue
        await asyncio.sleep(CALM)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await endpoint.recheck.wait()
