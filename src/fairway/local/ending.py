"""What is said of a process that ended, and when it is started again."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from fairway.local.process import Exit

MESSAGE_LIMIT = 4096
LOG_TAIL = 2048
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""A program that somebody else ended does not say why in its log."""


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
