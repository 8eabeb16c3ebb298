import socket
import struct
from typing import Any

import pytest

from rig.dns import MOST_ADDRESSES, Endpoints, Found, Zone, answer, question, read_name, write_name

AAAA, SRV = 28, 33


def zone() -> Zone:
    made = Zone()
    made.put_service("web.default", {"spec": {"clusterIP": "10.0.0.1"}})
    made.put_service("head.default", {"spec": {"clusterIP": "None"}})
    made.put_service("away.default", {"spec": {"type": "ExternalName", "externalName": "elsewhere.example."}})
    made.put_slice(
        "head-1.default",
        endpoint_slice("head", [{"addresses": ["10.0.1.1"], "hostname": "head-0"}, {"addresses": ["10.0.1.2"]}]),
    )
    return made


def endpoint_slice(service: str, endpoints: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "s", "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        **more,
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("web.default.svc.cluster.local", Found(("10.0.0.1",))),
        ("WEB.Default.svc.Cluster.Local.", Found(("10.0.0.1",))),
        ("head.default.svc.cluster.local", Found(("10.0.1.1", "10.0.1.2"))),
        ("head-0.head.default.svc.cluster.local", Found(("10.0.1.1",))),
        ("10-0-1-2.head.default.svc.cluster.local", Found(("10.0.1.2",))),
        ("away.default.svc.cluster.local", Found(alias="elsewhere.example.")),
        ("10-1-2-3.default.pod.cluster.local", Found(("10.1.2.3",))),
        # Parts of names that exist do exist, without an address.
        ("cluster.local", Found()),
        ("svc.cluster.local", Found()),
        ("default.svc.cluster.local", Found()),
        ("default.pod.cluster.local", Found()),
        # Nothing else does.
        ("gone.default.svc.cluster.local", None),
        ("web.other.svc.cluster.local", None),
        ("other.svc.cluster.local", None),
        ("head-9.head.default.svc.cluster.local", None),
        ("x.web.default.svc.cluster.local", None),
        ("a.b.head.default.svc.cluster.local", None),
        ("300-0-0-1.default.pod.cluster.local", None),
        ("x.10-1-2-3.default.pod.cluster.local", None),
        ("web.default.svc", None),
        ("example.com", None),
        ("notcluster.local", None),
        ("", None),
    ],
)
def test_names_lead_where_a_cluster_says(name: str, found: Found | None) -> None:
    assert zone().find(name) == found


def test_pods_that_are_not_ready_have_no_name() -> None:
    endpoints = Endpoints.of(
        endpoint_slice(
            "head",
            [
                {"addresses": ["10.0.1.1"], "conditions": {"ready": False}, "hostname": "a"},
                {"addresses": ["10.0.1.2"], "conditions": {"ready": True}},
                {"addresses": ["10.0.1.3"], "conditions": {}},
            ],
        )
    )
    assert endpoints.addresses == ("10.0.1.2", "10.0.1.3")


def test_a_headless_service_without_pods_exists() -> None:
    made = Zone()
    made.put_service("head.default", {"spec": {"clusterIP": "None"}})
    assert made.find("head.default.svc.cluster.local") == Found()


def test_addresses_of_several_slices_are_joined_once() -> None:
    made = zone()
    made.put_slice("head-2.default", endpoint_slice("head", [{"addresses": ["10.0.1.2"]}, {"addresses": ["10.0.1.9"]}]))
    assert made.find("head.default.svc.cluster.local") == Found(("10.0.1.1", "10.0.1.2", "10.0.1.9"))


def test_slices_of_another_address_family_are_left_out() -> None:
    assert Endpoints.of(endpoint_slice("head", [{"addresses": ["fd00::1"]}], addressType="IPv6")).addresses == ()
    assert Endpoints.of({**endpoint_slice("head", []), "endpoints": None}).addresses == ()


def test_what_is_deleted_is_gone() -> None:
    made = zone()
    made.put_slice("head-1.default", None)
    made.put_service("web.default", None)
    made.put_service("web.default", None)
    assert made.find("head.default.svc.cluster.local") == Found()
    assert made.find("web.default.svc.cluster.local") is None


def reply(query: bytes, of: Zone | None = None) -> tuple[int, int, list[bytes]]:
    """The code, the flags and the data of the records."""
    message = answer(query, of or zone(), shuffle=lambda addresses: None)
    assert message is not None
    identity, flags, questions, records, _, _ = struct.unpack_from(">6H", message)
    assert identity == struct.unpack_from(">H", query)[0]
    at = 12
    if questions:
        _, at = read_name(message, 12)
        at += 4
    found = []
    for _ in range(records):
        name, _, _, _, size = struct.unpack_from(">HHHIH", message, at)
        assert name == 0xC00C
        found.append(message[at + 12 : at + 12 + size])
        at += 12 + size
    assert at == len(message)
    return flags & 0xF, flags, found


def test_an_address_is_answered() -> None:
    code, flags, found = reply(question("web.default.svc.cluster.local"))
    assert (code, found) == (0, [socket.inet_aton("10.0.0.1")])
    assert flags & 0x8000
    assert flags & 0x0100, "that recursion was wanted is echoed"


def test_a_name_that_does_not_exist_is_told_apart_from_one_without_such_a_record() -> None:
    # A resolver that hears NXDOMAIN for AAAA takes the A record for missing too.
    assert reply(question("web.default.svc.cluster.local", kind=AAAA))[::2] == (0, [])
    assert reply(question("web.default.svc.cluster.local", kind=SRV))[::2] == (0, [])
    assert reply(question("gone.default.svc.cluster.local"))[::2] == (3, [])


def test_an_external_name_is_an_alias() -> None:
    assert reply(question("away.default.svc.cluster.local"))[::2] == (0, [write_name("elsewhere.example")])


def test_an_answer_fits_into_a_datagram() -> None:
    made = Zone()
    made.put_service("head.default", {"spec": {"clusterIP": "None"}})
    many = [{"addresses": [f"10.0.{number // 250}.{number % 250}"]} for number in range(300)]
    made.put_slice("head.default", endpoint_slice("head", many))
    query = question("head.default.svc.cluster.local")
    _, flags, found = reply(query, made)
    assert len(found) == MOST_ADDRESSES
    assert flags & 0x0200, "truncated"
    assert len(answer(query, made) or b"") <= 512


# The same in every process that shares the tests.
ASKED = question("a.b", identity=7)


@pytest.mark.parametrize(
    "query",
    [
        ASKED[:12],
        ASKED[:14],
        ASKED[:-1],
        ASKED[:12] + b"\xc0\x0c\x00\x01\x00\x01",
        ASKED[:12] + b"\x3f" + b"x" * 10,
        ASKED[:12] + b"\x01\xff\x00\x00\x01\x00\x01",
        ASKED[:4] + b"\x00\x02" + ASKED[6:],
        ASKED[:4] + b"\x00\x00" + ASKED[6:],
    ],
)
def test_a_broken_question_is_answered_as_such(query: bytes) -> None:
    assert reply(query)[0] == 1


def test_other_kinds_of_requests_are_not_implemented() -> None:
    update = bytearray(question("a.b"))
    update[2] |= 5 << 3
    assert reply(bytes(update))[0] == 4


def test_what_is_no_question_gets_no_answer() -> None:
    answered = bytearray(question("a.b"))
    answered[2] |= 0x80
    assert answer(bytes(answered), zone()) is None
    assert answer(b"short", zone()) is None
    assert answer(b"", zone()) is None


def test_names_are_read_as_they_are_written() -> None:
    assert read_name(write_name("a.bc.def"), 0) == ("a.bc.def", 10)
