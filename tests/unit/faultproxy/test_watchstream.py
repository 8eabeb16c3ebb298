"""Events of a watch, edited one by one."""

import json
from collections.abc import Mapping
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
from tests.faultproxy.watchstream import Command, End, Pause, Send, Silence, WatchStream


def line(name: str, kind: str = "MODIFIED") -> bytes:
    return json.dumps({"type": kind, "object": {"kind": "Toy", "metadata": {"name": name}}}).encode() + b"\n"


BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n'


def stream(faults: Mapping[int, EventAction]) -> WatchStream:
    def decide(position: int, event: Mapping[str, Any]) -> EventAction | None:
        return faults.get(position)

    return WatchStream(decide)


def played(faults: Mapping[int, EventAction], *lines: bytes) -> list[Command]:
    return list(stream(faults).feed(b"".join(lines)))


A, B, C = line("a"), line("b"), line("c")


def test_without_faults_every_byte_passes() -> None:
    assert played({}, A, BOOKMARK, B) == [Send(A), Send(BOOKMARK), Send(B)]


def test_events_are_put_together_from_whatever_pieces_arrive() -> None:
    editor = stream({2: Drop()})
    commands = [command for byte in A + B + C for command in editor.feed(bytes([byte]))]
    assert commands == [Send(A), Send(C)]
    assert editor.delivered == 2
    assert editor.faults == ["Drop MODIFIED Toy /b"]


def test_bookmarks_do_not_count_as_positions() -> None:
    assert played({2: Drop()}, A, BOOKMARK, B, C) == [Send(A), Send(BOOKMARK), Send(C)]


def test_a_duplicate_follows_its_original() -> None:
    assert played({1: Duplicate()}, A, B) == [Send(A + A), Send(B)]


def test_a_postponed_event_holds_up_those_behind_it() -> None:
    assert played({1: Postpone(2.5)}, A, B) == [Pause(2.5), Send(A), Send(B)]


def test_a_corrupt_event_is_a_line_but_no_json() -> None:
    (sent, _) = played({1: Corrupt()}, A, B)
    assert isinstance(sent, Send)
    assert sent.data.endswith(b"\n")
    assert A.startswith(sent.data[:-1])
    assert len(sent.data) < len(A)


def test_swapped_events_come_in_the_other_order() -> None:
    assert played({1: Swap()}, A, B, C) == [Send(B + A), Send(C)]


def test_an_event_that_waits_for_a_swap_comes_when_the_watch_ends() -> None:
    editor = stream({1: Swap()})
    assert list(editor.feed(A)) == []
    assert list(editor.finish()) == [Send(A), End()]


def test_two_swaps_in_a_row_are_one() -> None:
    assert played({1: Swap(), 2: Swap()}, A, B) == [Send(B + A)]


def test_an_error_comes_instead_of_the_event_and_ends_the_watch() -> None:
    sent, end, *rest = played({2: InStreamError()}, A, B, C)[1:]
    assert isinstance(sent, Send)
    event = json.loads(sent.data)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert (end, rest) == (End(), [])


def test_a_watch_ends_after_an_event() -> None:
    assert played({1: CloseAfter()}, A, B) == [Send(A), End()]


def test_a_watch_falls_silent_after_an_event() -> None:
    assert played({1: SilentAfter()}, A, B) == [Send(A), Silence()]
