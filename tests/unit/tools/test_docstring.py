"""Docstrings in the Google style."""

import pytest

from fairway.tools.docstring import Docstring, parse_docstring


def test_nothing_says_nothing():
    assert parse_docstring(None) == parse_docstring("") == Docstring()


def test_a_plain_text_is_the_description():
    assert parse_docstring("Adds two numbers.\n\n    In any order.\n").text == "Adds two numbers.\n\nIn any order."


def test_each_argument_has_its_own_line():
    parsed = parse_docstring(
        """Books a table.

        Args:
            name: who comes
            day (datetime.date, optional): which day,
                today if nobody says
            seats (dict[str, tuple[int, int]]): how many:
              big and small

            note:
                What else
                there is to say.

        Returns:
            A number: the booking's.

        Raises:
            ValueError: no table
        """
    )
    assert parsed.arguments == {
        "name": "who comes",
        "day": "which day, today if nobody says",
        "seats": "how many: big and small",
        "note": "What else there is to say.",
    }
    assert (
        parsed.text == "Books a table.\n\nReturns:\n    A number: the booking's.\n\nRaises:\n    ValueError: no table"
    )


@pytest.mark.parametrize("title", ["Args:", "Arguments:", "Parameters:", "args:"])
def test_the_section_has_several_names(title):
    assert parse_docstring(f"X.\n\n{title}\n    a: first\n").arguments == {"a": "first"}


def test_a_section_without_entries_and_lines_that_are_none_do_no_harm():
    assert parse_docstring("X.\n\nArgs:\n").arguments == {}
    assert parse_docstring("X.\n\nArgs:\n    just prose\n    a: b\n").arguments == {"a": "b"}
    assert parse_docstring("Args:\n    a: b").text == ""
    assert parse_docstring("X.\nArgs: not a section\n").text == "X.\nArgs: not a section"
