"""Fenced blocks of a Markdown page, and what the page says about running them.

A page says where its blocks run by `<!-- runs on: laptop -->` or `<!-- runs on: cluster -->` near its top; without it,
it has no commands. A block is left out by `<!-- not run: REASON -->` on a line of its own right before it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = frozenset({"console", "sh", "yaml", "json", "python", "text", "promql"})
PLACES = frozenset({"laptop", "cluster", ""})
_PLACE = re.compile(r"<!-- runs on: (.*?) -->")
_LEFT_OUT = re.compile(r"<!-- not run:(.*?)-->", re.DOTALL)
_OPENING = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[A-Za-z]*)(?P<rest>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    """The file that it is, for those who follow the page."""
    left_out: str = ""
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Page:
    """All blocks of one file, in order."""

    path: Path
    place: str
    blocks: tuple[Block, ...]


class Unfit(ValueError):
    """A page that cannot be understood; the message has file and line."""


def read(path: Path, *, root: Path) -> Page:
    text = path.read_text()
    place = match[1].strip() if (match := _PLACE.search(text)) else ""
    name = path.relative_to(root)
    if place not in PLACES:
        raise Unfit(f"{name}: there is no place {place!r}; known: laptop, cluster")
    return Page(name, place, tuple(_blocks(text, name)))


def _blocks(text: str, page: Path) -> list[Block]:
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = _OPENING.match(lines[number])
        number += 1
        if opening is None:
            continue
        start, indent, closing = number, opening["indent"], opening["fence"]
        while number < len(lines) and lines[number].strip() != closing:
            number += 1
        if number == len(lines):
            raise Unfit(f"{page}:{start}: the block is never closed")
        language = opening["language"]
        if language not in LANGUAGES:
            raise Unfit(f"{page}:{start}: say what the block is: one of {', '.join(sorted(LANGUAGES))}")
        title = match[1] if (match := _TITLE.search(opening["rest"])) else ""
        body = "\n".join(line.removeprefix(indent) for line in lines[start:number])
        found.append(Block(page, start, language, body, title, _reason(lines[: start - 1], page)))
        number += 1
    return found


def _reason(before: list[str], page: Path) -> str:
    """What the comment right above says, if there is one."""
    above = [*before]
    while above and not above[-1].strip():
        above.pop()
    if not above or not above[-1].rstrip().endswith("-->"):
        return ""
    first = max((i for i, line in enumerate(above) if "<!--" in line), default=0)
    match = _LEFT_OUT.search("\n".join(above[first:]))
    if match is None:
        return ""
    if not match[1].strip():
        raise Unfit(f"{page}:{len(above)}: `not run` needs a reason")
    return " ".join(match[1].split())


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a block, and what the page shows of its output; None where it shows nothing."""

    command: str
    shown: str | None


def steps(block: Block) -> list[Step]:
    """The commands of a block: all of `sh`, and those after a prompt in `console`."""
    if block.language == "sh":
        return [Step(command, None) for command in _joined(block.text.splitlines())]
    found: list[Step] = []
    command: list[str] = []
    shown: list[str] = []

    def done() -> None:
        if command:
            text = "\n".join(shown).strip("\n")
            found.append(Step("\n".join(command), text or None))

    for line in block.text.splitlines():
        if line.startswith("$ "):
            done()
            command, shown = [line.removeprefix("$ ")], []
        elif command and not shown and line.startswith("> "):
            command.append(line.removeprefix("> "))
        elif not command:
            raise Unfit(f"{block}: a console block begins with `$ `")
        else:
            shown.append(line)
    done()
    return found


def _joined(lines: list[str]) -> list[str]:
    """Commands of a script; what ends with a backslash goes on, comments and empty lines are none."""
    found: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on:
            found[-1] += "\n" + line
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(line)
        else:
            continue
        goes_on = line.endswith("\\")
    return found
