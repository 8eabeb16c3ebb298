"""Small files that change while the proxy runs: keys, certificates, credentials, policies."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

MAX_SIZE: Final = 4 << 20


class Unreadable(Exception):
    """The file is not there or cannot be used; the message names it and the reason, never its content."""


class WatchedFile:
    """The content of one file, read again when it changed.

    A change is noticed by what `stat` says of the file behind all links, so the atomic swap of a mounted Secret or
    ConfigMap is one. A file that vanishes or becomes too large keeps its last content: `error` says so. Until it could
    be read once, `content` raises Unreadable.
    """

    __slots__ = ("_clock", "_content", "_interval", "_looked_at", "_seen", "error", "path")

    def __init__(self, path: str, *, clock: Callable[[], float], interval: float = 1.0) -> None:
        self.path = path
        self.error = ""
        self._clock = clock
        self._interval = interval
        self._looked_at: float | None = None
        self._seen: tuple[int, int, int] | None = None
        self._content: bytes | None = None

    def content(self) -> bytes:
        """Looks at the file at most once in each interval."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= self._interval:
            self._looked_at = now
            self._look()
        if self._content is None:
            raise Unreadable(self.error)
        return self._content

    def _look(self) -> None:
        try:
            found = os.stat(self.path)  # noqa: PTH116  a fifth of the cost of Path.stat
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen == self._seen:
                self.error = ""
                return
            if found.st_size > MAX_SIZE:
                raise Unreadable(f"{self.path} is larger than {MAX_SIZE} bytes")
            self._content = Path(self.path).read_bytes()
            self._seen = seen
            self.error = ""
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
        except Unreadable as error:
            self.error = str(error)
