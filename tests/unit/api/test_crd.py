from typing import Annotated

import pytest
from pydantic import Field

from fairway.api.crd import NotStructural, crds, schema_of
from fairway.api.schema import Cel, ListMap, Model


class Item(Model):
    name: str


class Nested(Model):
    depth: int = 1


class Sample(Model):
    cel_rules = (Cel("self.a > 0", "a must be positive", lambda s: s.a > 0),)

    a: Annotated[int, Field(gt=0, lt=10)] = 1
    """How many."""
    optional: str | None = None
    port: int | str | None = None
    items: Annotated[list[Item], ListMap(("name",))] = []
    nested: Nested = Nested()
    labels: dict[str, str] = {}


def test_an_optional_field_is_absent_and_never_null():
    assert schema_of(Sample)["properties"]["optional"] == {"type": "string"}


def test_an_integer_or_string_becomes_the_one_union_that_kubernetes_has():
    assert schema_of(Sample)["properties"]["port"] == {"x-kubernetes-int-or-string": True}


def test_exclusive_bounds_are_written_in_the_old_way():
    field = schema_of(Sample)["properties"]["a"]
    assert field["minimum"] == 0
    assert field["exclusiveMinimum"] is True
    assert field["maximum"] == 10
    assert field["exclusiveMaximum"] is True
    assert field["description"] == "How many."


def test_a_nested_default_is_empty_so_that_the_inner_defaults_cascade():
    nested = schema_of(Sample)["properties"]["nested"]
    assert nested["default"] == {}
    assert nested["properties"]["depth"]["default"] == 1


def test_list_keys_and_rules_reach_the_schema():
    schema = schema_of(Sample)
    assert schema["properties"]["items"]["x-kubernetes-list-map-keys"] == ["name"]
    assert schema["x-kubernetes-validations"] == [{"rule": "self.a > 0", "message": "a must be positive"}]


def test_references_are_written_out():
    assert "$ref" not in str(crds())
    assert "$defs" not in str(crds())


def test_a_union_is_refused_with_what_to_write_instead():
    class Bad(Model):
        either: Item | Nested

    with pytest.raises(NotStructural, match=r"Bad\.either: a union; use one optional member"):
        schema_of(Bad)


class Tree(Model):
    children: "list[Tree]" = []


def test_a_model_that_contains_itself_is_refused():
    with pytest.raises(NotStructural, match="contains itself"):
        schema_of(Tree)


def test_every_field_that_users_write_is_described():
    def undescribed(schema, at):
        for name, field in schema.get("properties", {}).items():
            if not field.get("description"):
                yield f"{at}.{name}"
            yield from undescribed(field, f"{at}.{name}")
            yield from undescribed(field.get("items", {}), f"{at}.{name}[]")

    for document in crds().values():
        schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            assert not list(undescribed(schema["properties"][part], part))
