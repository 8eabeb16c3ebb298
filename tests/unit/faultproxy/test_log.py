"""The log: what passed, told apart from what was done."""

import threading

import pytest

from tests.faultproxy.log import Log
from tests.faultproxy.request import Request
from tests.faultproxy.rules import Requests


def request(number: int, verb: str = "apply", resource: str = "configmaps", *, dry_run: bool = False) -> Request:
    return Request(number=number, method="", target="", verb=verb, resource=resource, name="x", dry_run=dry_run)


def test_writes_are_those_of_the_work_alone() -> None:
    log = Log()
    for entry in (
        request(1),
        request(2, "get"),
        request(3, resource="leases.coordination.k8s.io"),
        request(4, dry_run=True),
        request(5, "delete"),
    ):
        log.begin(entry)
    assert [entry.request.number for entry in log.writes()] == [1, 5]
    assert [entry.request.number for entry in log.writes(since=1)] == [5]
    assert len(log.matching(Requests())) == 5


def test_a_write_is_done_if_the_server_did_it_whatever_the_client_heard() -> None:
    exchange = Log().begin(request(1))
    assert not exchange.done
    exchange.upstream, exchange.status, exchange.fault = 200, 504, "Answer 504"
    assert exchange.done
    assert str(exchange) == "#1 apply configmaps/x -> 504 (upstream 200) [Answer 504]"


@pytest.mark.parametrize(
    ("body", "careless"),
    [
        (b'{"preconditions":{"uid":"u","resourceVersion":"5"}}', False),
        (b'{"preconditions":{"uid":"u"}}', True),
        (b"{}", True),
        (b"", True),
    ],
)
def test_a_delete_is_careless_unless_it_names_the_uid_and_the_version(body: bytes, careless: bool) -> None:
    log = Log()
    log.begin(request(1, "delete"), body)
    assert bool(log.careless_deletes()) is careless


def test_waiting_ends_when_what_is_waited_for_happens() -> None:
    log = Log()
    threading.Timer(0.05, lambda: log.begin(request(1))).start()
    log.wait("a request", lambda seen: len(seen) == 1, seconds=10)


def test_waiting_in_vain_shows_the_last_requests() -> None:
    log = Log()
    log.begin(request(1))
    with pytest.raises(TimeoutError, match=r"in vain for pigs to fly(.|\n)*#1 apply configmaps/x"):
        log.wait("pigs to fly", lambda _: False, seconds=0.01)
