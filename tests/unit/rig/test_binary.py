import re
from pathlib import Path

import pytest

from rig.binary import COMPONENTS, KUBERNETES, POLICY_ENFORCER, Binaries, ensure_binaries, given_binaries
from rig.errors import RigError
from rig.progress import Progress


def program(path: Path) -> None:
    path.write_text("")
    path.chmod(0o755)


def test_the_multi_call_binary_is_every_component(tmp_path: Path) -> None:
    program(tmp_path / "kube")
    binaries = Binaries(tmp_path)
    assert binaries.missing() == []
    assert binaries.of("kubelet") == tmp_path / "kube"
    assert binaries.command("kubelet") == [str(tmp_path / "kube"), "kubelet"]


def test_a_binary_of_its_own_goes_before_it(tmp_path: Path) -> None:
    program(tmp_path / "kube")
    program(tmp_path / "kubelet")
    assert Binaries(tmp_path).command("kubelet") == [str(tmp_path / "kubelet")]


def test_given_binaries_are_used_and_never_built(tmp_path: Path) -> None:
    for component in COMPONENTS:
        program(tmp_path / component)
    environ = {"RIG_BIN": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    assert ensure_binaries(progress=Progress(quiet=True), environ=environ).directory == tmp_path
    assert not (tmp_path / "cache").exists()


def test_given_binaries_that_are_incomplete_are_refused_by_name(tmp_path: Path) -> None:
    program(tmp_path / "etcd")
    with pytest.raises(RigError, match="lacks kube-apiserver, "):
        given_binaries({"RIG_BIN": str(tmp_path)})
    with pytest.raises(RigError, match="lacks etcd"):
        given_binaries({"RIG_BIN": str(tmp_path / "nowhere")})
    assert given_binaries({}) is None


def test_a_file_that_cannot_be_run_is_missing(tmp_path: Path) -> None:
    (tmp_path / "kube").write_text("")
    assert Binaries(tmp_path).missing(["etcd"]) == ["etcd"]


def test_every_staging_module_is_pinned_to_the_release_of_kubernetes() -> None:
    version = KUBERNETES.version
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => k8s\.io/\S+ (\S+)$", KUBERNETES.go_mod, re.MULTILINE)
    assert {pin for _, pin in replaced} == {version.replace("v1.", "v0.")}
    required = re.findall(r"^\s*(k8s\.io/\S+) v0\.(?:0\.0|36\.\d+)\b(?!-)", KUBERNETES.go_mod, re.MULTILINE)
    assert set(required) <= {name for name, _ in replaced}
    assert "k8s.io/apiserver" in required


def test_the_binary_has_every_component_that_is_asked_of_it() -> None:
    source = (KUBERNETES.source / "main.go").read_text()
    for component in (*COMPONENTS, "kubectl"):
        assert f'"{component}":' in source


def test_what_is_built_is_named_by_version() -> None:
    assert KUBERNETES.version.startswith("v1.")
    assert POLICY_ENFORCER.version in POLICY_ENFORCER.cache_key()
