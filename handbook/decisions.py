"""The list of decisions, by their headings."""

from pathlib import Path

from handbook.table import cell

_INTRO = """\
# Decisions

Why things are as they are: what was decided, what else there was, and the number that decided it.
"""


def index(folder: Path) -> str:
    """docs/decisions/README.md."""
    lines = [_INTRO]
    for file in sorted(folder.glob("*.md")):
        if file.name != "README.md":
            lines.append(f"- [{cell(_heading(file))}]({file.name})")
    return "\n".join(lines) + "\n"


def _heading(file: Path) -> str:
    for line in file.read_text().splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ")
    raise ValueError(f"{file}: begin with a heading")
