"""Parameters as schemas, and arguments checked against them: what a schema admits, the function gets."""

import datetime
import enum
import inspect
import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from fairway.tools.arguments import Arguments, InvalidArgumentsError, UnsupportedSignatureError
from fairway.tools.docstring import parse_docstring


def arguments(function):
    hints = inspect.get_annotations(function, eval_str=True)
    return Arguments(function, hints, parse_docstring(function.__doc__))


def bound(function, **sent):
    """What the function would be called with."""
    positional, named = arguments(function).bind(json.dumps(sent).encode())
    return inspect.signature(function).bind(*positional, **named).arguments


def refused(function, **sent):
    with pytest.raises(InvalidArgumentsError) as caught:
        bound(function, **sent)
    return str(caught.value)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class City(BaseModel):
    name: str
    people: int | None = None


class Box(TypedDict):
    width: float
    height: float


def test_a_schema_says_type_default_and_description():
    def f(a: int, b: float = 1.5, *, c: bool = False, d: list[str] = ["x"], e: dict[str, int] | None = None):  # noqa: B006
        """F.

        Args:
            a: the first
            c: whether
        """

    assert arguments(f).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "number", "default": 1.5},
            "c": {"type": "boolean", "default": False, "description": "whether"},
            "d": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
            "e": {
                "anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_no_parameters_admit_an_empty_object_only():
    assert arguments(lambda: 0).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_parameter_without_annotation_admits_anything():
    assert arguments(lambda a: 0).schema["properties"] == {"a": {}}
    assert bound(lambda a: 0, a=[1, {"b": None}]) == {"a": [1, {"b": None}]}


def test_types_arrive_as_python_has_them():
    def f(
        colour: Colour,
        level: Level,
        point: Point,
        city: City,
        box: Box,
        unit: Literal["m", "cm"],
        day: datetime.date,
        pair: tuple[int, str],
        tags: set[str],
        raw: bytes,
    ): ...

    got = bound(
        f,
        colour="blue",
        level=2,
        point={"x": 1},
        city={"name": "Ulm"},
        box={"width": 1, "height": 2.5},
        unit="cm",
        day="2026-11-18",
        pair=[1, "a"],
        tags=["a", "b"],
        raw="/+8=",
    )
    assert got == {
        "colour": Colour.BLUE,
        "level": Level.HIGH,
        "point": Point(1),
        "city": City(name="Ulm"),
        "box": {"width": 1.0, "height": 2.5},
        "unit": "cm",
        "day": datetime.date(2026, 11, 18),
        "pair": (1, "a"),
        "tags": {"a", "b"},
        "raw": b"\xff\xef",
    }


def test_parameters_may_be_named_like_anything_in_pydantic():
    def f(json: int, schema: str, model_config: int, copy: int = 1, _hidden: int = 2, self_: int = 3): ...

    assert bound(f, json=1, schema="s", model_config=2, _hidden=5) == {
        "json": 1,
        "schema": "s",
        "model_config": 2,
        "_hidden": 5,
    }


def test_an_argument_that_is_not_sent_keeps_the_functions_own_default():
    cache: dict[str, Any] = {}

    def f(a: int, memory: dict[str, Any] = cache): ...

    assert bound(f, a=1) == {"a": 1}


def test_positional_only_parameters_are_passed_in_place():
    def f(a: int, b: int = 2, c: int = 3, /, d: int = 4): ...

    assert bound(f, a=1) == {"a": 1}
    assert bound(f, a=1, c=9) == {"a": 1, "b": 2, "c": 9}
    assert bound(f, a=1, d=9) == {"a": 1, "d": 9}


def test_a_field_as_default_is_a_default_and_a_description():
    def f(a: int = Field(description="how many", ge=1), b: int = Field(default=7)): ...

    assert arguments(f).schema["properties"]["a"] == {"type": "integer", "minimum": 1, "description": "how many"}
    assert arguments(f).schema["required"] == ["a"]
    assert bound(f, a=2) == {"a": 2, "b": 7}


def test_an_annotation_may_describe_and_limit():
    def f(a: Annotated[int, Field(ge=1, description="from the annotation")] = 5):
        """F.

        Args:
            a: from the docstring
        """

    assert arguments(f).schema["properties"]["a"] == {
        "type": "integer",
        "minimum": 1,
        "default": 5,
        "description": "from the annotation",
    }
    assert refused(f, a=0) == "argument 'a': Input should be greater than or equal to 1, not 0"


def test_none_as_default_admits_null():
    def f(a: int = None, b: Optional[int] = None): ...  # noqa: RUF013, UP045

    assert bound(f, a=None, b=None) == {"a": None, "b": None}
    assert bound(f, a=3) == {"a": 3}


def test_a_default_that_json_cannot_express_stays_out_of_the_schema():
    unset = object()

    def f(a: Any = unset): ...

    assert arguments(f).schema["properties"] == {"a": {}}


def test_every_problem_is_named_with_its_argument():
    def f(first: int, second: str, point: Point): ...

    said = refused(f, first="x", point={"x": [], "z": 1}, secnd="a")
    assert said.split("; ") == [
        "argument 'first': Input should be a valid integer, unable to parse string as an integer, not \"x\"",
        "argument 'second' is missing",
        "argument 'point.x': Input should be a valid integer, not []",
        "argument 'point.z': Unexpected keyword argument, not 1",
        "there is no argument 'secnd', did you mean 'second'?",
    ]


def test_what_is_said_stays_short():
    def f(a: int): ...

    said = refused(f, a="x" * 10_000, **{f"b{n}": n for n in range(100)})
    assert len(said) < 500
    assert said.endswith("and 96 more")


@pytest.mark.parametrize("sent", [b'{"a": ', b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\xff"}', b"[]", b'{"a":' * 300])
def test_arguments_that_are_no_json_are_refused(sent):
    def f(a: float): ...

    with pytest.raises(InvalidArgumentsError):
        arguments(f).bind(sent)


@pytest.mark.parametrize("function", [lambda *a: 0, lambda **a: 0])
def test_a_tools_arguments_have_names(function):
    with pytest.raises(UnsupportedSignatureError, match="arguments have names"):
        arguments(function)


def test_a_type_that_json_does_not_have_is_named():
    class Database: ...

    def f(a: int, db: Database): ...

    def g(a: int, when: type): ...

    for function, name in ((f, "'db'"), (g, "'when'")):
        hints = {p.name: p.annotation for p in inspect.signature(function).parameters.values()}
        with pytest.raises(UnsupportedSignatureError, match=f"argument {name}: .* cannot be described as JSON"):
            Arguments(function, hints, parse_docstring(None))


# what the schema promises and what the function gets are the same thing

TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**70), 2**70),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**40), 2**40),
    str: st.text(max_size=5),
    bool: st.booleans(),
    Colour: st.sampled_from(["red", "blue"]),
    Literal["a", 1]: st.sampled_from(["a", 1]),
    City: st.fixed_dictionaries({"name": st.text(max_size=3)}, optional={"people": st.none() | st.integers(0, 9)}),
    Point: st.fixed_dictionaries({"x": st.integers(0, 9)}, optional={"y": st.integers(0, 9)}),
    Box: st.fixed_dictionaries({"width": st.integers(0, 9), "height": st.floats(0, 9)}),
}


def composed(below):
    kind = below.flatmap
    return st.one_of(
        below.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        below.map(lambda pair: (dict[str, pair[0]], st.dictionaries(st.text(max_size=3), pair[1], max_size=3))),
        kind(lambda pair: st.just((Optional[pair[0]], st.none() | pair[1]))),  # noqa: UP045
    )


typed = st.recursive(st.sampled_from(list(TYPES.items())), composed, max_leaves=3)
anything = st.recursive(
    # a whole number beyond 2**53 that is spelt as a fraction is no integer to the validator, but is one to the schema
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-(2**53), 2**53) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=3), below, max_size=2),
    max_leaves=4,
)


def function_of(kind):
    def f(a): ...

    return Arguments(f, {"a": kind}, parse_docstring(None))


def as_json(value):
    if isinstance(value, BaseModel):
        return {name: as_json(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, Point):
        return {"x": value.x, "y": value.y}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list) else value


def same(got, sent):
    if isinstance(sent, dict):
        return isinstance(got, dict) and sent.keys() <= got.keys() and all(same(got[key], sent[key]) for key in sent)
    if isinstance(sent, list):
        return isinstance(got, list) and len(got) == len(sent) and all(map(same, got, sent))
    if isinstance(sent, float) or isinstance(got, float):
        return math.isclose(got, sent)
    return got == sent


@settings(max_examples=150, deadline=None)
@given(st.data(), typed)
def test_a_value_of_the_type_fits_the_schema_and_arrives_unchanged(data, pair):
    kind, values = pair
    value = data.draw(values)
    made = function_of(kind)
    jsonschema.Draft202012Validator(made.schema).validate({"a": value})
    _, named = made.bind(json.dumps({"a": value}).encode())
    assert same(as_json(named["a"]), value)


@settings(max_examples=150, deadline=None)
@given(typed, anything)
def test_whatever_the_schema_admits_is_accepted(pair, value):
    made = function_of(pair[0])
    if jsonschema.Draft202012Validator(made.schema).is_valid({"a": value}):
        made.bind(json.dumps({"a": value}).encode())


@settings(max_examples=100, deadline=None)
@given(typed)
def test_every_schema_is_a_valid_schema(pair):
    jsonschema.Draft202012Validator.check_schema(function_of(pair[0]).schema)
