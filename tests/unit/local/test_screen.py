"""What is printed, on a terminal and elsewhere."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fairway.local.screen import WAITS_UNTOLD, Lines, line_of, screen
from fairway.local.terminal import LiveTable, drawn
from fairway.local.view import Row

READY = Row("default", "hello", "inline tools", "standalone", 2, "Ready", "Ready", "", "http://127.0.0.1:7001/mcp")
FAILED = replace(
    READY, name="bad", tools=None, phase="Failed", reason="CrashLoopBackOff", message="it [red]ended[/red]"
)


@pytest.fixture
def stream():
    return io.StringIO()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines(stream, clock):
    return Lines(stream, logs=Path("/state/logs"), now=clock)


def said(stream):
    text = stream.getvalue().splitlines()
    stream.seek(0)
    stream.truncate()
    return text


def test_it_begins_with_what_it_is_and_where_the_logs_are(stream, lines):
    first, second = said(stream)
    assert "nothing leaves this machine" in first
    assert second == "logs in /state/logs/"
    assert isinstance(screen(stream, logs=Path("/state/logs")), Lines)


def test_a_change_is_one_line_and_no_change_is_none(stream, lines):
    said(stream)
    lines.show([FAILED])
    assert said(stream) == ["bad  Failed  CrashLoopBackOff  it [red]ended[/red]"]
    lines.show([FAILED])
    assert said(stream) == []
    lines.show([])
    assert said(stream) == ["bad  removed"]


def test_what_a_server_still_waits_for_is_said_once_it_has_waited_a_while(stream, lines, clock):
    waiting = replace(READY, phase="Pending", reason="NotListening", message="nothing answers yet")
    said(stream)
    lines.show([replace(waiting, reason="", message="")])
    assert (said(stream), lines.due) == ([], WAITS_UNTOLD)
    clock.now = WAITS_UNTOLD / 2
    lines.show([waiting])
    assert (said(stream), lines.due) == ([], WAITS_UNTOLD / 2)
    clock.now = WAITS_UNTOLD
    assert lines.due == 0
    lines.show([waiting])
    assert (said(stream), lines.due) == (["hello  Pending  NotListening  nothing answers yet"], None)
    lines.show([READY])
    assert said(stream)[0].startswith("hello  Ready")


def test_what_only_an_edit_can_cure_is_said_at_once(stream, lines):
    said(stream)
    lines.show([replace(READY, phase="Pending", reason="ScaledToZero", message="spec.replicas is 0")])
    assert said(stream) == ["hello  Pending  ScaledToZero  spec.replicas is 0"]


def test_the_table_comes_when_everything_is_ready_and_again_only_after_trouble(stream, lines):
    said(stream)
    lines.show([READY])
    assert said(stream)[0:2] == [
        "hello  Ready  2 tools  http://127.0.0.1:7001/mcp",
        "NAME   SOURCE        PROXY       TOOLS  STATUS  URL",
    ]
    lines.show([READY])
    lines.close()
    assert said(stream) == []


def test_it_ends_with_the_table_when_something_is_wrong(stream, lines):
    lines.show([READY, FAILED])
    said(stream)
    lines.close()
    assert said(stream)[0].startswith("NAME")


def test_one_tool_is_one_tool():
    assert "  1 tool  " in line_of(replace(READY, tools=1))
    assert "  0 tools  " in line_of(replace(READY, tools=0))


def drawn_text(rows, width=160):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(drawn(rows, title="fairway", logs="logs"))
    return console.file.getvalue()


def test_the_live_table_shows_rows_trouble_an_example_and_the_logs():
    row = replace(READY, example="fairway call hello add a=2 b=3")
    text = drawn_text([row, replace(FAILED, log="bad.log")])
    assert "2 servers, ctrl-c stops them all" in text
    assert "http://127.0.0.1:7001/mcp" in text
    assert "try   fairway call hello add a=2 b=3" in text
    assert "log: bad.log" in text


def test_what_a_server_says_is_never_read_as_markup():
    assert "it [red]ended[/red]" in drawn_text([FAILED])


def test_a_narrow_terminal_still_shows_name_and_url():
    text = drawn_text([READY], width=70)
    assert "hello" in text
    assert "7001/mcp" in text


def test_the_live_table_can_be_started_and_closed():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    table = LiveTable(title="fairway", logs="logs", console=console)
    table.show([READY])
    table.note("port [7001] is taken")
    table.close()
    assert "port [7001] is taken" in console.file.getvalue()
