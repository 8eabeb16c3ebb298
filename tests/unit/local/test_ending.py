"""What is said of a process that ended, and the pace of restarts."""

import signal

import pytest

from fairway.local.ending import MESSAGE_LIMIT, last_words, size_of
from fairway.local.process import Exit
from fairway.process.pace import FORGIVEN_AFTER, RestartPace


@pytest.mark.parametrize(("crashes", "wait"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (100, 60.0)])
def test_the_wait_doubles_up_to_a_minute(crashes, wait):
    assert RestartPace().wait(crashes) == wait


def test_a_long_run_is_forgiven():
    pace = RestartPace()
    assert pace.crashes(7, lasted=FORGIVEN_AFTER - 1) == 8
    assert pace.crashes(7, lasted=FORGIVEN_AFTER + 1) == 1


def test_the_termination_message_wins_over_the_log(tmp_path):
    (tmp_path / "t").write_text("tools.py:1: no\n")
    (tmp_path / "l").write_text("noise")
    assert last_words(tmp_path / "t", tmp_path / "l", 0, Exit(1)) == "tools.py:1: no"


def test_without_one_the_end_of_this_runs_log_is_the_message(tmp_path):
    log = tmp_path / "l"
    log.write_text("from the run before\n")
    start = size_of(log)
    with log.open("a") as file:
        file.write("x" * 5000 + "\nthe last line\n")
    said = last_words(tmp_path / "t", log, start, Exit(1))
    assert said.endswith("the last line")
    assert "the run before" not in said
    assert len(said) <= 2048


def test_success_has_no_last_words_from_the_log(tmp_path):
    (tmp_path / "l").write_text("all good")
    assert last_words(tmp_path / "t", tmp_path / "l", 0, Exit(0)) == ""


def test_what_was_killed_from_outside_has_none_and_what_crashed_has(tmp_path):
    (tmp_path / "l").write_text("all good")
    assert last_words(tmp_path / "t", tmp_path / "l", 0, Exit(0, signal.SIGKILL)) == ""
    assert last_words(tmp_path / "t", tmp_path / "l", 0, Exit(0, signal.SIGSEGV)) == "all good"


def test_a_long_or_broken_message_is_cut_and_kept_readable(tmp_path):
    (tmp_path / "t").write_bytes(b"\xff" * (MESSAGE_LIMIT * 2))
    said = last_words(tmp_path / "t", tmp_path / "l", 0, Exit(1))
    assert len(said) == MESSAGE_LIMIT


def test_files_that_are_not_there_say_nothing(tmp_path):
    assert last_words(tmp_path / "t", tmp_path / "l", 0, Exit(1)) == ""
    assert size_of(tmp_path / "l") == 0
