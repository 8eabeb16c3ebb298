"""Two books about the same requests: what servers executed, and what clients were answered."""

import mmap
from collections import Counter
from pathlib import Path
from typing import Any

from bench.answering import new_ledger
from bench.load import NEVER, Client, modern_call

NO_ANSWER = "the connection ended without an answer"
DIED_AT_WORK = "502 the server hung up without an answer"
CUT_OFF = "502 the server hung up before its answer was complete"
UNREACHABLE = "502 no server could be reached"
NAMED = frozenset({NO_ANSWER, DIED_AT_WORK, CUT_OFF, UNREACHABLE})
"""All the ways in which a request may be lost; of each it is not known whether it was executed."""
_MARK = "@@@@@@@@"


class Books:
    """Gives out requests with ids from 0, and takes down what became of each."""

    def __init__(self, directory: Path, size: int, servers: int) -> None:
        self.size = size
        self.files = [directory / f"ledger-{number}" for number in range(servers)]
        for file in self.files:
            new_ledger(file, size)
        self.asked = 0
        self.limit = 0
        self.answered = 0
        self.good = bytearray(size)
        self.unavailable: list[int] = []
        """Ids that got 503."""
        self.losses: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._before, self._after = modern_call(_MARK, "search").split(_MARK.encode())

    def next_request(self) -> tuple[bytes, Any] | None:
        if self.asked >= self.limit:
            return None
        number = self.asked
        self.asked += 1
        return self._before + b"%08d" % number + self._after, number

    def on_answer(self, client: Client) -> float | None:
        """Returns seconds to wait, where the answer asks for it."""
        self.answered += 1
        if client.status == 200:
            if b'"%08d"' % client.tag in client.body and not client.unasked:
                self.good[client.tag] = 1
            else:
                self.wrong.append(f"{client.tag} was answered {client.body[:100]!r}")
            return None
        if client.status == 503:
            self.unavailable.append(client.tag)
            if b"retry-after" not in client.headers:
                self.wrong.append(f"{client.tag}: 503 without Retry-After")
                return None
            return float(client.headers[b"retry-after"])
        if client.status == NEVER:
            self.losses[NO_ANSWER] += 1
        else:
            self.losses[_reason(client)] += 1
        return None

    def executed(self) -> list[int]:
        """How often each id was executed, by all servers together."""
        totals = [0] * self.size
        for path in self.files:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as ledger:
                for number, count in enumerate(ledger[:]):
                    totals[number] += count
        return totals

    def close(self, *, kills: int, connections: int) -> str:
        """Compares the books, and gives the figures in a line."""
        executed = self.executed()
        assert self.wrong == []
        assert self.asked == self.answered == self.size
        good = sum(self.good)
        assert good + len(self.unavailable) + self.losses.total() == self.size
        assert max(executed) <= 1, "a request was executed twice"
        assert [number for number in self.unavailable if executed[number]] == [], "503 after a byte was sent"
        assert len(self.unavailable) <= self.size / 1000
        assert self.losses.keys() <= NAMED, self.losses
        # of each kill no more than what was at work at that moment, and what crossed with the news of it
        assert self.losses.total() <= kills * 2 * connections
        assert not any(once and not done for once, done in zip(self.good, executed, strict=True)), (
            "an answer to nothing"
        )
        lost = ", ".join(f"{count} x {name}" for name, count in sorted(self.losses.items())) or "none"
        return f"{self.size} requests, {good} good, {len(self.unavailable)} x 503, lost: {lost}"


def _reason(client: Client) -> str:
    message = client.body.rpartition(b'"message":"')[2].partition(b'"')[0].decode()
    return f"{client.status} {message}"
