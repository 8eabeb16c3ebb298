"""One entry of a map in a YAML file, set or replaced, and everything else left as it stands. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml


class NotYaml(ValueError):
    """The text cannot be read or changed; the message says why."""


def with_entry(text: str, path: tuple[str, str], value: Mapping[str, Any]) -> str:
    """The text with `value` under the top-level map `path[0]`, as its entry `path[1]`."""
    before = _read(text)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    top = _member(yaml.compose(text), path[0])
    if top is None:
        lines += [f"{path[0]}:\n", *_block(path[1], value, "  ")]
    else:
        lines = _placed(lines, *top, path, value)
    after = "".join(lines)
    held = before.get(path[0]) or {}
    try:
        same = yaml.safe_load(after) == {**before, path[0]: {**held, path[1]: dict(value)}}
    except yaml.YAMLError:
        same = False
    if not same:
        raise NotYaml(f"{path[0]}.{path[1]} is written there in a form that cannot be replaced; edit it by hand")
    return after


def _read(text: str) -> dict[str, Any]:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise NotYaml(f"{where}{getattr(error, 'problem', None) or 'not YAML'}") from None
    if value is not None and not isinstance(value, dict):
        raise NotYaml("the file is no map")
    return value or {}


def _member(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _placed(
    lines: list[str], key: yaml.Node, held: yaml.Node, path: tuple[str, str], value: Mapping[str, Any]
) -> list[str]:
    at = key.start_mark.line
    if not isinstance(held, yaml.MappingNode) or held.flow_style or not held.value:
        if isinstance(held, yaml.MappingNode) and held.value:
            raise NotYaml(f"{path[0]} is written on one line; write it as a block, or edit it by hand")
        end = held.end_mark.line if held.end_mark.column else max(held.end_mark.line - 1, at)
        return [*lines[:at], f"{path[0]}:\n", *_block(path[1], value, "  "), *lines[max(end, at) + 1 :]]
    indent = " " * held.value[0][0].start_mark.column
    old = _member(held, path[1])
    block = _block(path[1], value, indent)
    if old is None:
        first = held.value[0][0].start_mark.line
        return [*lines[:first], *block, *lines[first:]]
    start, end = old[0].start_mark.line, old[1].end_mark.line
    if old[1].end_mark.column and not isinstance(old[1], yaml.MappingNode | yaml.SequenceNode):
        end += 1
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1  # what stands between this entry and the next is not this entry's
    return [*lines[:start], *block, *lines[max(end, start + 1) :]]


def _block(name: str, value: Mapping[str, Any], indent: str) -> list[str]:
    text = yaml.safe_dump({name: dict(value)}, sort_keys=False, allow_unicode=True)
    return [f"{indent}{line}\n" for line in text.splitlines()]
