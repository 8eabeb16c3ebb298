import ipaddress
import os
from pathlib import Path

import pytest

from rig.network import in_namespace, network_commands, processes_in, taken_networks
from rig.state import new_settings

SETTINGS = new_settings(taken=[])


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.network.program", lambda name: Path("/sbin") / name)


def test_the_machine_routes_the_whole_block_to_the_node_and_nothing_else() -> None:
    routes = [c for c in network_commands(SETTINGS) if c[1:3] == ["route", "add"]]
    network = SETTINGS.network
    assert routes == [
        ["/sbin/ip", "route", "add", network.cidr, "via", network.node_address, "dev", SETTINGS.link],
    ]


def test_everything_else_happens_inside_the_namespace() -> None:
    for command in network_commands(SETTINGS):
        names = SETTINGS.link in command or SETTINGS.netns in command
        assert names, command


def test_commands_keep_the_mounts_of_the_machine() -> None:
    command = in_namespace(SETTINGS, ["kubelet", "--x"])
    assert command == ["/sbin/nsenter", f"--net=/run/netns/{SETTINGS.netns}", "--", "kubelet", "--x"]


def test_processes_of_a_namespace_that_is_not_there_are_none() -> None:
    assert processes_in(SETTINGS) == []


def test_processes_are_told_apart_by_their_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.network.NAMESPACES", tmp_path)
    (tmp_path / SETTINGS.netns).write_text("")
    for pid in ("1", "2", "3"):
        (tmp_path / "proc" / pid / "ns").mkdir(parents=True)
    os.link(tmp_path / SETTINGS.netns, tmp_path / "proc" / "2" / "ns" / "net")
    (tmp_path / "proc" / "3" / "ns" / "net").write_text("another")
    assert processes_in(SETTINGS, (tmp_path / "proc").iterdir()) == [2]


def test_the_networks_of_this_machine_are_networks() -> None:
    for network in taken_networks():
        ipaddress.ip_network(network, strict=False)
