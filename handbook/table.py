"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines; what is in the cells is Markdown already."""
    drawn = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(row)} |" for row in drawn]


def cell(text: str) -> str:
    """Text that keeps to its cell, and is nothing but text: what looks like markup outside of code is escaped."""
    parts = " ".join(text.split()).split("`")
    plain = [
        part.replace("\\", "\\\\").replace("*", "\\*").replace("<", "\\<").replace("[", "\\[").replace("_", "\\_")
        for part in parts
    ]
    return "`".join(parts[i] if i % 2 else plain[i] for i in range(len(parts))).replace("|", "\\|")
