"""What is said of a process that ended, and when it is started again."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairway.local.process import Exit

MESSAGE_LIMIT = 4096
LOG_TAIL = 2048
FORGIVEN_AFTER = 600.0
"""A container that ran this long starts its backoff anew, as with a kubelet."""

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""A program that somebody else ended does not say why in its log."""


@dataclass(frozen=True, slots=True)
class RestartPace:
    """Waits between restarts: the kubelet's doubling, from a laptop's first second."""

    first: float = 1.0
    longest: float = 60.0

    def crashes(self, before: int, *, lasted: float) -> int:
        """How many in a row, this one included."""
        return 1 if lasted > FORGIVEN_AFTER else before + 1

    def wait(self, crashes: int) -> float:
        return min(self.first * 2.0 ** min(crashes - 1, 32), self.longest)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def last_words(termination_log: Path, log: Path, log_start: int, ended: Exit) -> str:
    """What the program left as its termination message, else the end of its log if it failed."""
    with suppress(OSError):
        said = termination_log.read_bytes()[:MESSAGE_LIMIT]
        if said.strip():
            return said.decode(errors="replace").strip()
    if (ended.code == 0 and ended.signal == 0) or ended.signal in _FROM_OUTSIDE:
        return ""
    with suppress(OSError), log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(log_start, end - LOG_TAIL))
        return file.read().decode(errors="replace").strip()
    return ""
