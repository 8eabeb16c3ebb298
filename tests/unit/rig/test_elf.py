import subprocess
import sys
from pathlib import Path

import pytest

from rig.elf import MAGIC, libraries_of, loader_of, without_sections
from rig.errors import RigError

INTERPRETER = Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def test_a_program_without_its_symbols_still_runs(tmp_path: Path) -> None:
    original = INTERPRETER.read_bytes()
    stripped = without_sections(original, INTERPRETER)
    assert len(stripped) < len(original)
    copy = tmp_path / "python"
    copy.write_bytes(stripped)
    copy.chmod(0o755)
    home = {"PYTHONHOME": sys.base_prefix}
    said = subprocess.run([copy, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, env=home)
    assert said.stdout == "42\n"


def test_libraries_come_with_what_they_need() -> None:
    found = libraries_of([INTERPRETER])
    assert any(name.startswith("libc.so") for name in found)
    assert all(path.is_absolute() and path.exists() for path in found.values())
    assert libraries_of([]) == {}


def test_a_library_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text("#!/bin/sh\necho '\tlibgone.so.1 => not found'\necho '\tlibhere.so => /lib/libhere.so (0x1)'\n")
    ldd.chmod(0o755)
    monkeypatch.setattr("rig.elf.program", lambda _: ldd)
    with pytest.raises(RigError, match=r"libgone\.so\.1"):
        libraries_of([INTERPRETER])
    # One that is among the files themselves is found once its neighbour is loaded.
    assert libraries_of([Path("/x/libgone.so.1")]) == {"libhere.so": Path("/lib/libhere.so")}


def test_the_loader_is_the_one_that_the_program_asks_for() -> None:
    assert Path(loader_of(INTERPRETER)).exists()


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh", MAGIC, MAGIC + b"\x01\x01" + b"\0" * 100])
def test_what_is_no_64_bit_program_is_refused(data: bytes) -> None:
    with pytest.raises(RigError, match="no 64-bit"):
        without_sections(data, Path("thing"))
