import marshal
import os
import sys
import tarfile
from pathlib import Path
from types import CodeType

import pytest

from rig import pyimage
from rig.errors import RigError
from rig.image import Entry
from rig.pyimage import SITE_PACKAGES, LayerStore


def members(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return {f"/{name}" for name in tar.getnames()}


def test_modules_are_compiled_for_the_place_where_they_will_lie(tmp_path: Path) -> None:
    layer = LayerStore(tmp_path).files({f"{SITE_PACKAGES}/one.py": Entry(source=b"x = 1\n")})
    name = f"{SITE_PACKAGES}/__pycache__/one.{sys.implementation.cache_tag}.pyc"
    with tarfile.open(layer.archive) as tar:
        file = tar.extractfile(name.lstrip("/"))
        assert file is not None
        compiled = file.read()
    # Bit 0: found by content; bit 1 not set: the source is never looked at.
    assert int.from_bytes(compiled[4:8], "little") == 0b01
    code = marshal.loads(compiled[16:])
    assert isinstance(code, CodeType)
    assert code.co_filename == f"{SITE_PACKAGES}/one.py"


def test_a_file_that_is_no_python_for_this_version_stays_uncompiled(tmp_path: Path) -> None:
    layer = LayerStore(tmp_path).files({"/a.py": Entry(source=b"print 'two'\n"), "/b.txt": Entry(source=b"")})
    assert members(layer.archive) == {"/a.py", "/b.txt"}


def test_the_same_files_are_taken_from_the_store(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    first = store.files({"/a": Entry(source=b"1")})
    before = first.archive.stat().st_ino
    assert store.files({"/a": Entry(source=b"1")}) == first
    assert first.archive.stat().st_ino == before
    assert store.files({"/a": Entry(source=b"2")}) != first
    assert store.files({"/a": Entry(source=b"1", mode=0o755)}) != first


def test_two_stores_make_the_same_layer(tmp_path: Path) -> None:
    files = {f"/m{number}.py": Entry(source=f"def f(): return {number}\n".encode()) for number in range(5)}
    one, two = LayerStore(tmp_path / "one").files(files), LayerStore(tmp_path / "two").files(files)
    assert one.digest == two.digest


def test_the_store_forgets_what_was_not_used_for_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerStore, "KEPT", 2)
    store = LayerStore(tmp_path)
    layers = [store.files({"/a": Entry(source=str(number).encode())}) for number in range(3)]
    for age, layer in enumerate(layers):
        os.utime(layer.archive, (1000 + age, 1000 + age))
    store.files({"/a": Entry(source=b"0")})
    store.forget_old()
    assert [layer.archive.exists() for layer in layers] == [True, False, True]
    assert len(list(tmp_path.iterdir())) == 4


def test_what_somebody_has_just_asked_for_is_never_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerStore, "KEPT", 0)
    store = LayerStore(tmp_path)
    layer = store.files({"/a": Entry(source=b"0")})
    os.utime(layer.archive, (1000, 1000))
    store.files({"/a": Entry(source=b"0")})
    store.forget_old()
    assert layer.archive.exists()


def test_tests_and_windows_of_the_standard_library_stay_at_home() -> None:
    root = pyimage._stdlib()
    kept = {path.relative_to(root).as_posix() for path in pyimage._stdlib_files()}
    assert {"os.py", "asyncio/base_events.py", "json/__init__.py", "encodings/utf_8.py"} <= kept
    for name in kept:
        parts = name.split("/")
        assert not {"test", "tests", "idlelib", "tkinter", "site-packages", "__pycache__"} & set(parts), name


def test_packages_come_without_caches_tests_and_paths_of_this_machine(tmp_path: Path) -> None:
    for name in (
        "thing/__init__.py",
        "thing/__pycache__/x.pyc",
        "thing/tests/test_x.py",
        "thing/testing.py",
        "thing/fast.pyx",
        "thing-1.dist-info/METADATA",
        "thing-1.dist-info/RECORD",
        "thing-1.dist-info/direct_url.json",
        "bin/thing",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = {name for name in pyimage._package_entries(tmp_path, present=set()) if "__pycache__" not in name}
    assert found == {
        f"{SITE_PACKAGES}/thing/__init__.py",
        f"{SITE_PACKAGES}/thing/testing.py",
        f"{SITE_PACKAGES}/thing-1.dist-info/METADATA",
    }


def test_requirements_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"there is no .*nope\.txt"):
        pyimage.python_image(
            reference="x",
            entrypoint=["python"],
            requirements=tmp_path / "nope.txt",
            environ={"XDG_CACHE_HOME": str(tmp_path)},
        )


def test_requirements_without_hashes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("idna==3.10\n")
    with pytest.raises(RigError, match="installing"):
        LayerStore(tmp_path).packages(
            ["--require-hashes", "-r", str(tmp_path / "requirements.txt")], contents=[tmp_path / "requirements.txt"]
        )
    assert not list(tmp_path.glob("*.tar"))
