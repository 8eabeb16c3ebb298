"""Docstrings in the Google style: what a function says about itself and about each argument."""

import re
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Final

_ARGUMENTS_SECTION: Final = re.compile(r"(args|arguments|parameters|params):\s*", re.IGNORECASE)
_ARGUMENT: Final = re.compile(r"(?P<name>\w+)\s*(\([^()]*(\([^()]*\)[^()]*)*\))?\s*:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """The text without its `Args:` section, and that section by argument."""

    text: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


def parse_docstring(docstring: str | None) -> Docstring:
    if not docstring:
        return Docstring()
    lines = cleandoc(docstring).splitlines()
    start = next((n for n, line in enumerate(lines) if _ARGUMENTS_SECTION.fullmatch(line)), None)
    if start is None:
        return Docstring("\n".join(lines).strip())
    end = start + 1
    if start == 0 and not any(line[:1].isspace() for line in lines):
        end = len(lines)  # nothing but the section, which lost its indentation with that of the docstring
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    text = "\n".join([*lines[:start], *lines[end:]])
    return Docstring(re.sub(r"\n{3,}", "\n\n", text).strip(), _arguments(lines[start + 1 : end]))


def _arguments(lines: list[str]) -> dict[str, str]:
    """An entry starts at the section's own indentation; deeper lines continue it."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indentation = min((_indentation(line) for line in lines if line.strip()), default=0)
    for line in lines:
        match = _ARGUMENT.fullmatch(line.strip()) if _indentation(line) == indentation else None
        if match is not None:
            current = found.setdefault(match["name"], [])
            current.append(match["text"])
        elif current is not None:
            current.append(line.strip())
    texts = {name: " ".join(piece for piece in pieces if piece) for name, pieces in found.items()}
    return {name: text for name, text in texts.items() if text}


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
