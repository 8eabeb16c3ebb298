import subprocess
import sys
from pathlib import Path

import pytest

from rig.binary import Binaries
from rig.bringup import Options, Rise, _settings
from rig.errors import RigError
from rig.process import ProcessTable, start_ticks, wait_for_exit
from rig.progress import Progress
from rig.state import State, new_settings


def rise(state: State, **options: object) -> Rise:
    return Rise(
        state=state,
        settings=new_settings(taken=[]),
        options=Options(**options),  # type: ignore[arg-type]
        binaries=Binaries(Path("/opt/rig")),
        enforcer=None,
        progress=Progress(quiet=True),
    )


def test_settings_stay_the_same_from_one_start_to_the_next(tmp_path: Path) -> None:
    state = State(root=tmp_path)
    first = _settings(state, node=False)
    assert _settings(state, node=False) == first
    assert state.settings() == first


def test_ports_that_were_taken_meanwhile_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(root=tmp_path)
    first = _settings(state, node=False)
    monkeypatch.setattr("rig.bringup.port_is_free", lambda port: port != first.ports.etcd)
    second = _settings(state, node=False)
    assert second.ports != first.ports
    assert second.network == first.network
    assert state.settings() == second


def test_a_network_that_was_taken_meanwhile_is_refused_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(root=tmp_path)
    first = _settings(state, node=False)
    monkeypatch.setattr("rig.bringup.taken_networks", lambda: [f"10.{first.network.block}.7.0/24"])
    with pytest.raises(RigError, match="down --wipe"):
        _settings(state, node=True)


def test_a_rig_without_an_owner_has_no_guard(tmp_path: Path) -> None:
    state = State(root=tmp_path)
    rise(state).guard()
    assert ProcessTable(run=state.run, logs=state.logs).names() == []


def test_an_owner_that_is_gone_already_is_refused(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    with pytest.raises(RigError, match="no such process"):
        rise(State(root=tmp_path), owner=child.pid).guard()


def test_the_guard_wipes_the_rig_when_its_owner_ends(tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    state.remember(new_settings(taken=[]))
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as owner:
        rise(state, owner=owner.pid).guard()
        table = ProcessTable(run=state.run, logs=state.logs)
        pid = table.pid("guard")
        assert pid is not None
        started = start_ticks(pid)
        owner.kill()
    wait_for_exit(pid, started=started or 0)
    assert not state.root.exists()
