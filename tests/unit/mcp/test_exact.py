"""JSON that two parsers could read differently is refused, wherever it is nested; all other JSON is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.mcp import exact

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda value: st.lists(value, max_size=4) | st.dictionaries(st.text("abcd", max_size=2), value, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_what_json_writes_is_read_back(value):
    assert exact.read(json.dumps(value).encode()) == value
    assert exact.read(memoryview(json.dumps(value, ensure_ascii=False).encode())) == value


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"A":2}',
        b'[[{"x":{"a":1,"\\u0061":2}}]]',
        '{"stra\u00dfe":1,"STRASSE":2}'.encode(),
        '{"k":1,"\u212a":2}'.encode(),
        b"NaN",
        b"[-Infinity]",
        b"[1,]",
        b"{'a':1}",
        b"// x\n1",
        b'"\\ud800"',
        b'{"\\udc00":1}',
        b'["\\ud83d","\\ude00"]',
        b'"\xff"',
        b'"a\nb"',
        b"\xef\xbb\xbf1",
        '"\u00e9"'.encode("utf-16"),
        b"",
        b" ",
        b"1 2",
        b"01",
        b"[" * 100_000,
        b"[" * 5000 + b"]" * 5000,
        b"9" * 10_000,
    ],
)
def test_what_can_be_read_in_two_ways_or_none_is_refused(text):
    with pytest.raises(exact.Ambiguous):
        exact.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"a":{"x":1},"b":{"x":2}}', {"a": {"x": 1}, "b": {"x": 2}}),
        (b' {"a" : [ ] } \n', {"a": []}),
        (b"18446744073709551617", 18446744073709551617),
        (b'{"a":1,"b":2,"c":3}', {"a": 1, "b": 2, "c": 3}),
        (b'"\\\\ud800"', "\\ud800"),
    ],
)
def test_what_is_only_unusual_is_read(text, value):
    assert exact.read(text) == value
