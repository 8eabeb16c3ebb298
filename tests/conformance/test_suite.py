"""Reading and comparing scores."""

import json
from pathlib import Path

import pytest

from tests.conformance.suite import (
    ACCEPTED,
    REVISIONS,
    Check,
    Outcome,
    Score,
    accepted_differences,
    baseline,
    differences,
    read_results,
    summary,
    tallies,
)


def result(directory: Path, scenario: str, *checks: tuple[str, str]) -> None:
    place = directory / f"server-{scenario}-2026-11-18T22-42-00-135Z"
    place.mkdir(parents=True)
    found = [
        {"id": one, "status": status, "errorMessage": "why" if status == "FAILURE" else None} for one, status in checks
    ]
    (place / "checks.json").write_text(json.dumps(found))


def score(**outcomes: str) -> Score:
    return Score("2026-07-28", {Check("a", name, 1): Outcome(status) for name, status in outcomes.items()})


def test_every_verdict_is_read_and_repeated_checks_are_told_apart(tmp_path):
    result(tmp_path, "server-stateless", ("x", "SUCCESS"), ("note", "INFO"), ("x", "FAILURE"))
    result(tmp_path, "ping", ("y", "WARNING"))
    read = read_results("2026-07-28", tmp_path, {"ping": 0})
    assert read.outcomes == {
        Check("server-stateless", "x", 1): Outcome("SUCCESS"),
        Check("server-stateless", "x", 2): Outcome("FAILURE", "why"),
        Check("ping", "y", 1): Outcome("WARNING"),
    }
    assert str(read) == "1/1"
    assert summary(read) == {"passed": 1, "failed": ["server-stateless x"]}


def test_a_scenario_that_broke_off_has_failed(tmp_path):
    result(tmp_path, "ping", ("y", "SUCCESS"))
    said = (
        "=== SUMMARY ===\n✓ ping: 1 passed, 0 failed\n✗ tools-list: 0 passed, 1 failed\n\nTotal: 1 passed, 1 failed\n"
    )
    read = read_results("2026-07-28", tmp_path, tallies(said))
    assert str(read) == "1/1"
    assert read.failed == ["tools-list the scenario broke off"]


def test_the_same_scores_do_not_differ():
    assert differences(score(x="SUCCESS", y="FAILURE"), score(x="SUCCESS", y="FAILURE")) == []


@pytest.mark.parametrize(
    ("through", "said"),
    [
        ({"x": "FAILURE"}, "2026-07-28 a x [1]: SUCCESS -> FAILURE"),
        ({"x": "WARNING"}, "2026-07-28 a x [1]: SUCCESS -> WARNING"),
        ({}, "2026-07-28 a x [1]: SUCCESS -> not checked"),
        ({"x": "SUCCESS", "y": "SUCCESS"}, "2026-07-28 a y [1]: not checked -> SUCCESS"),
    ],
)
def test_whatever_changes_is_a_difference_better_or_worse(through, said):
    assert [str(one) for one in differences(score(x="SUCCESS"), score(**through))] == [said]


def test_a_difference_can_be_accepted_by_name(tmp_path):
    file = tmp_path / "accepted.txt"
    file.write_text("# nothing\n\n2026-07-28 a x  # known\n")
    accepted = accepted_differences(file)
    assert accepted == ["2026-07-28 a x"]
    assert differences(score(x="SUCCESS", y="SUCCESS"), score(x="FAILURE", y="FAILURE"), accepted) == differences(
        score(y="SUCCESS"), score(y="FAILURE")
    )


def test_nothing_is_accepted_today():
    assert accepted_differences(ACCEPTED) == []


def test_the_baseline_fails_nothing_but_the_extension_for_tasks():
    assert set(baseline()) == set(REVISIONS)
    failed = [name for revision in REVISIONS for name in baseline()[revision]["failed"]]
    assert all(name.startswith("tasks-") for name in failed)
