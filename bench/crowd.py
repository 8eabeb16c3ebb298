"""The crowd that bench.proxy lets loose: a thousand clients with a token each, fifty tools, some asked far more often.

    python -m bench.crowd PORT LOAD SECONDS --tokens FILE [--cold FILE] [--rate N] [--connections N]

prints a line of JSON: requests, errors, seconds, and latencies in milliseconds. One request in a hundred brings a token
that nobody has seen before, if there are any. Runs in a process of its own, so that it can have a core of its own.
"""

import argparse
import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import uvloop

from bench.answering import TOOLS
from bench.load import HOST, Client, Eager, Steady, modern_call, percentile

HOT: Final = 1_000
"""Clients that come again and again."""
COLD_EACH: Final = 100
"""One request in so many brings a new token."""
PLANNED: Final = 20_000
"""Requests until the same order of clients and tools begins anew."""


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request: the tool that answers it and the size of its arguments."""

    name: str
    tool: str
    asked: int

    def tools(self) -> list[str]:
        """All names that it is called by: the backend answers alike whichever of the fifty it is."""
        return TOOLS if not self.tool else [self.tool]


LOADS: Final = {
    load.name: load for load in (Load("small", "", 40), Load("33 KB", "large", 33_000), Load("SSE", "stream", 40))
}


class Requests:
    """Gives out one request after the other, put together from parts that are made once."""

    def __init__(self, load: Load, hot: list[bytes], cold: Iterator[bytes]) -> None:
        how = random.Random(1)
        calls = [modern_call(7, tool, {"query": "x" * load.asked}) for tool in load.tools()]
        self._calls = [tuple(call.split(b"\r\n", 1)) for call in calls]
        clients = how.choices(range(len(hot)), [1 / (rank + 1) for rank in range(len(hot))], k=PLANNED)
        tools = how.choices(range(len(calls)), [1 / (rank + 1) for rank in range(len(calls))], k=PLANNED)
        self._plan = itertools.cycle(
            [(hot[client], *self._calls[tool]) for client, tool in zip(clients, tools, strict=True)]
        )
        self._cold = cold
        self._count = 0

    def next(self) -> bytes:
        token, first, rest = next(self._plan)
        self._count += 1
        if self._count % COLD_EACH == 0:
            token = next(self._cold, token)
        return b"".join((first, b"\r\nAuthorization: Bearer ", token, b"\r\n", rest))


async def eager(port: int, requests: Requests, connections: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    errors = 0

    def on_answer(client: Client) -> None:
        nonlocal errors
        if client.status == 200:
            latencies.append(perf_counter() - client.asked_at)
        else:
            errors += 1

    load = Eager(
        address=lambda: (HOST, port),
        connections=connections,
        next_request=lambda: (requests.next(), None),
        on_answer=on_answer,
    )
    began = perf_counter()
    asyncio.get_running_loop().call_later(seconds, load.stop)
    await load.run()
    return _said(latencies, errors, perf_counter() - began)


async def steady(port: int, requests: Requests, rate: float, seconds: float) -> dict[str, float]:
    load = Steady(address=(HOST, port), rate=rate, request=requests.next)
    await load.open()
    began = perf_counter()
    await load.run(seconds)
    took = perf_counter() - began
    load.close()
    return _said(load.latencies, sum(load.failures.values()), took)


def _said(latencies: list[float], errors: int, seconds: float) -> dict[str, float]:
    return {
        "requests": len(latencies),
        "errors": errors,
        "seconds": seconds,
        "p50": percentile(latencies, 0.50) * 1e3,
        "p99": percentile(latencies, 0.99) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crowd", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("load", choices=sorted(LOADS))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--cold", type=Path)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0 asks as fast as answers come")
    parser.add_argument("--connections", type=int, default=32)
    given = parser.parse_args()
    hot = given.tokens.read_bytes().split()[:HOT]
    cold = [] if given.cold is None else given.cold.read_bytes().split()
    requests = Requests(LOADS[given.load], hot, iter(cold))
    if given.rate:
        said = uvloop.run(steady(given.port, requests, given.rate, given.seconds))
    else:
        said = uvloop.run(eager(given.port, requests, given.connections, given.seconds))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
