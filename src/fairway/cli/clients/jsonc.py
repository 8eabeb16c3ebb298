"""JSON with comments, as editors keep their settings: one member set, everything else left as it stands. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_INDENT = "  "
_DEEPEST = 200


class NotJson(ValueError):
    """The text cannot be read; the message says where."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Any
    members: "dict[str, Member]" = field(default_factory=dict)
    trailing_comma: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: where its key begins, and its value."""

    start: int
    node: Node


def loads(text: str) -> Any:
    """The value; comments and commas behind the last member are allowed, as editors allow them."""
    return _Reader(text).document().value


def with_member(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at `path`, objects made on the way. Raises NotJson where something else is in the way."""
    if not text.strip():
        text = "{}\n"
    node, depth = _Reader(text).document(), 0
    for position, key in enumerate(path):
        if not isinstance(node.value, dict):
            where = ".".join(path[:position]) or "the file"
            raise NotJson(f"{where} is no object, so nothing can be put into it")
        depth += 1
        if key not in node.members:
            return _inserted(text, node, key, _nested(path[position + 1 :], value), depth)
        node = node.members[key].node
    if json.dumps(node.value) == json.dumps(value):
        return text  # however it is written there
    return text[: node.start] + _written(value, depth, text) + text[node.end :]


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _inserted(text: str, obj: Node, key: str, value: Any, depth: int) -> str:
    brace = obj.end - 1
    indent = _indent_of(text, obj, depth)
    member = f"{indent}{json.dumps(key)}: {_written(value, depth, text)}"
    before_brace = text[obj.start : brace].rstrip()
    outer = indent[: -len(_unit(text))] if indent.endswith(_unit(text)) else indent
    if not obj.members:
        return f"{text[: obj.start]}{before_brace}\n{member}\n{outer}{text[brace:]}"
    last = max(member.node.end for member in obj.members.values())
    comma = "" if obj.trailing_comma else ","
    kept = text[: obj.start] + before_brace
    return f"{kept[:last]}{comma}{kept[last:]}\n{member}\n{outer}{text[brace:]}"


def _indent_of(text: str, obj: Node, depth: int) -> str:
    for member in obj.members.values():
        line = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if not line.strip():
            return line
    return _unit(text) * depth


def _unit(text: str) -> str:
    """What the file indents with."""
    for line in text.splitlines():
        inner = line[: len(line) - len(line.lstrip())]
        if inner and line.strip().startswith('"'):
            return "\t" if inner.startswith("\t") else inner
    return _INDENT


def _written(value: Any, depth: int, text: str) -> str:
    unit = _unit(text)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + unit * depth)


class _Reader:
    """A recursive descent over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0

    def document(self) -> Node:
        self._skip()
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("more after the end")
        return node

    def _value(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self._wrong("nested too deeply")
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case _:
                return self._scalar()

    def _object(self, depth: int) -> Node:
        start, members, comma = self._at, dict[str, Member](), True
        self._at += 1
        while True:
            self._skip()
            if self._peek() == "}":
                self._at += 1
                value = {key: member.node.value for key, member in members.items()}
                return Node(start, self._at, value, members, comma and bool(members))
            if not comma or self._peek() != '"':
                raise self._wrong('expected "a name", or the end of the object')
            key_start, key = self._at, self._scalar().value
            self._skip()
            if self._peek() != ":":
                raise self._wrong("expected a colon")
            self._at += 1
            self._skip()
            members[key] = Member(key_start, self._value(depth + 1))
            comma = self._comma()

    def _array(self, depth: int) -> Node:
        start, items, comma = self._at, list[Any](), True
        self._at += 1
        while True:
            self._skip()
            if self._peek() == "]":
                self._at += 1
                return Node(start, self._at, items)
            if not comma:
                raise self._wrong("expected a comma, or the end of the list")
            items.append(self._value(depth + 1).value)
            comma = self._comma()

    def _comma(self) -> bool:
        self._skip()
        if self._peek() == ",":
            self._at += 1
            return True
        return False

    def _scalar(self) -> Node:
        start = self._at
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._text, start)
        except ValueError:
            raise self._wrong("expected a value") from None
        return Node(start, self._at, value)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        """White space and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] in " \t\r\n":
                self._at += 1
            elif text.startswith("//", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                if end < 0:
                    raise self._wrong("a comment without an end")
                self._at = end + 2
            else:
                return

    def _wrong(self, what: str) -> NotJson:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - (self._text.rfind("\n", 0, self._at) + 1) + 1
        return NotJson(f"line {line}, column {column}: {what}")
