import ipaddress
import json
import socket
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.state import (
    BLOCK_RANGE,
    PORT_RANGE,
    Network,
    Settings,
    State,
    cache_directory,
    free_network,
    free_ports,
    new_settings,
    port_is_free,
)


def test_the_parts_of_a_network_lie_in_its_block_and_apart_from_each_other() -> None:
    network = Network(block=200)
    whole = ipaddress.ip_network(network.cidr)
    link = ipaddress.ip_network(f"{network.host_address}/{network.link_prefix}", strict=False)
    parts = [ipaddress.ip_network(network.pods), ipaddress.ip_network(network.services), link]
    for part in parts:
        assert part.subnet_of(whole)
        assert not any(part.overlaps(other) for other in parts if other is not part)
    assert ipaddress.ip_address(network.node_address) in link
    assert ipaddress.ip_address(network.dns_service) in ipaddress.ip_network(network.services)
    # The API server gives its own service the first address of the range.
    assert network.kubernetes_service == str(next(ipaddress.ip_network(network.services).hosts()))


def test_a_network_is_chosen_away_from_those_that_are_taken() -> None:
    left = 177
    taken = [f"10.{block}.3.0/24" for block in BLOCK_RANGE if block != left]
    assert free_network(taken=[*taken, "192.168.1.0/24", "0.0.0.0/0", "fd00::/64"]).block == left


def test_no_free_network_is_an_error_with_a_way_out() -> None:
    with pytest.raises(RigError, match="rig down"):
        free_network(taken=["10.0.0.0/8"])


def test_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports()
    numbers = [ports.apiserver, ports.etcd, ports.etcd_peer, ports.controller_manager, ports.scheduler]
    assert len(set(numbers)) == 5
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port in PORT_RANGE and port < first for port in numbers)


def test_ports_in_use_are_not_chosen() -> None:
    with pytest.raises(RigError, match="free ports"):
        free_ports(is_free=lambda _: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not port_is_free(server.getsockname()[1])


def test_settings_survive_being_written_and_read(tmp_path: Path) -> None:
    state, settings = State(root=tmp_path / "rig"), new_settings(taken=[])
    assert state.settings() is None
    state.remember(settings)
    assert state.settings() == settings


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": "a", "network": {}, "ports": {}, "node": true}'])
def test_settings_that_cannot_be_read_are_named_with_the_fix(tmp_path: Path, text: str) -> None:
    state = State(root=tmp_path)
    state.settings_file.write_text(text)
    with pytest.raises(RigError, match=r"rig\.json.*\n.*down --wipe"):
        state.settings()
    assert state.settings(broken_is_none=True) is None


def test_names_in_the_kernel_are_short_enough() -> None:
    settings = new_settings(taken=[])
    # IFNAMSIZ is 16 with the final zero; sun_path is 108 with it.
    assert len(settings.link) <= 15
    assert len(str(settings.sockets / "containerd" / "s" / ("f" * 64))) <= 107


def test_two_rigs_share_nothing() -> None:
    one, two = new_settings(taken=[]), new_settings(taken=[])
    assert one.identity != two.identity
    assert {one.netns, one.link, one.cgroup, str(one.sockets)}.isdisjoint(
        {two.netns, two.link, two.cgroup, str(two.sockets)}
    )


def test_the_environment_says_where_a_rig_is(tmp_path: Path) -> None:
    assert State.from_environment({"RIG_STATE": str(tmp_path)}).root == tmp_path
    assert State.from_environment({}).root.name == ".rig"
    assert State.from_environment({"RIG_STATE": ""}).root.name == ".rig"


def test_the_cache_follows_the_desktop_rules() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/var/cache/me"}) == Path("/var/cache/me/fairway/rig")
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/fairway/rig"
    assert cache_directory({}) == Path.home() / ".cache/fairway/rig"


def test_settings_are_plain_json() -> None:
    settings = new_settings(taken=[])
    assert Settings.from_json(json.dumps(json.loads(settings.to_json()))) == settings
