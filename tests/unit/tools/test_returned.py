"""Return values: the promised schema is kept, or the caller is told that it was not."""

import datetime
import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, Optional

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from fairway.tools.arguments import UnsupportedSignatureError
from fairway.tools.returned import BrokenPromiseError, Returned


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


class City(BaseModel):
    name: str = Field(alias="cityName")
    founded: datetime.date | None = None


class Node(BaseModel):
    value: int
    below: list["Node"] = []


class Box(TypedDict):
    width: float


def given_back(annotation, value):
    returned = Returned(annotation)
    result = returned.result(value)
    assert not result.is_error
    structured = json.loads(bytes(result.structured))
    assert returned.schema["type"] == "object"
    jsonschema.Draft202012Validator(returned.schema).validate(structured)
    return structured, [block["text"] for block in result.content]


@pytest.mark.parametrize(
    ("annotation", "value", "structured", "text"),
    [
        (int, 10**30, {"result": 10**30}, str(10**30)),
        (float, 1.5, {"result": 1.5}, "1.5"),
        (bool, True, {"result": True}, "true"),
        (str, "grüße\n", {"result": "grüße\n"}, "grüße\n"),
        (list[int], [1, 2], {"result": [1, 2]}, "[1,2]"),
        (tuple[int, str], (1, "a"), {"result": [1, "a"]}, '[1,"a"]'),
        (Optional[int], None, {"result": None}, "null"),  # noqa: UP045
        (int | Point, Point(1), {"result": {"x": 1, "tags": []}}, '{"x":1,"tags":[]}'),
        (Colour, Colour.RED, {"result": "red"}, '"red"'),
        (bytes, b"\xff\xef", {"result": "_-8="}, '"_-8="'),
        (dict[str, int], {"a": 1}, {"a": 1}, '{"a":1}'),
        (Point, Point(1, ["a"]), {"x": 1, "tags": ["a"]}, '{"x":1,"tags":["a"]}'),
        (Point, {"x": 1}, {"x": 1, "tags": []}, '{"x":1,"tags":[]}'),
        (Box, {"width": 2}, {"width": 2.0}, '{"width":2.0}'),
        (
            City,
            City(cityName="Ulm", founded=datetime.date(854, 7, 22)),
            {"cityName": "Ulm", "founded": "0854-07-22"},
            '{"cityName":"Ulm","founded":"0854-07-22"}',
        ),
        (
            Node,
            Node(value=1, below=[Node(value=2)]),
            {"value": 1, "below": [{"value": 2, "below": []}]},
            '{"value":1,"below":[{"value":2,"below":[]}]}',
        ),
        (list[City], [City(cityName="Ulm")], {"result": [{"cityName": "Ulm", "founded": None}]}, None),
    ],
)
def test_a_promised_value_is_structured_and_text(annotation, value, structured, text):
    got, texts = given_back(annotation, value)
    assert got == structured
    if text is not None:
        assert texts == [text]


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (None, []),
        ("as it is", ["as it is"]),
        (7, ["7"]),
        ({"a": [1, None]}, ['{"a":[1,null]}']),
        (Point(1), ['{"x":1,"tags":[]}']),
        (City(cityName="Ulm"), ['{"cityName":"Ulm","founded":null}']),
        (b"\xff\xef", ['"_-8="']),
        ({1, }, ["[1]"]),
        (math.nan, ["NaN"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("annotation", [Any, None])
def test_without_a_promise_there_is_only_text(annotation, value, texts):
    returned = Returned(annotation)
    assert returned.schema is None
    result = returned.result(value)
    assert result.structured is None
    assert [block["text"] for block in result.content] == texts


def test_an_object_unknown_to_json_is_shown_as_it_shows_itself():
    class Thing:
        def __str__(self):
            return "a thing"

    assert Returned(Any).result({"it": Thing()}).content[0]["text"] == '{"it":"a thing"}'


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (int, "x", "it returned str, which is not what it declares: value: Input should be a valid integer"),
        (int, None, "it returned NoneType"),
        (str, {"a": 1}, "it returned dict"),
        (Point, {"x": "much"}, "value.x: Input should be a valid integer"),
        (dict[str, int], {"a": []}, "value.a: "),
        (float, math.nan, "Input should be a finite number"),
        (list[float], [1.0, math.inf], "value.1: Input should be a finite number"),
    ],
)
def test_a_broken_promise_is_told(annotation, value, said):
    with pytest.raises(BrokenPromiseError) as caught:
        Returned(annotation).result(value)
    assert said in str(caught.value)


def test_a_return_type_that_json_does_not_have_is_refused():
    class Database: ...

    with pytest.raises(UnsupportedSignatureError, match="the return type: Database cannot be described"):
        Returned(Database)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.none(), max_size=4))
def test_what_is_returned_arrives(value):
    assert given_back(dict[str, int | str | None], value)[0] == value
    assert given_back(list[Any], [value])[0] == {"result": [value]}
