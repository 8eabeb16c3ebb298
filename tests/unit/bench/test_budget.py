import json
import math
import tomllib
from pathlib import Path

import pytest

from bench import budget
from bench.budget import Budget, budgets_of, finish, tool

TEXT = """
[toy]
ratio = { most = 2.0 }
per_second = { least = 100 }
extra = { least = 0, most = 0 }
"""
GOOD = {"ratio": 2.0, "per_second": 100, "extra": 0}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "budgets.toml").write_text(TEXT)
    monkeypatch.setattr(budget, "BUDGETS", tmp_path / "budgets.toml")


@pytest.mark.parametrize(
    ("found", "past"),
    [
        (2.0, ""),
        (-1, ""),
        (2.01, "ratio is 2.01, at most 2"),
        (math.nan, "ratio is nan, at most 2"),
        (math.inf, "ratio is inf, at most 2"),
    ],
)
def test_what_is_at_its_bound_is_kept_and_what_is_no_number_is_not(found: float, past: str) -> None:
    assert Budget("ratio", most=2.0).past(found) == past


def test_a_figure_can_have_to_be_exact() -> None:
    exactly = Budget("extra", least=0, most=0)
    assert [bool(exactly.past(found)) for found in (-1, 0, 1)] == [True, False, True]


def test_a_run_within_its_budgets_ends_with_its_figures_as_json(toys: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish("toy", GOOD, {"loadavg": 0.5}) == 0
    *_, verdict, last = capsys.readouterr().out.splitlines()
    assert verdict == "3 of 3 budgets measured and kept"
    assert json.loads(last) == {"bench": "toy", "figures": GOOD, "past": [], "loadavg": 0.5}


def test_every_budget_that_is_not_kept_is_named_and_fails_the_run(
    toys: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish("toy", {"ratio": 3, "per_second": 5, "extra": 0}, {}) == 1
    *said, last = capsys.readouterr().out.splitlines()
    assert said == [
        "PAST ITS BUDGET: ratio is 3, at most 2",
        "PAST ITS BUDGET: per_second is 5, at least 100",
    ]
    assert len(json.loads(last)["past"]) == 2


def test_what_could_not_be_measured_is_said_and_passes(toys: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish("toy", {**GOOD, "ratio": None}, {}) == 0
    assert "NOT MEASURED: ratio" in capsys.readouterr().out


def test_a_budget_without_a_figure_and_a_bench_without_budgets_are_bugs(toys: None) -> None:
    with pytest.raises(LookupError, match="measured no ratio"):
        finish("toy", {"per_second": 100, "extra": 0}, {})
    with pytest.raises(LookupError, match="it names toy"):
        budgets_of("tyo")


def test_a_tool_that_is_missing_is_one_loud_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CI", "FAIRWAY_REQUIRE_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    assert tool("no-such-program", package="nothing", why="there is nothing to see") is None
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("NOT COMPARED: no-such-program is not installed")
    assert "apt-get install nothing" in line


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("FAIRWAY_REQUIRE_CLUSTER", "1")])
def test_in_ci_a_missing_tool_is_a_failure(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="1"):
        tool("no-such-program", package="nothing", why="x")
    assert tool("sh", package="dash", why="x")


NO_BENCHMARKS = {"answering", "contender", "crowd"}
"""Programs that others start."""


def test_every_benchmark_has_its_budgets_and_keeps_to_them() -> None:
    programs = {path.stem: path.read_text() for path in Path(budget.__file__).parent.glob("*.py")}
    benches = {name for name, text in programs.items() if "__main__" in text} - NO_BENCHMARKS
    assert tomllib.loads(budget.BUDGETS.read_text()).keys() == benches
    for name in benches:
        text = programs[name]
        assert f'finish("{name}", ' in text, f"{name}.py does not end with the verdict on its budgets"
        assert "sys.exit(main())" in text
        for found in budgets_of(name):
            assert found.least is not None or found.most is not None
            assert f'"{found.figure}"' in text, found
