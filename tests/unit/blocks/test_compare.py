import pytest

from tests.blocks.compare import same, within


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("NAME  AGE\na     4s", "NAME            AGE\na               13m"),
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("a\n...\nd", "a\nd"),
        ("...\nb\n...\nb", "b\na\nb"),
        ('{"x":...,"y":1}', '{"x":{"z":2},"y":1}'),
        ("ready 1.0 s", "\x1b[32mready\x1b[0m 12.75 s"),
        ("at 2026-01-01T00:00:00Z", "at 2027-12-31T23:59:59.123Z"),
        ("pod-1234567890-abcde", "pod-0987654321-zyxwv"),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(shown: str, said: str):
    assert same(shown, said)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("a", "b"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("a\n...", "b\na"),
        ("a.c", "abc"),
        ("1 tool", "2 tool"),
        ("...b", "ab\nc"),
        ("Ready=True", "Ready=False"),
    ],
)
def test_words_and_lines_do(shown: str, said: str):
    assert not same(shown, said)


def test_of_a_program_that_goes_on_talking_the_shown_lines_are_looked_for_in_order():
    assert within("a\nc", "x\na\nb\nc\nd")
    assert not within("c\na", "x\na\nb\nc\nd")
    assert not within("a\ne", "x\na\nb\nc\nd")
