"""The suite's client scenarios: a client is judged by what its server sees, and by what it is told itself."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import yaml

from tests.conformance.packages import Package
from tests.conformance.running import ROOT
from tests.conformance.scenario_client import LEFT_OUT
from tests.conformance.suite import SCRIPT, Check, Difference, Outcome, Score, SuiteError, differences, read_results

AT_ONCE = 2
PATIENCE = 120
"""Seconds that a client may take, with the proxy that it starts: others keep the machine busy meanwhile."""
NOT_JUDGED = ("SKIPPED",)
ANSWERING = frozenset({"elicitation-sep1034-client-defaults", "sep-2322-client-request-state"})
"""Scenarios for clients that answer questions of servers, which ours says that it does not."""
PROGRAM = "tests.conformance.scenario_client"


def client_scenarios(installed: Package, revision: str) -> list[str]:
    """What a revision asks of clients, without what is about their tokens and without extensions."""
    file = installed.modules / SCRIPT.partition("/dist/")[0] / "requirements" / f"{revision}.yaml"
    wanted = yaml.safe_load(file.read_text())
    later = [
        one["scenario"]
        for one in wanted["not_scored"]
        if (one["leg"], one["reason"]) == ("client", "added-after-release")
    ]
    return [name for name in (*wanted["client"], *later) if not name.startswith(LEFT_OUT)]


def run_clients(installed: Package, revision: str, client: str, way: str, names: Sequence[str] = ()) -> Score:
    """`client` and `way` are those that `scenario_client` knows; `names` are the scenarios, all when there are none."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = pool.map(
            partial(_play, installed, revision, client, way), names or client_scenarios(installed, revision)
        )
        return Score(revision, {check: outcome for outcomes in played for check, outcome in outcomes.items()})


def _play(installed: Package, revision: str, client: str, way: str, name: str) -> dict[Check, Outcome]:
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{sys.executable} -W ignore -m {PROGRAM} {client} {way}"
        options = ["--command", program, "--scenario", name, "--spec-version", revision, "--output-dir", scratch]
        options += ["--timeout", str(PATIENCE * 1000)]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": scratch, "NO_COLOR": "1"}
        command = installed.command(SCRIPT, "client", *options)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE)
        outcomes = dict(read_results(revision, Path(scratch), {}).outcomes)
        if not outcomes:
            raise SuiteError(f"{name}: the suite ended with {done.returncode}: {done.stderr[-500:]}")
        counted: Counter[str] = Counter()
        for line in next(Path(scratch).glob("*/stdout.txt")).read_text().splitlines():
            counted[line] += 1
            outcomes[Check(name, f"the client says: {line}", counted[line])] = Outcome("SUCCESS")
        if "CLIENT EXITED WITH ERROR" in done.stderr or "CLIENT TIMED OUT" in done.stderr:
            said = next(Path(scratch).glob("*/stderr.txt")).read_text()
            outcomes[Check(name, "the client came to its end", 1)] = Outcome("FAILURE", said[-500:])
        return outcomes


def worsened(direct: Score, through: Score, accepted: Iterable[str] = ()) -> list[Difference]:
    """What is not the same in both runs. The proxy asks the server something too, so more may be found to be right."""
    return [
        one
        for one in differences(direct, through, accepted)
        if one.direct != "not checked" or one.through not in ("SUCCESS", *NOT_JUDGED)
    ]
