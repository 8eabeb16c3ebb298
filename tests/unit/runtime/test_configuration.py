"""Configuration: who wins over whom, what is said of mistakes, and a file that changes under a running program."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import structlog

from fairway.runtime.configuration import ArgumentParser, Configuration, Follower, Values, flags_of
from fairway.runtime.setting import (
    BASE_DELAY,
    LEADER_ELECT,
    LOG_LEVEL,
    MAX_DELAY,
    METRICS,
    NAMESPACES,
    QPS,
    RUNTIME_SETTINGS,
    WORKERS,
    InvalidSetting,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "operator.yaml"


def configuration(file: Path, *arguments: str, **environ: str) -> Configuration:
    parser = ArgumentParser(prog="toy")
    parser.add_settings(RUNTIME_SETTINGS, prefix="TOY")
    return Configuration(
        RUNTIME_SETTINGS,
        flags=flags_of(parser.parse_args(arguments), RUNTIME_SETTINGS),
        environ=environ,
        prefix="TOY",
        file=file,
        file_must_exist=False,
    )


def load(file: Path, *arguments: str, **environ: str) -> Values:
    return configuration(file, *arguments, **environ).load()


def test_flags_win_over_variables_and_those_over_the_file_and_that_over_defaults(file: Path) -> None:
    assert load(file)[WORKERS] == 16
    file.write_text("workers: 2\n")
    assert load(file)[WORKERS] == 2
    assert load(file, TOY_WORKERS="3")[WORKERS] == 3
    assert load(file, "--workers", "4", TOY_WORKERS="3")[WORKERS] == 4
    assert load(file, "--workers=5")[WORKERS] == 5


def test_an_empty_variable_and_an_empty_entry_say_nothing(file: Path) -> None:
    file.write_text("workers:\nlog-level: ~\n")
    values = load(file, TOY_WORKERS="")
    assert (values[WORKERS], values[LOG_LEVEL]) == (16, "info")


def test_a_switch_may_stand_alone_or_have_a_value(file: Path) -> None:
    assert load(file, "--leader-elect")[LEADER_ELECT] is True
    assert load(file, "--leader-elect=false", TOY_LEADER_ELECT="true")[LEADER_ELECT] is False


def test_a_file_has_values_as_people_write_them(file: Path) -> None:
    file.write_text(
        "# what we run\nnamespaces: [a, b]\nleader-elect: yes\nkube-api-qps: 12.5\n"
        "metrics-bind-address: 0\nmax-delay: 10m\n"
    )
    values = load(file)
    assert values[NAMESPACES] == ("a", "b")
    assert values[LEADER_ELECT] is True
    assert values[QPS] == 12.5
    assert values[METRICS] is None
    assert values[MAX_DELAY] == 600
    file.write_text("namespaces:\n  - a\n  - b\n")
    assert load(file)[NAMESPACES] == ("a", "b")
    file.write_text("\n")
    assert load(file)[NAMESPACES] == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("log-level: info\nworkers: many\n", ":2: workers: 'many' is no whole number"),
        ("\n\nlog-levle: debug\n", ":3: log-levle: unknown setting; did you mean log-level?"),
        ("zzz: 1\n", ":1: zzz: unknown setting"),
        ("workers: 1\nworkers: 2\n", ":2: workers: is there twice"),
        ("workers: {a: b}\n", ":1: workers: must be a single value"),
        ("namespaces: [[a]]\n", ":1: namespaces: must be a single value"),
        ("- a\n", "is no mapping; write one setting a line"),
        ("workers: [1\n", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("a: !!python/object:os.system b\n", ":1: a: unknown setting"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line_with_its_place(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidSetting) as raised:
        load(file)
    assert str(raised.value).startswith(str(file))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_mistakes_elsewhere_name_the_flag_or_the_variable(file: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^--workers: '0' is no whole number of at least 1$"):
        load(file, "--workers", "0")
    with pytest.raises(InvalidSetting, match=r"^\$TOY_WORKERS: 'x' is no whole number of at least 1$"):
        load(file, TOY_WORKERS="x")


def test_delays_that_contradict_each_other_are_both_named(file: Path) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load(file, "--base-delay", "10m", TOY_MAX_DELAY="1m")
    assert str(raised.value) == "--base-delay: 600 s is longer than the longest delay of 60 s ($TOY_MAX_DELAY)"
    with pytest.raises(InvalidSetting, match="--max-delay, by default"):
        load(file, "--base-delay", "10m")


def test_a_file_that_was_asked_for_must_be_there_and_readable(file: Path) -> None:
    asked = Configuration(RUNTIME_SETTINGS, flags={}, environ={}, prefix="TOY", file=file, file_must_exist=True)
    with pytest.raises(InvalidSetting, match="no such file"):
        asked.load()
    file.mkdir()
    with pytest.raises(InvalidSetting, match="cannot be read"):
        asked.load()
    file.rmdir()
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="not a text file"):
        asked.load()


def test_bad_arguments_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    with pytest.raises(SystemExit) as raised:
        load(file, "--wrokers", "3")
    assert raised.value.code == 2
    assert capsys.readouterr().err == "toy: unrecognized arguments: --wrokers 3; see toy --help\n"


def test_help_names_flag_variable_default_and_what_is_live(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="toy", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_settings(RUNTIME_SETTINGS, prefix="TOY")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for one in RUNTIME_SETTINGS:
        assert f"--{one.name} " in text
        assert one.variable("TOY") in text
    assert "($TOY_WORKERS; default: 16; takes effect at once when the file changes)" in text


class Following:
    """A follower, what it handed on, and what it said."""

    def __init__(self, file: Path, *arguments: str) -> None:
        self.tuned: list[Values] = []
        self.follower = Follower(configuration(file, *arguments))

    def look(self) -> list[dict[str, Any]]:
        with structlog.testing.capture_logs() as logs:
            self.follower.refresh(self.tuned.append)
        return [dict(entry) for entry in logs]


def test_a_change_of_the_file_is_taken_over_and_told(file: Path) -> None:
    file.write_text("log-level: info\n")
    following = Following(file)
    assert following.look() == []
    file.write_text("log-level: debug\nkube-api-qps: 50\n")
    (said,) = following.look()
    assert (said["event"], said["changed"]) == ("read again", ["kube-api-qps", "log-level"])
    assert (following.tuned[-1][LOG_LEVEL], following.tuned[-1][QPS]) == ("debug", 50)
    assert following.look() == []


def test_a_file_that_appears_is_taken_over_and_one_that_goes_changes_nothing(file: Path) -> None:
    following = Following(file)
    file.write_text("workers: 3\n")
    following.look()
    assert following.tuned[-1][WORKERS] == 3
    file.unlink()
    (said,) = following.look()
    assert "stays in force" in said["event"]
    assert len(following.tuned) == 1


def test_a_file_swapped_behind_links_is_noticed(tmp_path: Path) -> None:
    """As the kubelet does it: a directory of data, and a link to it that is replaced."""
    for name, level in (("one", "info"), ("two", "debug")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "operator.yaml").write_text(f"log-level: {level}\n")
    link = tmp_path / "data"
    link.symlink_to("one")
    following = Following(link / "operator.yaml")
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(link)
    following.look()
    assert following.tuned[-1][LOG_LEVEL] == "debug"


def test_a_file_that_has_become_bad_changes_nothing_until_it_is_mended(file: Path) -> None:
    file.write_text("workers: 3\n")
    following = Following(file)
    file.write_text("workers: three\n")
    (said,) = following.look()
    assert said["log_level"] == "error"
    assert "'three'" in said["error"]
    assert following.tuned == []
    file.write_text("workers: 30\n")
    following.look()
    assert following.tuned[-1][WORKERS] == 30


def test_a_flag_still_wins_over_a_file_that_changes(file: Path) -> None:
    following = Following(file, "--log-level", "error")
    file.write_text("log-level: debug\n")
    (said,) = following.look()
    assert said["changed"] == []
    assert following.tuned[-1][LOG_LEVEL] == "error"


def test_what_needs_a_restart_says_so(file: Path) -> None:
    following = Following(file)
    file.write_text("namespaces: a\nbase-delay: 10ms\n")
    first, second = following.look()
    assert first["changed"] == ["base-delay"]
    assert (second["event"], second["settings"]) == ("takes effect after a restart", ["namespaces"])
    assert following.tuned[-1][BASE_DELAY] == 0.01
