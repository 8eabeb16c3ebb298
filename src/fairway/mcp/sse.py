"""Server-sent events: a stream of bytes cut into events, and what one event says."""

import re
from dataclasses import dataclass

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event grew beyond the limit without coming to an end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `data` is None for a block that carries none, such as a comment that keeps the line alive."""

    data: bytes | None
    name: str = "message"
    id: str | None = None
    retry: int | None = None


class EventSplitter:
    """Cuts a byte stream into raw events, each with the blank line that ends it; the blocks joined are the input."""

    __slots__ = ("_after_cr", "_buffer", "_limit", "_searched")

    def __init__(self, *, limit: int) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._after_cr = False
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """The events that this piece completes."""
        if not data:
            return []
        buffer = self._buffer
        blocks = []
        if self._after_cr:
            # an event is not held back for the second half of its last line end; that comes out by itself
            self._after_cr = False
            if data[:1] == b"\n":
                blocks.append(b"\n")
                data = data[1:]
        buffer += data
        start = 0
        searched = self._searched
        while (match := _BLANK_LINE.search(buffer, searched)) is not None:
            blocks.append(bytes(buffer[start : match.end()]))
            start = searched = match.end()
        self._after_cr = bool(blocks) and start == len(buffer) and blocks[-1].endswith(b"\r")
        del buffer[:start]
        # the last three bytes may be the first part of a blank line
        self._searched = max(0, len(buffer) - 3)
        if len(buffer) > self._limit:
            raise EventTooLarge(f"an event is larger than {self._limit} bytes")
        return blocks

    def rest(self) -> bytes:
        """What is left when the stream ends: an event without its end, which clients must ignore."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return rest


def parse_event(block: bytes) -> Event:
    """What one raw event says. Fields that a client must ignore are ignored."""
    data: list[bytes] = []
    name = "message"
    event_id: str | None = None
    retry: int | None = None
    for line in _LINE.split(block.removeprefix(_BOM)):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace") or "message"
        elif field == b"id" and b"\0" not in value:
            event_id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit():
            retry = int(value[:9])
    return Event(data=b"\n".join(data) if data else None, name=name, id=event_id, retry=retry)


def with_data(block: bytes, data: bytes) -> bytes:
    """The same event with other data."""
    lines = _LINE.split(block.removeprefix(_BOM).rstrip(b"\r\n"))
    # a later line with a mark is no data where it stands, and would be if it became the first
    kept = [line for line in lines if line.removeprefix(_BOM).partition(b":")[0] != b"data"]
    return b"\r\n".join([*kept, *(b"data: " + line for line in _LINE.split(data)), b"", b""])
