"""Base model of every API type, and the markers that become CRD schema."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel, to_snake
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, slots=True)
class Cel:
    """One validation rule of a model, twice: for the API server, and for those who read a manifest without one."""

    rule: str
    message: str
    holds: Callable[[Any], bool]

    def as_schema(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True)
class ListMap:
    """A list whose items are told apart by these keys, so that two writers can own different items."""

    keys: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._without_doubles, handler(source))

    def _without_doubles(self, items: list[Any]) -> list[Any]:
        return _distinct(items, [tuple(getattr(item, to_snake(key)) for key in self.keys) for item in items])

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(self.keys)
        return schema


@dataclass(frozen=True, slots=True)
class ListSet:
    """A list without duplicates."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(lambda items: _distinct(items, items), handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-list-type"] = "set"
        return schema


def _distinct(items: list[Any], keys: list[Any]) -> list[Any]:
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{key[0] if isinstance(key, tuple) else key} is given twice")
        seen.add(key)
    return items


class Model(BaseModel):
    """A frozen API type: camelCase outside, snake_case inside, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        strict=True,  # as an API server reads it: "8080" is no port
    )
    cel_rules: ClassVar[tuple[Cel, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = handler(core)
        if cls.cel_rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [c.as_schema() for c in cls.cel_rules]
        return schema

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = [rule.message for rule in self.cel_rules if not rule.holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    def to_object(self) -> dict[str, Any]:
        """As Kubernetes writes it: camelCase, and nothing that is unset."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")
