from pathlib import Path

from rig.process import Daemon, ProcessTable, start_ticks
from rig.state import State, new_settings
from rig.teardown import down


def test_wiping_removes_what_the_rig_made_and_nothing_else(tmp_path: Path) -> None:
    state = State(root=tmp_path)
    state.remember(new_settings(taken=[]))
    (tmp_path / "etcd").mkdir()
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "kubeconfig").write_text("")
    down(state, wipe=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_wiping_leaves_no_directory_of_its_own(tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    state.remember(new_settings(taken=[]))
    down(state, wipe=True)
    assert not state.root.exists()


def test_where_there_is_no_rig_nothing_happens(tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    down(state, wipe=False)
    down(state, wipe=True)
    assert not state.root.exists()


def test_a_broken_settings_file_does_not_keep_anybody_from_wiping(tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    state.root.mkdir()
    state.settings_file.write_text("{")
    down(state, wipe=True)
    assert not state.root.exists()


def test_without_wiping_the_data_stays(tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    state.remember(new_settings(taken=[]))
    table = ProcessTable(run=state.run, logs=state.logs)
    table.start(Daemon(name="etcd", argv=("etcd", "60"), executable=Path("/bin/sleep")))
    pid = table.pid("etcd")
    assert pid is not None
    down(state, wipe=False)
    assert start_ticks(pid) is None
    assert state.settings() is not None


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    state = State(root=tmp_path / "rig")
    state.remember(new_settings(taken=[]))
    (state.root / "etcd").symlink_to(precious)
    down(state, wipe=True)
    assert (precious / "file").exists()
