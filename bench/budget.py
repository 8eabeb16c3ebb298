"""What benchmarks have to keep to, from budgets.toml, and how a run of one ends."""

import json
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUDGETS = Path(__file__).with_name("budgets.toml")
_ELSEWHERE = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True, slots=True)
class Budget:
    """The bounds of one figure; both are allowed themselves."""

    figure: str
    least: float | None = None
    most: float | None = None

    def past(self, found: float) -> str:
        """What is wrong, or nothing. A figure that is no number keeps to nothing."""
        if self.most is not None and not found <= self.most:
            return f"{self.figure} is {found:g}, at most {self.most:g}"
        if self.least is not None and not found >= self.least:
            return f"{self.figure} is {found:g}, at least {self.least:g}"
        return ""


def budgets_of(bench: str, *, text: str | None = None) -> tuple[Budget, ...]:
    said = tomllib.loads(BUDGETS.read_text("utf-8") if text is None else text)
    if bench not in said:
        raise LookupError(f"bench {bench!r} has no budgets in {BUDGETS.name}; it names {', '.join(said)}")
    return tuple(Budget(figure, **bounds) for figure, bounds in said[bench].items())


def finish(bench: str, figures: Mapping[str, float | None], details: Mapping[str, Any]) -> int:
    """Says which budgets are not kept, then everything as one line of JSON; returns the exit code.

    Every budget must have its figure: None if it could not be measured here, which is said, and passes.
    """
    budgets = budgets_of(bench)
    if lacking := [budget.figure for budget in budgets if budget.figure not in figures]:
        raise LookupError(f"bench {bench} measured no {', '.join(lacking)}")
    known = {budget.figure: found for budget in budgets if (found := figures[budget.figure]) is not None}
    unknown = [budget.figure for budget in budgets if budget.figure not in known]
    past = [wrong for budget in budgets if budget.figure in known and (wrong := budget.past(known[budget.figure]))]
    if unknown:
        print(f"NOT MEASURED: {', '.join(unknown)}")
    for wrong in past:
        print(f"PAST ITS BUDGET: {wrong}")
    if not past:
        print(f"{len(known)} of {len(budgets)} budgets measured and kept")
    print(json.dumps({"bench": bench, "figures": dict(figures), "past": past, **details}))
    return 1 if past else 0


def tool(name: str, *, package: str, why: str) -> str | None:
    """Where a program is that only this benchmark needs.

    If it is not there: one line that nobody overlooks, and None. Where everything is expected to be there, which is CI,
    that ends the run with exit code 1.
    """
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_ELSEWHERE))
    if found is None:
        print(f"NOT COMPARED: {name} is not installed (apt-get install {package}), so {why}", flush=True)
        if in_ci():
            sys.exit(1)
    return found


def in_ci() -> bool:
    return os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1" or os.environ.get("CI", "").lower() in ("1", "true")
