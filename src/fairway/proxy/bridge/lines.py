"""Messages as lines: a stream of bytes cut at its newlines, and what a bridge needs of whatever carries the lines."""

from typing import Protocol

MAX_LINE = 64 << 20
"""Bytes of one message of a server."""


class LineTooLong(ValueError):
    """A line grew beyond the limit without coming to an end."""


class LineTransport(Protocol):
    """Takes lines to one server. What comes back goes to the bridge's `feed`."""

    def write(self, lines: bytes) -> None:
        """Whole lines, each with its newline; in order, and without waiting: what cannot go out yet is kept."""

    def backlog(self) -> int:
        """Bytes that are kept."""

    def give_up(self, reason: str) -> None:
        """What comes from the server makes no sense. The transport starts it anew, after `Bridge.closed`."""


class LineSplitter:
    """Every byte is copied a fixed number of times, however long a line is and in however many pieces it comes."""

    __slots__ = ("_limit", "_pieces", "_size")

    def __init__(self, *, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this piece completes, without their newlines. Raises LineTooLong."""
        first = data.find(b"\n")
        if self._size + (len(data) if first < 0 else first) > self._limit:
            raise LineTooLong(f"a line is larger than {self._limit} bytes")
        if first < 0:
            self._pieces.append(data)
            self._size += len(data)
            return []
        if self._pieces:
            lines = [b"".join((*self._pieces, data[:first]))]
            if first + 1 == len(data):
                lines.append(b"")
            else:
                lines += data[first + 1 :].split(b"\n")
        else:
            lines = data.split(b"\n")
        rest = lines.pop()
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        return lines
