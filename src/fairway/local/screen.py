"""What `fairway up` prints: a live table on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from fairway import __version__
from fairway.api.conditions import Phase
from fairway.local import view
from fairway.local.statedir import shown_path
from fairway.local.view import Row

WAITS_UNTOLD = 2.0

_TITLE = "fairway {version}  local mode, nothing leaves this machine"


class Screen(Protocol):
    """Shows rows as they change, and notes between them. Changes within `patience` seconds may be shown as one."""

    patience: float

    @property
    def due(self) -> float | None:
        """In how many seconds it has more to say of the same rows; None when it has said everything."""

    def show(self, rows: Sequence[Row]) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def screen(stream: TextIO, *, logs: Path) -> Screen:
    """The one that fits the stream."""
    if stream.isatty():
        from fairway.local.terminal import LiveTable

        return LiveTable(title=_TITLE.format(version=__version__), logs=shown_path(logs))
    return Lines(stream, logs=logs)


class Lines:
    """One line for each change of a server's state, and the whole table each time that everything is ready.

    What a server still waits for is said once it has waited a while: every start passes through such states.
    """

    patience = 0.3

    def __init__(self, stream: TextIO, *, logs: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._said: dict[str, str] = {}
        self._waiting: dict[str, float] = {}
        """Since when each server has been on its way."""
        self._untold: set[str] = set()
        self._all_ready = False
        self._rows: Sequence[Row] = ()
        self._write(_TITLE.format(version=__version__))
        self._write(f"logs in {shown_path(logs)}/")

    @property
    def due(self) -> float | None:
        told_at = [self._waiting[key] + WAITS_UNTOLD for key in self._untold]
        return max(0.0, min(told_at) - self._now()) if told_at else None

    def show(self, rows: Sequence[Row]) -> None:
        for gone in self._said.keys() - {row.key for row in rows}:
            self._write(f"{gone.removeprefix('default/')}  removed")
            del self._said[gone]
        now = self._now()
        self._untold.clear()
        self._waiting = {r.key: self._waiting.get(r.key, now) for r in rows if r.phase == Phase.PENDING}
        for row in rows:
            line = line_of(row)
            on_its_way = row.key in self._waiting and not row.hopeless
            if on_its_way and now < self._waiting[row.key] + WAITS_UNTOLD:
                self._untold.add(row.key)
            elif self._said.get(row.key) != line:
                self._said[row.key] = line
                self._write(line)
        self._rows = rows
        ready = bool(rows) and all(row.ready for row in rows)
        if ready and not self._all_ready:
            self._table()
        self._all_ready = ready

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        if not self._all_ready:  # else the table is above, and still true
            self._table()

    def _table(self) -> None:
        for line in view.table(self._rows):
            self._write(line)

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def line_of(row: Row) -> str:
    """One server in one line."""
    if row.ready:
        tools = "" if row.tools is None else f"{row.tools} tool{'' if row.tools == 1 else 's'}"
        return "  ".join(part for part in (row.title, row.phase, tools, row.url) if part)
    reason = row.reason if row.reason and row.reason != row.phase else ""
    return "  ".join(part for part in (row.title, row.phase, reason, row.message) if part)
