"""What a check makes of an answer."""

import pytest

from fairway.local.answer import text_of
from fairway.local.check import _shown, judged
from fairway.local.view import ExampleCall

CALL = ExampleCall("add", {"a": 2, "b": "x"}, "5")


def answer(*texts, **more):
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def test_what_was_expected_passes():
    found = judged("hello", "2026-07-28", CALL, answer("5"))
    assert found.passed
    assert str(found) == 'ok    hello  2026-07-28 add(a=2, b="x") = 5'


def test_something_else_fails_and_says_both():
    found = judged("hello", "2026-07-28", CALL, answer("6"))
    assert not found.passed
    assert "= '6', expected '5'" in str(found)


def test_an_error_fails_whatever_was_expected():
    assert not judged("hello", "2026-07-28", CALL, answer("5", isError=True)).passed


def test_what_a_server_says_is_shown_on_one_line_and_not_without_end():
    found = judged("hello", "2026-07-28", ExampleCall("add", {}), answer("\x1b[2J\n" + "x" * 10_000))
    assert "= \\x1b[2J\\nxxx" in str(found)
    assert len(str(found)) < 500


def test_of_many_tools_some_are_named():
    assert _shown([]) == "no tools"
    assert _shown(["a", "b"]) == "2: a, b"
    assert _shown([str(n) for n in range(3000)]).endswith("8, 9 and 2990 more")


def test_without_a_promise_any_answer_that_is_no_error_will_do():
    assert judged("hello", "2026-07-28", ExampleCall("add", {}), answer("whatever")).passed


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (answer("a", "b"), "a\nb"),
        ({"content": [{"type": "image", "data": "..."}]}, "[image]"),
        ({"content": [], "structuredContent": {"x": 1}}, '{"x": 1}'),
        ({"structuredContent": [1]}, "[1]"),
        ({}, ""),
    ],
)
def test_an_answer_is_shown_as_text(result, text):
    assert text_of(result) == text
