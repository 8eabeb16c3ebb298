"""What `up` and `build` show while they work: one line that changes on a terminal, plain lines elsewhere."""

import sys
import time
from typing import TextIO

PLAIN_INTERVAL_SECONDS = 20.0


class Progress:
    """Milestones stay on the screen; updates replace each other, and are rare where they cannot."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._quiet = quiet
        self._began = time.monotonic()
        self._last_plain = self._began
        self._dirty = False

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def milestone(self, text: str) -> None:
        if self._quiet:
            return
        self._clear()
        print(f"[{self.elapsed:6.1f}s] {text}", file=self._stream, flush=True)

    def update(self, text: str) -> None:
        if self._quiet:
            return
        if self._terminal:
            self._stream.write(f"\r\x1b[K[{self.elapsed:6.1f}s] {text[:100]}")
            self._stream.flush()
            self._dirty = True
        elif time.monotonic() - self._last_plain >= PLAIN_INTERVAL_SECONDS:
            self._last_plain = time.monotonic()
            print(f"[{self.elapsed:6.1f}s] {text}", file=self._stream, flush=True)

    def close(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._dirty = False
