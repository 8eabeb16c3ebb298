"""The official suite: run against a URL, read check by check, compared with another run."""

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.packages import Package

REVISIONS = ("2025-11-25", "2026-07-28")
SCRIPT = "@modelcontextprotocol/conformance/dist/index.js"
HERE = Path(__file__).parent
ACCEPTED = HERE / "accepted.txt"
GUARDED = HERE / "accepted_guarded.txt"
BASELINE = HERE / "baseline.json"
NO_VERDICT = ("INFO",)


class SuiteError(Exception):
    """The suite did not run to its end."""


@dataclass(frozen=True, order=True)
class Check:
    """One check of one scenario; a scenario may make the same check several times."""

    scenario: str
    id: str
    number: int


@dataclass(frozen=True)
class Outcome:
    """What a check came to, and why."""

    status: str
    message: str = ""


@dataclass(frozen=True)
class Score:
    """Every check of one run of one revision."""

    revision: str
    outcomes: Mapping[Check, Outcome] = field(default_factory=dict)

    @property
    def passed(self) -> int:
        return Counter(outcome.status for outcome in self.outcomes.values())["SUCCESS"]

    @property
    def failed(self) -> list[str]:
        """Scenario and check, for each that failed."""
        return sorted(f"{c.scenario} {c.id}" for c, outcome in self.outcomes.items() if outcome.status == "FAILURE")

    def __str__(self) -> str:
        return f"{self.passed}/{len(self.failed)}"


@dataclass(frozen=True)
class Difference:
    """A check that two runs disagree about."""

    revision: str
    check: Check
    direct: str
    through: str
    message: str

    @property
    def line(self) -> str:
        return f"{self.revision} {self.check.scenario} {self.check.id}"

    def __str__(self) -> str:
        why = f": {self.message}" if self.message else ""
        return f"{self.line} [{self.check.number}]: {self.direct} -> {self.through}{why}"


def run_suite(installed: Package, url: str, revision: str) -> Score:
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        options = ["--url", url, "--requirements", revision, "--timeout", "10000", "--output-dir", str(results)]
        command = installed.command(SCRIPT, "server", *options)
        # HOME: nothing of the user's must change the result
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": scratch, "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=240)
        total = re.search(r"^Total: (\d+) passed, (\d+) failed", done.stdout, re.MULTILINE)
        if total is None:
            raise SuiteError(f"the suite ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
        score = read_results(revision, results, tallies(done.stdout))
        if str(score) != f"{total[1]}/{total[2]}":
            raise SuiteError(f"the suite counts {total[1]}/{total[2]}, its results say {score}: {done.stdout[-2000:]}")
        return score


def tallies(said: str) -> dict[str, int]:
    """How many checks failed, by scenario, as the suite sums it up."""
    return {
        name: int(failed) for name, failed in re.findall(r"^[✓✗] (\S+): \d+ passed, (\d+) failed$", said, re.MULTILINE)
    }


def read_results(revision: str, results: Path, failed: Mapping[str, int]) -> Score:
    """`failed` tells of scenarios that broke off, which leave no results."""
    outcomes: dict[Check, Outcome] = {}
    for file in sorted(results.glob("*/checks.json")):
        scenario = re.sub(r"^(?:server-)?(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        seen: Counter[str] = Counter()
        for check in json.loads(file.read_text()):
            if check["status"] in NO_VERDICT:
                continue
            seen[check["id"]] += 1
            outcome = Outcome(check["status"], check.get("errorMessage") or "")
            outcomes[Check(scenario, check["id"], seen[check["id"]])] = outcome
    judged = {check.scenario for check in outcomes}
    for scenario, number in failed.items():
        if number and scenario not in judged:
            outcomes[Check(scenario, "the scenario broke off", 1)] = Outcome("FAILURE")
    return Score(revision, outcomes)


def differences(direct: Score, through: Score, accepted: Iterable[str] = ()) -> list[Difference]:
    """What is not the same in both runs, in either direction; a check that is not made at all differs too."""
    allowed = set(accepted)
    absent = Outcome("not checked")
    found = []
    for check in sorted(direct.outcomes.keys() | through.outcomes.keys()):
        one, other = direct.outcomes.get(check, absent), through.outcomes.get(check, absent)
        difference = Difference(direct.revision, check, one.status, other.status, other.message)
        if one.status != other.status and difference.line not in allowed:
            found.append(difference)
    return found


def accepted_differences(file: Path = ACCEPTED) -> list[str]:
    """Lines of revision, scenario and check; what follows a # is the reason."""
    lines = (line.partition("#")[0].split() for line in file.read_text().splitlines())
    return [" ".join(words) for words in lines if words]


def baseline(file: Path = BASELINE) -> dict[str, dict[str, object]]:
    return json.loads(file.read_text())


def summary(score: Score) -> dict[str, object]:
    """The shape of the baseline."""
    return {"passed": score.passed, "failed": score.failed}
