"""A function's parameters as a JSON Schema, and arguments checked against them before the function sees any."""

import difflib
import inspect
import typing
import warnings
from collections.abc import Mapping
from typing import Any, Final, Optional

import pydantic_core
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, PydanticJsonSchemaWarning

from fairway.tools.docstring import Docstring

CONFIG: Final = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    ser_json_bytes="base64",
    val_json_bytes="base64",
    protected_namespaces=(),
)
"""Unknown arguments are refused: a misspelt optional one would be ignored otherwise, and nobody would ever know."""

_MAX_PROBLEMS: Final = 5
_MAX_SHOWN: Final = 80


class UnsupportedSignatureError(Exception):
    """A parameter or its type cannot be described to a client."""


class InvalidArgumentsError(Exception):
    """What a caller sent does not fit. The message names each argument."""


class _Untitled(GenerateJsonSchema):
    """Without the titles that pydantic makes of names: they tell a model nothing and cost it tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class _Parameter(typing.NamedTuple):
    name: str
    positional_only: bool
    default: Any
    always_passed: bool


class Arguments:
    """The parameters of one function."""

    def __init__(self, function: typing.Callable[..., Any], hints: Mapping[str, Any], docstring: Docstring) -> None:
        self._parameters: dict[str, _Parameter] = {}
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(inspect.signature(function).parameters.values()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UnsupportedSignatureError(f"a tool's arguments have names, so it cannot take {parameter}")
            # a field's own name must not collide with a method of the model, or start with an underscore
            field = f"p{number}"
            default = parameter.default
            given = isinstance(default, FieldInfo)
            self._parameters[field] = _Parameter(
                parameter.name, parameter.kind is parameter.POSITIONAL_ONLY, default, always_passed=given
            )
            fields[field] = _field(parameter, hints.get(parameter.name, Any), docstring)
        try:
            self._model = create_model("Arguments", __config__=CONFIG, **fields)
            self.schema = json_schema(TypeAdapter(self._model), "validation")
            del self.schema["title"]
        except (PydanticUserError, TypeError) as error:
            raise UnsupportedSignatureError(self._culprit(fields) or str(error)) from None
        self._validate = self._model.__pydantic_validator__.validate_json
        self._plain = not any(p.positional_only or p.always_passed for p in self._parameters.values())

    def _culprit(self, fields: Mapping[str, Any]) -> str | None:
        for field, (annotation, _) in fields.items():
            problem = type_problem(annotation)
            if problem is not None:
                return f"argument {self._parameters[field].name!r}: {problem}"
        return None

    def bind(self, arguments: bytes) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with. An argument that was not sent is left to the function's own default."""
        try:
            model = self._validate(arguments)
        except ValidationError as error:
            raise InvalidArgumentsError(self._explain(error)) from None
        values = model.__dict__
        sent = model.__pydantic_fields_set__
        if self._plain:
            return [], {self._parameters[field].name: values[field] for field in sent}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        last = max(
            (n for n, (f, p) in enumerate(self._parameters.items()) if p.positional_only and f in sent), default=-1
        )
        for number, (field, parameter) in enumerate(self._parameters.items()):
            if parameter.positional_only and number <= last:
                positional.append(values[field] if field in sent or parameter.always_passed else parameter.default)
            elif field in sent or parameter.always_passed:
                named[parameter.name] = values[field]
        return positional, named

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False)
        problems = [self._problem(one) for one in errors[:_MAX_PROBLEMS]]
        if len(errors) > _MAX_PROBLEMS:
            problems.append(f"and {len(errors) - _MAX_PROBLEMS} more")
        return "; ".join(problems)

    def _problem(self, error: Mapping[str, Any]) -> str:
        where = ".".join(str(step) for step in error["loc"])
        match error["type"]:
            case "missing":
                return f"argument '{where}' is missing"
            case "extra_forbidden" if len(error["loc"]) == 1:
                names = [parameter.name for parameter in self._parameters.values()]
                near = difflib.get_close_matches(where, names, n=1)
                return f"there is no argument '{where}'" + (f", did you mean '{near[0]}'?" if near else "")
            case "json_invalid":
                return f"the arguments cannot be read: {error['msg']}"
        # as the caller wrote it, not as Python would
        shown = pydantic_core.to_json(error["input"], serialize_unknown=True, inf_nan_mode="constants").decode()
        if len(shown) > _MAX_SHOWN:
            shown = shown[:_MAX_SHOWN] + "..."
        return f"argument '{where}': {error['msg']}, not {shown}"


def _field(parameter: inspect.Parameter, annotation: Any, docstring: Docstring) -> tuple[Any, Any]:
    description = docstring.arguments.get(parameter.name)
    told: dict[str, Any] = {} if description is None or _described(annotation) else {"description": description}
    default = parameter.default
    if isinstance(default, FieldInfo):
        return typing.Annotated[annotation, default], Field(alias=parameter.name, **told)
    if default is inspect.Parameter.empty:
        return annotation, Field(alias=parameter.name, **told)
    if default is None:
        annotation = Optional[annotation]  # noqa: UP045 - `x: int = None` is common, and | is not defined for every hint
    return annotation, Field(default=default, alias=parameter.name, **told)


def _described(annotation: Any) -> bool:
    metadata = getattr(annotation, "__metadata__", ())
    return any(isinstance(one, FieldInfo) and one.description for one in metadata)


def type_problem(annotation: Any) -> str | None:
    """Why a type cannot go over the wire; None if it can."""
    try:
        json_schema(TypeAdapter(annotation), "validation")
    except (PydanticUserError, TypeError) as error:
        return f"{_type_name(annotation)} cannot be described as JSON ({str(error).splitlines()[0]})"
    return None


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def json_schema(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> dict[str, Any]:
    with warnings.catch_warnings():
        # a default that JSON cannot express is left out of the schema, which is right
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        return adapter.json_schema(mode=mode, schema_generator=_Untitled)
