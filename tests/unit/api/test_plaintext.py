"""What others wrote, shown so that it stays where it is put."""

from fairway.api.plaintext import on_one_line


def test_plain_text_stays_as_it_is():
    assert on_one_line("größe 😀, 100 %") == "größe 😀, 100 %"


def test_nothing_moves_a_cursor_or_hides():
    assert on_one_line("a\x1b[2J\nb\r\u202e\udcff") == r"a\x1b[2J\nb\r\u202e\udcff"


def test_a_long_text_is_cut():
    assert on_one_line("x" * 100, at_most=10) == "xxxxxxx..."
    assert on_one_line("x" * 10, at_most=10) == "xxxxxxxxxx"
