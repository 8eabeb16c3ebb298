"""Words like `a=2` as the arguments of a tool, read as the tool's own schema wants them. Pure."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any


class InvalidArgument(ValueError):
    """Something that the user typed; the message says what is expected."""


def arguments_of(words: Sequence[str], given_json: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments from `--json` and from key=value words, which win over it."""
    arguments = _object(given_json) if given_json is not None else {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key:
            raise InvalidArgument(f"{word!r} is no argument; write key=value, or everything as --json '{{...}}'")
        arguments[key] = _value(key, text, schema)
    return arguments


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"--json: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument("--json: expected an object, such as '{\"a\": 2}'")
    return value


def _value(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties") or {}
    if key not in properties and properties and schema.get("additionalProperties") in (False, None):
        close = get_close_matches(key, properties, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; it takes {', '.join(properties)}"
        raise InvalidArgument(f"the tool has no argument {key!r}{hint}")
    types = _types(properties.get(key) or {}, schema)
    if types == {"string"}:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if types and "string" not in types:
            raise InvalidArgument(f"{key}: {text!r} is no {' or '.join(sorted(types))}, in JSON") from None
        return text
    if "string" in types and _type_of(value) not in types:
        return text  # a word that happens to read as JSON, where the tool takes text
    return value


def _types(property_: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """The JSON types that a property admits; empty if the schema does not say."""
    if depth > 8:
        return set()
    reference = property_.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        return _types(target, root, depth + 1) if isinstance(target, Mapping) else set()
    stated = property_.get("type")
    if isinstance(stated, str):
        return {stated}
    if isinstance(stated, list):
        return {t for t in stated if isinstance(t, str)}
    choices = property_.get("enum")
    if isinstance(choices, list):
        return {_type_of(choice) for choice in choices}
    found: set[str] = set()
    for alternative in (*(property_.get("anyOf") or ()), *(property_.get("oneOf") or ())):
        inner = _types(alternative, root, depth + 1) if isinstance(alternative, Mapping) else set()
        if not inner:
            return set()
        found |= inner
    return found


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"
