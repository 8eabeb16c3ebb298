from dataclasses import replace
from pathlib import Path

import pytest

from rig.binary import Binaries
from rig.controlplane import AUDIT_POLICY, QUIET_USERS, ControlPlane
from rig.pki import ensure_pki, identities
from rig.state import State, new_settings


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    settings = new_settings(taken=[])
    state = State(root=tmp_path)
    ensure_pki(state.pki, identities(network=settings.network, node="n"))
    made = ControlPlane(state=state, settings=settings, binaries=Binaries(Path("/opt/rig")))
    made.write_files()
    return made


def test_without_a_node_everything_is_on_loopback(plane: ControlPlane) -> None:
    assert plane.server.startswith("https://127.0.0.1:")
    daemons = [plane.etcd(), plane.apiserver(), plane.controller_manager(), plane.scheduler()]
    for daemon in daemons:
        assert "0.0.0.0" not in " ".join(daemon.argv)
        assert daemon.executable == Path("/opt/rig/kube")
        assert daemon.argv[0] == daemon.name
    assert "--bind-address=127.0.0.1" in plane.apiserver().argv


def test_with_a_node_the_api_server_is_where_pods_reach_it_and_nowhere_else(plane: ControlPlane) -> None:
    with_node = replace(plane, settings=replace(plane.settings, node=True))
    address = plane.settings.network.host_address
    assert with_node.server.startswith(f"https://{address}:")
    assert f"--bind-address={address}" in with_node.apiserver().argv
    # What talks to it has to be started anew, although its arguments are the same.
    before = plane.controller_manager().digest
    with_node.write_files()
    assert with_node.controller_manager().argv == plane.controller_manager().argv
    assert with_node.controller_manager().digest != before


def test_the_same_settings_start_nothing_anew(plane: ControlPlane) -> None:
    before = [plane.apiserver().digest, plane.scheduler().digest]
    plane.write_files()
    assert [plane.apiserver().digest, plane.scheduler().digest] == before


def test_options_of_the_user_come_last_and_win(plane: ControlPlane) -> None:
    chosen = replace(plane, apiserver_options=("--min-request-timeout=5",))
    assert chosen.apiserver().argv[-1] == "--min-request-timeout=5"


def test_the_control_planes_own_requests_are_not_audited(plane: ControlPlane) -> None:
    rules = AUDIT_POLICY["rules"]
    assert isinstance(rules, list)
    assert rules[-1] == {"level": "Metadata"}
    assert "admin" not in QUIET_USERS
    assert not any("system:serviceaccounts" in rule.get("userGroups", []) for rule in rules)


def test_no_secret_is_in_the_arguments(plane: ControlPlane) -> None:
    keys = [path.read_text() for path in plane.state.pki.glob("*.key")]
    shown = " ".join([*plane.apiserver().argv, *plane.controller_manager().argv])
    assert not any(line in shown for key in keys for line in key.splitlines() if len(line) > 20)
