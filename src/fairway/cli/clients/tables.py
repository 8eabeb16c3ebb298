"""One table of a TOML file, set or replaced, and everything else left as it stands. Pure."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_HEADER = re.compile(r"^\s*\[{1,2}(?P<name>[^\[\]]+)\]{1,2}\s*(#.*)?$")


class NotToml(ValueError):
    """The text cannot be read or changed; the message says why."""


def with_table(text: str, path: tuple[str, str], value: Mapping[str, Any]) -> str:
    """The text with `[first.second]` holding `value`, whose own maps become tables below it.

    Raises NotToml where the file is broken, or says the same thing in a form that a line edit cannot replace.
    """
    before = _read(text)
    kept, place = _without(text, path)
    block = "\n".join(_lines(path, value))
    after = f"{kept[:place].rstrip()}\n\n{block}\n\n{kept[place:].lstrip()}".strip() + "\n"
    expected = {**before, path[0]: {**before.get(path[0], {}), path[1]: dict(value)}}
    try:
        same = tomllib.loads(after) == expected
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise NotToml(f"{'.'.join(path)} is written there in a form that cannot be replaced; edit it by hand")
    return after


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from None


def _without(text: str, path: tuple[str, str]) -> tuple[str, int]:
    """The text without that table and those below it, and where it stood; at the end if there was none."""
    kept: list[str] = []
    place: int | None = None
    inside = False
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header is not None:
            inside = _names(header["name"])[:2] == path
        if inside:
            place = len("".join(kept)) if place is None else place
        else:
            kept.append(line)
    joined = "".join(kept)
    return joined, len(joined) if place is None else place


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _lines(path: tuple[str, ...], value: Mapping[str, Any]) -> list[str]:
    lines = [f"[{'.'.join(path)}]"]
    lines += [f"{key} = {json.dumps(item)}" for key, item in value.items() if not isinstance(item, Mapping)]
    for key, item in value.items():
        if isinstance(item, Mapping):
            lines += ["", *_lines((*path, key), item)]
    return lines
