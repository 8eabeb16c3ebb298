import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rig.binary import Binaries
from rig.controlplane import ControlPlane
from rig.errors import CannotRunError, RigError
from rig.node import LONGEST_STATE_PATH, Node
from rig.pki import ensure_pki, identities
from rig.state import Settings, State, new_settings


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr("rig.node.cni_directory", lambda: Path("/usr/lib/cni"))
    monkeypatch.setattr("rig.node.program", lambda name: Path("/usr/bin") / name)
    monkeypatch.setattr("rig.network.program", lambda name: Path("/usr/bin") / name)
    monkeypatch.setattr("rig.node.LONGEST_STATE_PATH", 10_000)
    monkeypatch.setattr(Settings, "sockets", tmp_path / "run")
    settings = replace(new_settings(taken=[]), node=True)
    state = State(root=tmp_path / "rig")
    state.remember(settings)
    binaries = Binaries(Path("/opt/rig"))
    plane = ControlPlane(state=state, settings=settings, binaries=binaries)
    ensure_pki(state.pki, identities(network=settings.network, node="n"))
    plane.write_files()
    made = Node(state=state, settings=settings, binaries=binaries, plane=plane)
    made.write_files()
    return made


def test_the_kubelet_keeps_the_periods_that_users_have(node: Node) -> None:
    configured = yaml.safe_load((node.state.config / "kubelet.yaml").read_text())
    assert not {"syncFrequency", "nodeStatusUpdateFrequency", "configMapAndSecretChangeDetectionStrategy"} & set(
        configured
    )


def test_containerd_is_told_in_valid_toml(node: Node) -> None:
    configured = tomllib.loads((node.state.config / "containerd.toml").read_text())
    cri = configured["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["netns_mounts_under_state_dir"] is True
    assert cri["cni"]["bin_dir"] == "/usr/lib/cni"
    assert configured["root"].startswith(str(node.state.root))


def test_a_quote_in_a_path_does_not_break_the_toml(node: Node) -> None:
    odd = replace(node, state=State(root=node.state.root.parent / 'a "quoted" one'))
    odd.state.remember(node.settings)
    assert tomllib.loads(odd.containerd_toml())["root"] == str(odd.state.root / "containerd")


def test_pods_get_addresses_of_their_own_block(node: Node) -> None:
    bridge = json.loads((node.state.config / "cni" / "10-rig.conflist").read_text())["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": node.settings.network.pods}]]


def test_everything_runs_in_the_namespace_of_the_node(node: Node) -> None:
    for daemon in (node.containerd(), node.kubelet(), node.proxy(), node.network_policy(Path("/opt/netpol"))):
        assert daemon.argv[:3] == ("/usr/bin/nsenter", f"--net=/run/netns/{node.settings.netns}", "--")
        # nft, runc and the shim have to be found.
        assert "/usr/sbin" in dict(daemon.environment)["PATH"].split(":")


def test_a_changed_configuration_is_another_daemon(node: Node) -> None:
    before = node.kubelet().digest
    path = node.state.config / "kubelet.yaml"
    path.write_text(path.read_text() + "maxPods: 50\n")
    assert node.kubelet().digest != before


def test_a_path_too_long_for_sockets_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.node.LONGEST_STATE_PATH", LONGEST_STATE_PATH)
    deep = replace(node, state=State(root=Path("/" + "d" * (LONGEST_STATE_PATH + 1))))
    with pytest.raises(RigError, match=r"too long.*\n.*RIG_STATE"):
        deep.write_files()


def test_the_longest_path_leaves_room_for_the_kubelets_sockets() -> None:
    assert LONGEST_STATE_PATH + len("/kubelet/device-plugins/kubelet.sock") <= 107


def test_missing_plugins_are_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.node.cni_directory", lambda: None)
    with pytest.raises(CannotRunError, match="containernetworking-plugins"):
        node.containerd_toml()
