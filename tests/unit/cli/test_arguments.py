"""Words as the arguments of a tool."""

import pytest

from fairway.cli.arguments import InvalidArgument, arguments_of

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "name": {"type": "string"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "level": {"$ref": "#/$defs/Level"},
        "choice": {"enum": [1, 2]},
        "whatever": {},
        "loop": {"$ref": "#/$defs/Loop"},
    },
    "$defs": {"Level": {"type": "string", "enum": ["1", "2"]}, "Loop": {"$ref": "#/$defs/Loop"}},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("count=2", 2),
        ("name=2", "2"),
        ("name=true", "true"),
        ("name=", ""),
        ("name=a=b", "a=b"),
        ("ratio=2.5", 2.5),
        ("flag=true", True),
        ('items=[1, "a"]', [1, "a"]),
        ("maybe=null", None),
        ("maybe=3", 3),
        ("either=3", 3),
        ("either=x", "x"),
        ("either=[1]", "[1]"),
        ("level=1", "1"),
        ("choice=1", 1),
        ("whatever=1", 1),
        ("whatever=x", "x"),
        ("loop=1", 1),
    ],
)
def test_a_word_is_read_as_the_schema_wants_it(word, value):
    ((key, read),) = arguments_of([word], None, SCHEMA).items()
    assert key == word.partition("=")[0]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("words", "given_json", "said"),
    [
        (["count"], None, "'count' is no argument; write key=value"),
        (["=1"], None, "'=1' is no argument"),
        (["count=x"], None, "count: 'x' is no integer, in JSON"),
        (["maybe=x"], None, "maybe: 'x' is no integer or null"),
        (["cuont=1"], None, "the tool has no argument 'cuont'; did you mean count?"),
        ([], "{", "--json: not JSON"),
        ([], "[1]", "--json: expected an object"),
    ],
)
def test_a_mistake_is_said_with_what_is_expected(words, given_json, said):
    with pytest.raises(InvalidArgument) as invalid:
        arguments_of(words, given_json, SCHEMA)
    assert said in str(invalid.value)


def test_words_win_over_json():
    assert arguments_of(["count=2"], '{"count": 1, "name": "x"}', SCHEMA) == {"count": 2, "name": "x"}


def test_a_tool_that_takes_anything_gets_anything():
    assert arguments_of(["a=1"], None, {"type": "object"}) == {"a": 1}
    free = {**SCHEMA, "additionalProperties": True}
    assert arguments_of(["new=1"], None, free) == {"new": 1}
