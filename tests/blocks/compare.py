"""Whether a program said what a page shows. Widths of columns, times and ports differ from run to run; words do not.

`...` on a line of its own stands for any number of lines, within a line for any characters.
"""

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TIME = re.compile(r"\b\d+(\.\d+)? ?(ms|s|m|h|d)\b")
_POD = re.compile(r"-[0-9a-f]{9,10}-[a-z0-9]{5}\b")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
GAP = "..."


def lines_of(text: str) -> list[str]:
    """What counts of a text, line by line."""
    return [line for line in map(_plain, text.splitlines()) if line]


def _plain(line: str) -> str:
    line = _ANSI.sub("", line)
    for pattern, word in ((_STAMP, "<date>"), (_TIME, "<time>"), (_POD, "-<pod>")):
        line = pattern.sub(word, line)
    return " ".join(line.split())


def same(shown: str, said: str) -> bool:
    """All of what was said, as shown."""
    return _matches(lines_of(shown), lines_of(said))


def within(shown: str, said: str) -> bool:
    """Every shown line is among what was said, in that order: for programs that go on talking."""
    spread = [part for line in lines_of(shown) for part in (GAP, line)]
    return _matches([*spread, GAP], lines_of(said))


def _matches(shown: list[str], said: list[str]) -> bool:
    """From the back: which beginnings of `said` the beginnings of `shown` can be."""
    reachable = {0}
    for line in shown:
        if line == GAP:
            reachable = set(range(min(reachable), len(said) + 1)) if reachable else set()
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split(GAP)))
        reachable = {at + 1 for at in reachable if at < len(said) and pattern.fullmatch(said[at])}
        if not reachable:
            return False
    return len(said) in reachable
