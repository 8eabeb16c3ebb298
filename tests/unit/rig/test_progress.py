import io

from rig.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_changes() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.update("one")
    progress.update("two")
    progress.milestone("done")
    assert "\n" not in stream.getvalue().partition("done")[0]
    assert stream.getvalue().count("\n") == 1
    # The changing line is wiped before the one that stays.
    assert stream.getvalue().rpartition("two")[2].startswith("\r\x1b[K")


def test_a_log_sees_milestones_and_few_updates() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for number in range(100):
        progress.update(str(number))
    progress.milestone("done")
    assert [line.split("] ")[1] for line in stream.getvalue().splitlines()] == ["done"]


def test_a_long_line_stays_one_line() -> None:
    stream = Terminal()
    Progress(stream).update("x" * 500)
    assert len(stream.getvalue()) < 130


def test_quiet_is_quiet() -> None:
    stream = Terminal()
    progress = Progress(stream, quiet=True)
    progress.update("a")
    progress.milestone("b")
    progress.close()
    assert stream.getvalue() == ""
