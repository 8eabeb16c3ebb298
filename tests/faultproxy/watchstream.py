"""The events of one watch, one by one. Pure: bytes in, things to do out."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faultproxy.actions import (
    CloseAfter,
    Corrupt,
    Drop,
    Duplicate,
    EventAction,
    InStreamError,
    Postpone,
    SilentAfter,
    Swap,
)

Decide = Callable[[int, Mapping[str, Any]], EventAction | None]


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """Close the stream in the normal way."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Send nothing more, keep the connection."""


Command = Send | Pause | End | Silence


class WatchStream:
    """Cuts a stream of JSON lines into events and applies what `decide(position, event)` says to each."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._rest = b""
        self._swapped = b""
        self._position = 0
        self.faults: list[str] = []
        self.delivered = 0

    def feed(self, data: bytes) -> Iterator[Command]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            for command in self._line(line + b"\n"):
                yield command
                if isinstance(command, End | Silence):
                    return

    def finish(self) -> Iterator[Command]:
        """The server closed the watch: what was held back comes now."""
        if self._swapped or self._rest:
            yield Send(self._swapped + self._rest)
        yield End()

    def _line(self, line: bytes) -> Iterator[Command]:
        event = json.loads(line)
        if event.get("type") == "BOOKMARK":
            # Counting them would make positions depend on the clock.
            action = self._decide(0, event)
        else:
            self._position += 1
            action = self._decide(self._position, event)
        if action is not None:
            self.faults.append(f"{type(action).__name__} {_name(event)}")
        match action:
            case Drop():
                return
            case Swap() if not self._swapped:
                self._swapped = line
                return
            case Duplicate():
                line += line
            case Postpone(seconds):
                yield Pause(seconds)
            case Corrupt():
                line = line[: len(line) // 2] + b"\n"
            case InStreamError():
                yield Send(_error(action))
                yield End()
                return
        self.delivered += 1
        yield Send(line + self._swapped)
        self._swapped = b""
        match action:
            case CloseAfter():
                yield End()
            case SilentAfter():
                yield Silence()


def _error(action: InStreamError) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": action.message,
        "reason": action.reason,
        "code": action.status,
    }
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def _name(event: Mapping[str, Any]) -> str:
    obj = event.get("object", {})
    metadata = obj.get("metadata", {})
    return f"{event.get('type')} {obj.get('kind')} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
