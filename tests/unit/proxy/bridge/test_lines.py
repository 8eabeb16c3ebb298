"""Lines out of pieces: the same lines however the bytes are cut, at a cost that grows with the bytes alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.proxy.bridge.lines import LineSplitter, LineTooLong


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_lines_do_not_depend_on_where_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [line for a, b in itertools.pairwise(edges) for line in splitter.feed(data[a:b])]
    assert found == data.split(b"\n")[:-1]


def test_a_line_in_many_pieces_is_joined_once() -> None:
    splitter = LineSplitter()
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\nab") == [b"x" * 1_000_000]
    assert splitter.feed(b"c\n") == [b"abc"]


@pytest.mark.parametrize(
    "pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 6, b"x" * 5 + b"\n"], [b"x" * 11 + b"\n"]]
)
def test_a_line_without_end_is_not_collected_for_ever(pieces: list[bytes]) -> None:
    splitter = LineSplitter(limit=10)
    with pytest.raises(LineTooLong, match="larger than 10 bytes"):
        for piece in pieces:
            splitter.feed(piece)
