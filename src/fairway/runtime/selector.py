"""Label selectors in the API's own string form, evaluated on this side."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_IN = re.compile(rf"({_NAME})\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL = re.compile(rf"({_NAME})\s*(==|=|!=)\s*({_NAME})?")
_EXISTS = re.compile(rf"(!)?\s*({_NAME})")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    values: Collection[str] | None
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return present is not self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A parsed selector; the empty one matches everything. Raises ValueError for text the API would refuse."""

    text: str = ""
    requirements: tuple[Requirement, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = _COMMA_OUTSIDE_PARENTHESES.split(self.text) if self.text.strip() else []
        object.__setattr__(self, "requirements", tuple(_requirement(part.strip()) for part in parts))

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(requirement.holds(labels or {}) for requirement in self.requirements)


def _requirement(text: str) -> Requirement:
    if found := _IN.fullmatch(text):
        values = frozenset(value.strip() for value in found[3].split(","))
        return Requirement(found[1], values, negated=found[2] == "notin")
    if found := _EQUAL.fullmatch(text):
        return Requirement(found[1], frozenset((found[3] or "",)), negated=found[2] == "!=")
    if found := _EXISTS.fullmatch(text):
        return Requirement(found[2], None, negated=bool(found[1]))
    raise ValueError(f"{text!r} is no label selector requirement")
