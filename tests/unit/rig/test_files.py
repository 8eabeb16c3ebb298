import os
from pathlib import Path

from rig.files import write_changed


def test_a_file_that_holds_the_text_already_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    assert write_changed(path, "a")
    before = path.stat()
    assert not write_changed(path, "a")
    assert path.stat() == before
    assert write_changed(path, "b")
    assert path.read_text() == "b"


def test_the_mode_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.umask(0o022)
    write_changed(path, "a", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert write_changed(path, "a", mode=0o644)
    assert path.stat().st_mode & 0o777 == 0o644


def test_no_draft_stays_behind(tmp_path: Path) -> None:
    (tmp_path / "file.new").write_text("left by somebody who was killed")
    write_changed(tmp_path / "file", "a")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
