from pathlib import Path

import pytest

from tests.blocks.fence import Step, Unfit, read, steps


def page(folder: Path, text: str):
    (folder / "page.md").write_text(text)
    return read(folder / "page.md", root=folder)


def test_blocks_have_their_line_language_and_file(tmp_path: Path):
    found = page(tmp_path, 'a\n\n```yaml title="a/b.yaml"\nx: 1\n```\n\n- item\n\n  ```json\n  {}\n  ```\n')
    assert [(str(b), b.language, b.title, b.text) for b in found.blocks] == [
        ("page.md:3", "yaml", "a/b.yaml", "x: 1"),
        ("page.md:9", "json", "", "{}"),
    ]


def test_only_the_comment_right_above_leaves_a_block_out(tmp_path: Path):
    found = page(
        tmp_path,
        "<!-- not run: too\nlong -->\n\n```sh\na\n```\n\n```sh\nb\n```\n<!-- not run: x -->\ntext\n```sh\nc\n```\n",
    )
    assert [block.left_out for block in found.blocks] == ["too long", "", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\na\n", "page.md:1: the block is never closed"),
        ("\n```\na\n```\n", "page.md:2: say what the block is"),
        ("```fortran\na\n```\n", "page.md:1: say what the block is"),
        ("<!-- not run: -->\n```sh\na\n```\n", "needs a reason"),
        ("<!-- runs on: moon -->\n", "there is no place 'moon'"),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_line(tmp_path: Path, text: str, said: str):
    with pytest.raises(Unfit, match=said):
        page(tmp_path, text)


def test_commands_come_with_what_is_shown(tmp_path: Path):
    block = page(tmp_path, "```console\n$ a\n$ b <<E\n> c\n> E\none\n\n$ x\n```\n").blocks[0]
    assert steps(block) == [Step("a", None), Step("b <<E\nc\nE", "one"), Step("x", None)]


def test_a_script_is_its_lines_without_comments(tmp_path: Path):
    block = page(tmp_path, "```sh\n# say\na \\\n  b\n\nc  # d\n```\n").blocks[0]
    assert steps(block) == [Step("a \\\n  b", None), Step("c  # d", None)]


def test_output_before_any_command_is_a_mistake(tmp_path: Path):
    with pytest.raises(Unfit, match="begins with"):
        steps(page(tmp_path, "```console\nhello\n$ a\n```\n").blocks[0])
