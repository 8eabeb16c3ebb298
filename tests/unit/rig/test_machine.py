from pathlib import Path

import pytest

from rig.errors import CannotRunError
from rig.machine import cgroup_hierarchies, lacking_capabilities, require_linux, require_node
from rig.progress import Progress

VERSION_1 = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
cgroup /elsewhere cgroup rw,relatime,memory 0 0
"""
VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def test_every_hierarchy_of_version_1_counts_and_the_empty_one_of_version_2_does_not() -> None:
    assert cgroup_hierarchies(VERSION_1) == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/systemd")]


def test_version_2_has_one_hierarchy() -> None:
    assert cgroup_hierarchies(VERSION_2) == [Path("/sys/fs/cgroup")]


@pytest.mark.parametrize(
    ("effective", "lacking"),
    [
        ("000001ffffffffff", []),
        # All but CAP_SYS_RESOURCE, as in many sandboxes.
        ("000001fffeffffff", []),
        ("00000000a80425fb", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]),
        ("0000000000000000", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]),
    ],
)
def test_what_a_container_lacks_is_named(effective: str, lacking: list[str]) -> None:
    assert lacking_capabilities(f"Name:\tx\nCapEff:\t{effective}\n") == lacking


def test_other_systems_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(CannotRunError, match=r"Darwin[\s\S]*RIG_KUBECONFIG"):
        require_linux()


def test_a_node_needs_root_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CannotRunError, match="needs root"):
        require_node(progress=Progress(quiet=True))
