import json
from pathlib import Path

import pytest

from rig.remains import (
    KUBELET_SYSCTLS,
    cgroup_directory,
    make_cgroups,
    mounts_below,
    processes_in_cgroups,
    remember_sysctls,
    remove_log_links,
    restore_sysctls,
)
from rig.state import State, new_settings

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /rigs/one/kubelet/pods/a tmpfs rw 0 0
overlay /rigs/one/kubelet/pods/a/b overlay rw 0 0
tmpfs /rigs/one\\040two/x tmpfs rw 0 0
tmpfs /rigs/onemore tmpfs rw 0 0
tmpfs /rigs/one tmpfs rw 0 0
"""
SETTINGS = new_settings(taken=[])


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(root=tmp_path / "rig")
    made.config.mkdir(parents=True)
    return made


def test_mounts_are_found_deepest_first_and_neighbours_are_left_alone() -> None:
    found = mounts_below([Path("/rigs/one")], MOUNTS)
    assert found == ["/rigs/one/kubelet/pods/a/b", "/rigs/one/kubelet/pods/a"]


def test_a_space_in_a_path_is_a_space() -> None:
    assert mounts_below([Path("/rigs/one two")], MOUNTS) == ["/rigs/one two/x"]


def test_the_machines_settings_come_back(state: State, tmp_path: Path) -> None:
    root = tmp_path / "sys"
    for name in KUBELET_SYSCTLS[:-1]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("0\n")
    remember_sysctls(state, root)
    (root / KUBELET_SYSCTLS[0]).write_text("1\n")
    # A second `up` must not remember what the kubelet has set.
    remember_sysctls(state, root)
    restore_sysctls(state, root)
    assert (root / KUBELET_SYSCTLS[0]).read_text() == "0"
    assert not list(state.config.iterdir())
    restore_sysctls(state, root)


def test_version_2_hands_its_controllers_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    make_cgroups(SETTINGS, [tmp_path])
    for directory in (tmp_path, cgroup_directory(tmp_path, SETTINGS)):
        assert (directory / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_processes_are_collected_from_all_hierarchies(tmp_path: Path) -> None:
    for name, pids in (("cpu", "1\n2\n"), ("memory", "2\n3\n0\n")):
        pod = cgroup_directory(tmp_path / name, SETTINGS) / "kubepods" / "pod1"
        pod.mkdir(parents=True)
        (pod / "cgroup.procs").write_text(pids)
    other = tmp_path / "cpu" / "somebody"
    other.mkdir()
    (other / "cgroup.procs").write_text("99\n")
    assert processes_in_cgroups(SETTINGS, [tmp_path / "cpu", tmp_path / "memory"]) == {1, 2, 3}


def test_links_to_our_logs_go_and_others_stay(state: State, tmp_path: Path) -> None:
    links = tmp_path / "containers"
    links.mkdir()
    (links / "ours").symlink_to(state.root / "pod-logs" / "x")
    (links / "other").symlink_to("/var/log/pods/x")
    (links / "file").write_text("")
    remove_log_links(state, links)
    assert {path.name for path in links.iterdir()} == {"other", "file"}
    remove_log_links(state, tmp_path / "nowhere")


def test_what_is_remembered_is_readable(state: State, tmp_path: Path) -> None:
    remember_sysctls(state, tmp_path / "nothing")
    (file,) = state.config.iterdir()
    assert json.loads(file.read_text()) == {}
