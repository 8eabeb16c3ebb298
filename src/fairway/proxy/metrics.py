"""Counters of the hot path: plain dictionaries, written out as Prometheus text when somebody asks."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

from fairway.proxy.answers import Refusal

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


MIDDLEWARES: Final = (
    "origin", "cors", "authentication", "envelope", "limit", "sessions", "authorization", "tools", "headers", "trace",
    "audit",
)  # fmt: skip


class Counts:
    """What one route has done: requests by method and status, and how long they took by method.

    Each middleware counts in the attribute of its name what it was asked, and in `refused` what it refused.
    """

    __slots__ = (*MIDDLEWARES, "latencies", "refused", "requests", "sums", "tool_calls")

    def __init__(self) -> None:
        self.origin = self.cors = self.authentication = self.envelope = self.limit = self.sessions = 0
        self.authorization = self.tools = self.headers = self.trace = self.audit = 0
        self.refused: dict[tuple[str, int], int] = {}
        self.tool_calls: dict[tuple[str, int], int] = {}
        self.requests: dict[tuple[str, int], int] = {}
        self.latencies: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}

    def add(self, method: str, status: int, seconds: float) -> None:
        key = (method, status)
        requests = self.requests
        requests[key] = requests.get(key, 0) + 1
        row = self.latencies.get(method)
        if row is None:
            row = self.latencies[method] = [0] * (len(BUCKETS) + 1)
            self.sums[method] = 0.0
        row[bisect_left(BUCKETS, seconds)] += 1
        self.sums[method] += seconds

    def add_tool(self, tool: str, status: int) -> None:
        key = (tool, status)
        self.tool_calls[key] = self.tool_calls.get(key, 0) + 1

    def refuse(self, middleware: str, refusal: Refusal) -> Refusal:
        """Counts a refusal, and gives it back."""
        key = (middleware, refusal.status)
        self.refused[key] = self.refused.get(key, 0) + 1
        return refusal


class Text:
    """Builds the exposition format."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]

    def histogram(self, name: str, text: str, rows: Iterable[tuple[Mapping[str, str], list[int], float]]) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
        for labels, row, total in rows:
            running = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), row, strict=True):
                running += count
                self._lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {running}")
            self._lines.append(f"{name}_sum{_labels(labels)} {_number(total)}")
            self._lines.append(f"{name}_count{_labels(labels)} {running}")

    def render(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
    return "{" + pairs + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(value)
