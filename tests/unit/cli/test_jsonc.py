"""Settings with comments: one member changes, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.cli.clients.jsonc import NotJson, loads, with_member

SETTINGS = """\
// settings of an editor
{
    "theme": "dark", // at night
    "context_servers": {
        /* the old one */
        "old": {"url": "http://a // not a comment"},
    },
    "list": [1, 2, /* three */ 3,],
}
"""


def test_comments_and_trailing_commas_are_read():
    assert loads(SETTINGS) == {
        "theme": "dark",
        "context_servers": {"old": {"url": "http://a // not a comment"}},
        "list": [1, 2, 3],
    }


def test_a_new_member_leaves_every_other_line_as_it_was():
    after = with_member(SETTINGS, ("context_servers", "new"), {"url": "http://b"})
    assert loads(after)["context_servers"] == {"old": {"url": "http://a // not a comment"}, "new": {"url": "http://b"}}
    added = [line for line in after.splitlines() if line not in SETTINGS.splitlines()]
    assert added == ['        "new": {', '            "url": "http://b"', "        }"]
    assert [line for line in SETTINGS.splitlines() if line not in after.splitlines()] == []


def test_a_member_that_is_there_is_replaced():
    after = with_member(SETTINGS, ("context_servers", "old"), {"url": "http://b"})
    assert loads(after)["context_servers"] == {"old": {"url": "http://b"}}
    assert "/* the old one */" in after


@pytest.mark.parametrize("text", ["", "  \n", "{}", "{ }\n", '{"a": 1}', '{\n\t"a": 1\n}\n', "// only words\n{}"])
def test_objects_are_made_on_the_way(text):
    after = with_member(text, ("servers", "x"), {"url": "u"})
    assert loads(after) == {**(loads(text) if text.strip() else {}), "servers": {"x": {"url": "u"}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1, column 2"),
        ('{"a": }', "expected a value"),
        ('{"a" 1}', "expected a colon"),
        ('{"a": 1 "b": 2}', "expected"),
        ("{} {}", "more after the end"),
        ("/* no end", "a comment without an end"),
        ("[1 2]", "expected a comma"),
        ("[" * 5000, "nested too deeply"),
        ("[]", "the file is no object"),
        ('{"servers": []}', "servers is no object"),
    ],
)
def test_what_cannot_be_read_or_changed_is_said_with_its_place(text, words):
    with pytest.raises(NotJson, match=words):
        with_member(text, ("servers", "x"), 1)


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def test_what_is_there_already_stays_however_it_is_written():
    text = '{"": {"": [\n  null\n]}}'
    assert with_member(text, ("", ""), [None]) == text
    assert with_member('{"a": 1}', ("a",), True) == '{"a": true}'


@given(
    held=st.dictionaries(KEYS, VALUES, max_size=4),
    path=st.tuples(KEYS, KEYS),
    value=VALUES,
    indent=st.sampled_from([None, 2, 4, "\t"]),
)
def test_any_object_ends_up_with_the_member_and_otherwise_the_same(held, path, value, indent):
    inner = held.get(path[0], {})
    if not isinstance(inner, dict):
        return
    after = with_member(json.dumps(held, indent=indent), path, value)
    assert loads(after) == {**held, path[0]: {**inner, path[1]: value}}
    assert with_member(after, path, value) == after
