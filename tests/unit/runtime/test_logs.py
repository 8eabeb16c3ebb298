"""Logs: one JSON object a line, with what is bound to the work."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from fairway.runtime.logs import configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_a_line_is_json_with_level_time_and_context() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.contextvars.bind_contextvars(controller="toy")
    structlog.get_logger("x").info("done", count=3, path=object)
    entry = json.loads(stream.getvalue())
    assert (entry["event"], entry["level"], entry["count"], entry["controller"]) == ("done", "info", 3, "toy")
    assert entry["time"].endswith("Z")


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        structlog.get_logger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ZeroDivisionError" in json.loads(line)["exception"]


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure_logs(level="warning", stream=stream)
    log = structlog.get_logger("x")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_the_level_may_change_under_loggers_that_exist() -> None:
    stream = io.StringIO()
    threshold = configure_logs(level="warning", stream=stream)
    log = structlog.get_logger("x").bind(lease="a/b")
    log.info("quiet")
    threshold.set("debug")
    log.debug("chatty")
    threshold.set("error")
    log.warning("quiet again")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.exception("always")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["chatty", "always"]


def test_for_people_it_is_text() -> None:
    stream = io.StringIO()
    configure_logs(human=True, stream=stream)
    structlog.get_logger("x").info("done", count=3)
    assert "done" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("human", [True, False])
def test_a_traceback_shows_no_local_variables(human: bool) -> None:
    stream = io.StringIO()
    configure_logs(human=human, stream=stream)
    token = "".join(("open", "sesame"))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        structlog.get_logger("x").exception("failed")
    assert "ZeroDivisionError" in stream.getvalue()
    assert token not in stream.getvalue()
