"""Arguments that a tool's schema wants repeated in headers (`x-mcp-header`): clients send them, servers check them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from fairway.mcp.protocol import PARAM_HEADER_KEY, PARAM_HEADER_PREFIX, decode_header_value, encode_header_value

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_TYPES: Final = ("string", "integer", "boolean")

# keywords under which further schemas stand, by the shape of their value; data (default, enum, const, examples) is not
# looked at, and no reference is followed
_ONE: Final = frozenset(
    [
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
        *("not", "if", "then", "else", "contentSchema"),
    ]
)
_MANY: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_NAMED: Final = frozenset(["patternProperties", "dependentSchemas", "$defs", "definitions"])


class InvalidAnnotationError(ValueError):
    """An `x-mcp-header` that clients have to answer by dropping the whole tool."""


@dataclass(frozen=True, slots=True)
class MirroredArgument:
    """One argument and the header that repeats it."""

    path: tuple[str, ...]
    header: str
    type: str

    @property
    def key(self) -> str:
        """The header's name as received."""
        return self.header.lower()


def mirrored_arguments(schema: Mapping[str, Any]) -> tuple[MirroredArgument, ...]:
    """The annotations of an input schema; raises `InvalidAnnotationError` when one breaks the specification's rules."""
    found: dict[str, MirroredArgument] = {}
    for path, position in _positions(schema):
        if PARAM_HEADER_KEY not in position:
            continue
        name = position[PARAM_HEADER_KEY]
        if not path:
            raise InvalidAnnotationError(f"{PARAM_HEADER_KEY} {name!r} does not stand on a plain property of the input")
        where = ".".join(path)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise InvalidAnnotationError(f"{PARAM_HEADER_KEY} of {where} is not a header name")
        kind = position.get("type")
        if kind not in _TYPES:
            raise InvalidAnnotationError(f"{PARAM_HEADER_KEY} of {where}: only a string, integer or boolean can travel")
        mirrored = MirroredArgument(path, f"{PARAM_HEADER_PREFIX}{name}", kind)
        if mirrored.key in found:
            raise InvalidAnnotationError(f"{PARAM_HEADER_KEY} {name} stands on {where} and on another property")
        found[mirrored.key] = mirrored
    return tuple(found.values())


def _positions(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every schema inside, with its path of property names, or None where more than properties lead there."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, Mapping):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, Mapping):
                stack += [(None if path is None else (*path, name), below) for name, below in value.items()]
            elif keyword in _ONE:
                stack.append((None, value))
            elif (keyword in _MANY and isinstance(value, Sequence)) and not isinstance(value, str):
                stack += [(None, below) for below in value]
            elif keyword in _NAMED and isinstance(value, Mapping):
                stack += [(None, below) for below in value.values()]


def mirrored_headers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """What a client sends; arguments that are absent or null get none. Raises `InvalidAnnotationError`."""
    texts = {one.header: _text(_value(arguments, one.path)) for one in mirrored_arguments(schema)}
    return {header: encode_header_value(text) for header, text in texts.items() if text is not None}


def mismatch(
    mirrored: Sequence[MirroredArgument], arguments: Mapping[str, Any], headers: Mapping[str, str]
) -> str | None:
    """What is wrong between the arguments and the headers of a call, in lower case; None when they agree."""
    for one in mirrored:
        sent = headers.get(one.key)
        argument = ".".join(one.path)
        value = _value(arguments, one.path)
        text = _text(value)
        if text is None:
            if sent is not None:
                return f"{one.header} is sent, but the argument {argument} cannot stand in a header or is absent"
        elif sent is None:
            return f"{one.header} is missing: it has to repeat the argument {argument}"
        else:
            decoded = decode_header_value(sent) if sent.isascii() else None
            if decoded is None:
                return f"{one.header} is neither plain ASCII nor valid base64"
            if decoded != text and not (one.type == "integer" and _same_integer(decoded, value)):
                return f"{one.header} does not repeat the argument {argument}"
    return None


def _value(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = arguments
    for name in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(name)
    return node


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:  # an integer of thousands of digits
            return None
    return None


def _same_integer(sent: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _NUMBER.fullmatch(sent):
        return False
    try:
        number = Decimal(sent)
        return number == number.to_integral_value() and number == Decimal(value)
    except (InvalidOperation, ValueError):
        return False
