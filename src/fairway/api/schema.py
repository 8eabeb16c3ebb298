"""Base model of every API type, and the markers that become CRD schema."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class Cel:
    """A validation rule that the API server evaluates; in `Annotated[...]` for a field, in `cel_rules` for a whole model."""

    rule: str
    message: str

    def as_schema(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema.setdefault("x-kubernetes-validations", []).append(self.as_schema())
        return schema


@dataclass(frozen=True, slots=True)
class ListMap:
    """A list whose items are told apart by these keys, so that two writers can own different items."""

    keys: tuple[str, ...]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(self.keys)
        return schema


@dataclass(frozen=True, slots=True)
class ListSet:
    """A list without duplicates."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-list-type"] = "set"
        return schema


class Model(BaseModel):
    """A frozen API type: camelCase outside, snake_case inside, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )
    cel_rules: ClassVar[tuple[Cel, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = handler(core)
        if cls.cel_rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [c.as_schema() for c in cls.cel_rules]
        return schema

    def to_object(self) -> dict[str, Any]:
        """As Kubernetes writes it: camelCase, and nothing that is unset."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")
