from pathlib import Path

import pytest

from rig.errors import CannotRunError
from rig.packages import CNI_PLUGINS, NEEDS, Missing, cni_directory, find_program, missing, program, refusal

LACKING = Missing(programs=["runc", "nft"], packages=["nftables", "runc"])


def test_nothing_is_missing_where_everything_is_there() -> None:
    assert not missing(find=lambda name: Path("/usr/bin") / name, cni=lambda: Path("/opt/cni/bin"))


def test_missing_programs_name_each_package_once() -> None:
    found = missing(find=lambda name: None if "containerd" in name or name == "ctr" else Path("/x"), cni=lambda: None)
    assert found.packages == ["containerd", "containernetworking-plugins"]
    assert "containerd-shim-runc-v2" in found.programs


def test_programs_of_the_administrator_are_found_without_them_on_the_path(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("")
    tool.chmod(0o755)
    assert find_program("tool", {"PATH": str(tmp_path)}) == tool
    assert find_program("ip", {"PATH": "/nonexistent"}) in (Path("/usr/sbin/ip"), Path("/sbin/ip"), None)


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.packages.find_program", lambda *_: None)
    with pytest.raises(CannotRunError, match="apt-get install nftables"):
        program("nft")


def test_plugins_count_only_when_all_are_there(tmp_path: Path) -> None:
    for plugin in CNI_PLUGINS:
        assert cni_directory([tmp_path]) is None
        (tmp_path / plugin).write_text("")
        (tmp_path / plugin).chmod(0o755)
    assert cni_directory([Path("/nonexistent"), tmp_path]) == tmp_path


def test_root_on_debian_may_install() -> None:
    assert refusal(LACKING, root=True, apt=True, environ={}) is None


@pytest.mark.parametrize(
    ("root", "apt", "environ", "said"),
    [
        (True, True, {"FAIRWAY_NO_APT": "1"}, "FAIRWAY_NO_APT=1 forbids"),
        (False, True, {}, "sudo apt-get install"),
        (True, False, {}, "package manager"),
    ],
)
def test_a_refusal_says_what_is_missing_and_how_to_get_it(
    root: bool, apt: bool, environ: dict[str, str], said: str
) -> None:
    refused = refusal(LACKING, root=root, apt=apt, environ=environ)
    assert refused is not None
    text = str(refused)
    assert said in text
    assert "runc, nft" in text
    assert "nftables runc" in text


def test_every_need_has_a_package() -> None:
    assert all(need.package for need in NEEDS)
    assert len({need.program for need in NEEDS}) == len(NEEDS)
