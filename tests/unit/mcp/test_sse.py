"""Event streams: cut into events however they arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.mcp.sse import Event, EventSplitter, EventTooLarge, parse_event, with_data

lines = st.sampled_from([b"data: x", b"data:y", b": comment", b"id: 7", b"event: endpoint", b"retry: 10", b"data"])
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(st.lists(lines, max_size=3), ends), max_size=6), st.lists(st.integers(0, 300), max_size=8))
def test_events_come_out_alike_however_the_stream_is_cut(events, cuts):
    stream = b"".join(end.join([*block, b"", b""]) if block else end for block, end in events)
    whole = EventSplitter(limit=10_000).feed(stream)
    splitter = EventSplitter(limit=10_000)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [block for a, b in pairwise(edges) for block in splitter.feed(stream[a:b])]

    def said(blocks):
        return [event for event in map(parse_event, blocks) if event != Event(None)]

    assert said(pieces) == said(whole)
    assert b"".join(pieces) + splitter.rest() == stream


def test_an_event_is_what_its_fields_say():
    block = b": hi\nevent: endpoint\ndata: /messages\ndata:more\nid: 4\nretry: 1500\nunknown: x\n\n"
    assert parse_event(block) == Event(b"/messages\nmore", "endpoint", "4", 1500)


@pytest.mark.parametrize("block", [b": ping\n\n", b"\n", b"id: 3\n\n", b"retry: x\n\n", b"\xef\xbb\xbf: a\n\n"])
def test_a_block_without_data_has_none(block):
    assert parse_event(block).data is None


def test_an_event_that_does_not_end_is_not_kept_for_ever():
    splitter = EventSplitter(limit=1000)
    with pytest.raises(EventTooLarge):
        for _ in range(100):
            splitter.feed(b"data: " + b"x" * 100 + b"\n")


def test_other_data_keeps_the_rest_of_the_event():
    changed = with_data(b"id: 1\r\nevent: message\r\ndata: old\r\ndata: older\r\n: note\r\n\r\n", b'{"a":\n1}')
    assert parse_event(changed) == Event(b'{"a":\n1}', "message", "1")
    assert changed.endswith(b"\r\n\r\n")
    assert b": note" in changed


@pytest.mark.parametrize("more", [b"", b"\xef\xbb\xbfdata: old\n"])
def test_other_data_leaves_nothing_of_the_old_behind_a_byte_order_mark(more):
    changed = with_data(b"\xef\xbb\xbfdata: old\n" + more + b"id: 1\n\n", b"new")
    assert parse_event(changed) == Event(b"new", "message", "1")
    assert b"old" not in changed
