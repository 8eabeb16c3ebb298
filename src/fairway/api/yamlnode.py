"""YAML as Kubernetes reads it: JSON's values and no others, each with its place in the file.

PyYAML composes nodes, which know where they stand; what JSON cannot say, and what a person hardly meant, is refused on
the nodes, before a value is built. Unlike in PyYAML's own reading, a time stamp and `12:30` are strings, `1e3` is a
number, and every key is a string as written.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str | int, ...]

ALIASED_AT_MOST = 100_000
"""Nodes that aliases may add by repeating others. A few lines can ask for billions."""

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_TAGS = frozenset(_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge"))
_INTEGERS = range(-(2**63), 2**64)


class Fault(ValueError):
    """What is wrong, and where: line and column count from one."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    @classmethod
    def at(cls, mark: Any, message: str) -> "Fault":
        return cls(message, mark.line + 1, mark.column + 1)


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as the YAML library of Kubernetes does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in ("null", "bool", "merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _TAG + "int", re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)


def documents(text: str) -> Iterator[yaml.Node]:
    """The documents that hold anything; raises Fault where the text is no YAML or no JSON could say it."""
    try:
        for node in yaml.compose_all(text, Loader=_Loader):
            if not (isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null"):
                _examine(node)
                yield node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "not YAML"
        hint = "; indent with spaces" if "'\\t'" in what else ""
        raise Fault(f"not valid YAML: {what}{hint}", *((mark.line + 1, mark.column + 1) if mark else (1, 1))) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - (before.rfind("\n") + 1) + 1
        message = f"not valid YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        raise Fault(message, before.count("\n") + 1, column) from None
    except RecursionError:
        raise Fault("not a manifest: nested too deeply", 1, 1) from None


def value_of(node: yaml.Node) -> Any:
    """The value of a node that `documents` gave, or of one inside it."""
    match node:
        case yaml.MappingNode():
            return _mapping(node)
        case yaml.SequenceNode():
            return [value_of(item) for item in node.value]
    return _scalar(node)


def mark_of(node: yaml.Node, path: Path) -> Any:
    """Where a path starts: the key if it exists, else the nearest part of it that does."""
    mark = node.start_mark
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == part), None)
            if pair is None:
                return mark
            mark, node = pair[0].start_mark, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
        else:
            return mark
    return mark


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in node.value:
        if key.tag == _MERGE:
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in reversed(sources):  # of several, the first wins
                merged |= _mapping(source)
        else:
            own[key.value] = value_of(value)
    return merged | own


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in ("yes", "true", "on")
        case "int":
            return _integer(text)
        case "float":
            return float(text)
    return text


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return int(text, 8)  # 0755


def _examine(root: yaml.Node) -> None:
    """Raises Fault for the first thing in the document, in no particular order, that no JSON object could be."""
    own = 0
    sizes: dict[int, int] = {}
    inside: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, done = waiting.pop()
        if done:
            inside.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            if sizes[id(node)] - own > ALIASED_AT_MOST:
                raise Fault.at(node.start_mark, "not a manifest: its aliases stand for too many values")
        elif id(node) in inside:
            raise Fault.at(node.start_mark, "not valid YAML: an alias stands inside what it stands for")
        elif id(node) not in sizes:
            own += 1
            _examine_one(node)
            inside.add(id(node))
            waiting.append((node, True))
            waiting += [(child, False) for child in _children(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [value for _, value in node.value]
        case yaml.SequenceNode():
            return list(node.value)
    return []


def _examine_one(node: yaml.Node) -> None:
    match node:
        case yaml.MappingNode():
            _examine_keys(node)
        case yaml.ScalarNode():
            _examine_scalar(node)
    if node.tag not in _TAGS or (node.tag == _MERGE and not isinstance(node, yaml.ScalarNode)):
        tag = f"!!{node.tag.removeprefix(_TAG)}" if node.tag.startswith(_TAG) else node.tag
        raise Fault.at(node.start_mark, f"{tag}: Kubernetes knows no such type; write a string, number, list or map")


def _examine_keys(node: yaml.MappingNode) -> None:
    """YAML libraries let the last one win in silence; a person who wrote a key twice wants to know."""
    seen = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _TAG + "null":
            raise Fault.at(key.start_mark, "not a manifest: a key must be a string")
        _examine_scalar(key)
        if key.tag == _MERGE:
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            if not all(isinstance(source, yaml.MappingNode) for source in sources):
                raise Fault.at(value.start_mark, "not valid YAML: << takes a map, or a list of maps")
        elif key.value in seen:
            raise Fault.at(key.start_mark, f"{key.value}: given twice")
        seen.add(key.value)


def _examine_scalar(node: yaml.ScalarNode) -> None:
    try:
        node.value.encode()
    except UnicodeEncodeError:
        raise Fault.at(node.start_mark, "not valid text: half of a surrogate pair") from None
    kind = node.tag.removeprefix(_TAG)
    if kind in ("int", "float"):
        try:
            good = len(node.value) <= 100 and (
                _integer(node.value) in _INTEGERS if kind == "int" else abs(float(node.value)) < float("inf")
            )
        except ValueError:  # !!int x
            good = False
        if not good:
            raise Fault.at(node.start_mark, f"not a number that JSON knows: {node.value[:40]}")
    elif kind == "bool" and node.value.lower() not in ("yes", "no", "true", "false", "on", "off"):
        raise Fault.at(node.start_mark, f"neither true nor false: {node.value[:40]}")
