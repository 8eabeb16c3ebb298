"""What a function returns, as MCP wants it: text for a model, and a structured value that keeps the promised schema."""

import typing
from typing import Any

import msgspec
import pydantic_core
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from fairway.mcp.server import ToolResult, text_block
from fairway.tools.arguments import CONFIG, UnsupportedSignatureError, json_schema, type_problem


class BrokenPromiseError(Exception):
    """The function returned something else than it declares."""


class Returned:
    """Turns return values into results. `schema` is None where nothing was promised.

    Clients of the session era know only objects as structured results, so anything else is wrapped as
    `{"result": ...}`; in both eras alike, since a list of tools that depends on who asks would look like a change.
    """

    schema: dict[str, Any] | None = None

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._wrapped = False
        if annotation in (None, type(None), Any):
            return
        try:
            self._adapter = _adapter(annotation)
            schema = json_schema(self._adapter, "serialization")
        except (PydanticUserError, TypeError) as error:
            raise UnsupportedSignatureError(f"the return type: {type_problem(annotation) or error}") from None
        if _is_object(schema):
            self.schema = {"type": "object"} | schema
        else:
            self._wrapped = True
            definitions = schema.pop("$defs", None)
            self.schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
            if definitions is not None:
                self.schema["$defs"] = definitions

    def result(self, value: Any) -> ToolResult:
        if self._adapter is None:
            return _unpromised(value)
        try:
            json = self._adapter.dump_json(self._adapter.validate_python(value), by_alias=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = "".join(f".{step}" for step in first["loc"])
            raise BrokenPromiseError(
                f"it returned {type(value).__name__}, which is not what it declares: value{where}: {first['msg']}"
            ) from None
        except pydantic_core.PydanticSerializationError as error:
            raise BrokenPromiseError(f"it returned what JSON cannot carry: {error}") from None
        structured = b'{"result":%b}' % json if self._wrapped else json
        return ToolResult(content=[text_block(_text(value, json))], structured=msgspec.Raw(structured))


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=CONFIG)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # a model brings its own


def _is_object(schema: typing.Mapping[str, Any]) -> bool:
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):  # a model that contains itself
        schema = schema["$defs"][reference.removeprefix("#/$defs/")]
    return schema.get("type") == "object"


def _unpromised(value: Any) -> ToolResult:
    if value is None:
        return ToolResult(content=[])
    json = pydantic_core.to_json(value, by_alias=True, bytes_mode="base64", serialize_unknown=True)
    return ToolResult(content=[text_block(_text(value, json))])


def _text(value: Any, json: bytes) -> str:
    return value if type(value) is str else json.decode()
