"""Ports that last across restarts, and free ones."""

import json
import socket

import pytest

from fairway.local.ports import BEHIND, Assignment, NoPortLeft, PortBook, assign, is_free


def free(*taken):
    return lambda port: port not in taken


def test_servers_get_ports_from_the_base_in_order_of_name():
    assert assign(["b", "a"], {}, base=7001, is_free=free()) == {
        "a": Assignment(7001, 7001),
        "b": Assignment(7002, 7002),
    }


def test_a_taken_port_is_skipped():
    assert assign(["a", "b"], {}, base=7001, is_free=free(7001))["b"].port == 7003


def test_a_reserved_port_is_kept():
    assert assign(["a", "z"], {"z": 7001}, base=7001, is_free=free()) == {
        "a": Assignment(7002, 7002),
        "z": Assignment(7001, 7001),
    }


def test_a_server_whose_port_is_taken_moves_and_remembers_what_it_had():
    moved = assign(["a"], {"a": 7001}, base=7001, is_free=free(7001))["a"]
    assert moved == Assignment(7002, wanted=7001)
    assert moved.moved


def test_a_port_of_an_absent_server_is_not_given_away():
    assert assign(["new"], {"absent": 7001}, base=7001, is_free=free())["new"].port == 7002


def test_another_base_lets_go_of_lower_reservations():
    assert assign(["a"], {"a": 7001}, base=9000, is_free=free())["a"] == Assignment(9000, 9000)


def test_no_free_port_is_said_with_what_to_do():
    with pytest.raises(NoPortLeft, match="--port-base"):
        assign(["a"], {}, base=65535, is_free=free(65535))


def test_a_listening_port_is_not_free_and_a_closed_one_is():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_the_book_gives_the_same_ports_in_the_next_run(tmp_path):
    path = tmp_path / "ports.json"
    first = PortBook(path, base=BEHIND.stop).assign(["x/a", "x/b"])
    again = PortBook(path, base=BEHIND.stop).assign(["x/b", "x/a"])
    assert again == first
    alone = PortBook(path, base=BEHIND.stop).assign(["x/b"])
    assert alone["x/b"] == first["x/b"]


def test_a_port_taken_for_one_run_does_not_cost_the_reservation(tmp_path):
    path = tmp_path / "ports.json"
    wanted = PortBook(path, base=BEHIND.stop).assign(["a"])["a"].port
    with socket.create_server(("127.0.0.1", wanted)):
        assert PortBook(path, base=BEHIND.stop).assign(["a"])["a"].moved
    assert PortBook(path, base=BEHIND.stop).assign(["a"])["a"].port == wanted


@pytest.mark.parametrize(
    "spoilt", ["", "{", "[]", "null", '{"a": "7001"}', '{"a": true}', '{"a": 0}', '{"a": 70000}', '{"a": -1}']
)
def test_a_spoilt_file_costs_only_the_old_numbers(tmp_path, spoilt):
    path = tmp_path / "ports.json"
    path.write_text(spoilt)
    port = PortBook(path, base=BEHIND.stop).assign(["a"])["a"].port
    assert json.loads(path.read_text()) == {"a": port}


def test_two_servers_cannot_have_been_promised_one_port(tmp_path):
    path = tmp_path / "ports.json"
    path.write_text('{"a": 30500, "b": 30500}')
    ports = PortBook(path, base=30400).assign(["a", "b"])
    assert ports["a"].port != ports["b"].port


def test_free_ports_are_handed_out_once_until_they_are_given_back(tmp_path):
    book = PortBook(tmp_path / "ports.json")
    ports = [book.any_free() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(port in BEHIND for port in ports)
    book.give_back(ports)
    assert book.any_free() in BEHIND
