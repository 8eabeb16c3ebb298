"""Requests out of bytes: what passes, what is refused and how, and that it does not matter how the bytes are cut."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.api.runconfig import Limits, Listen, Route, Upstream
from fairway.proxy.answers import Refusal
from fairway.proxy.guards import build
from fairway.proxy.metrics import Counts
from fairway.proxy.parts import Parts
from fairway.proxy.pipeline import Policy, check_head
from fairway.proxy.reader import MAX_HEAD, Budget, RequestReader

CASES = yaml.safe_load((Path(__file__).parent / "data" / "heads.yaml").read_text())
ROUTE = Route(
    name="default/a", listen=Listen(port=1), upstream=Upstream(addresses=("127.0.0.1:2",)), limits=Limits(max_body=1024)
)
GUARDS = build(ROUTE.name, ROUTE.policy, loopback=False, parts=Parts(), before=None)
POLICY = Policy(ROUTE, GUARDS, Counts())


def judge(request):
    if request.path != b"/mcp":
        return Refusal(404, "no")
    request.policy = POLICY
    return check_head(request, POLICY)


def read(data: bytes, *, cuts: list[int] | None = None) -> RequestReader:
    reader = RequestReader(judge, Budget(1 << 20))
    edges = [0, *sorted(cuts or []), len(data)]
    for a, b in pairwise(edges):
        if a < b:
            reader.feed(data[a:b])
    return reader


def sent(case) -> bytes:
    return case["send"].encode("latin-1") + b"x" * case.get("fill", 0)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_request_passes_or_is_refused_as_written(case):
    reader = read(sent(case))
    (request,) = reader.ready
    if "body" in case:
        assert request.refusal is None, request.refusal
        assert request.body == case["body"].encode("latin-1")
    else:
        assert request.refusal is not None
        assert request.refusal.status == case["status"]
    assert reader.over == case.get("end", False)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.lists(st.integers(1, 260), max_size=6))
def test_it_does_not_matter_how_the_bytes_are_cut(case, cuts):
    data = sent(case)
    whole, cut = read(data), read(data, cuts=[c for c in cuts if c < len(data)])
    assert [(r.method, r.body, r.lines, r.refusal and r.refusal.status) for r in whole.ready] == [
        (r.method, r.body, r.lines, r.refusal and r.refusal.status) for r in cut.ready
    ]
    assert whole.over == cut.over


def one(data: bytes):
    (request,) = read(data).ready
    return request


def test_what_belongs_to_the_connection_or_to_the_proxy_is_not_passed_on():
    request = one(
        b"GET /mcp?x=1&y HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n"
        b"Keep-Alive: timeout=5\r\nTE: trailers\r\nAuthorization: Bearer secret\r\n"
        b"Proxy-Authorization: Basic x\r\nCookie: a=b\r\n"
        b"X-Other: 2\r\nMcp-Session-Id: s\r\nmcp-PARAM-region: eu\r\nLast-Event-ID: 7\r\nAccept:  a,  b \r\n\r\n"
    )
    assert request.lines == [b"Last-Event-ID: 7\r\n", b"Accept: a,  b \r\n"]
    assert request.others == [
        (b"x-other", b"X-Other: 2\r\n"),
        (b"mcp-param-region", b"mcp-PARAM-region: eu\r\n"),
    ]
    assert request.query == b"x=1&y"


def test_trailers_are_not_taken_for_headers():
    request = one(
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nMcp-Name: x\r\nHost: b\r\n\r\n"
    )
    assert request.lines == []
    assert request.headers[b"host"] == b"a"


def test_requests_in_one_piece_come_out_in_their_order():
    reader = read(b"".join(b"GET /mcp?%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(50)))
    assert [r.query for r in reader.ready] == [b"%d" % i for i in range(50)]
    assert all(r.keep_alive for r in reader.ready)


def test_after_an_offer_of_http2_the_next_request_is_read():
    reader = read(
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"
        b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    assert [(r.method, r.body, r.keep_alive) for r in reader.ready] == [(b"POST", b"{}", True), (b"GET", b"", True)]


def test_what_was_read_before_a_mistake_is_kept():
    reader = read(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\nGET /mcp HTTP/1.1\r\nHost: a\r\n\r\n")
    good, bad = reader.ready
    assert good.refusal is None
    assert bad.refusal.status == 400
    assert not bad.keep_alive


def test_nothing_is_read_after_close_was_asked_for():
    reader = read(b"GET /mcp HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /mcp HTTP/1.1\r\nHost: a\r\n\r\n")
    assert not reader.ready[0].keep_alive
    assert reader.ready[0].refusal is None
    assert reader.over


def test_an_endless_head_is_refused_in_time():
    reader = RequestReader(judge, Budget(1 << 20))
    reader.feed(b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: ")
    for _ in range(MAX_HEAD // 1000 + 2):
        reader.feed(b"a" * 1000)
    assert reader.ready[0].refusal.status == 431
    assert reader.over


def test_a_head_beyond_the_limit_is_refused_though_it_comes_in_one_piece():
    for sent in (b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n", b"GET /mcp?%b HTTP/1.1\r\nHost: a\r\n\r\n"):
        reader = read(sent % (b"a" * 2 * MAX_HEAD))
        assert [request.refusal.status for request in reader.ready] == [431]
        assert reader.over


def test_a_large_body_may_come_in_one_piece_with_its_head():
    body = b"x" * 1000
    head = b"POST /mcp HTTP/1.1\r\nHost: a\r\nX: %b\r\nContent-Length: 1000\r\n\r\n" % (b"a" * (MAX_HEAD - 200))
    (request,) = read(head + body).ready
    assert request.refusal is None
    assert request.body == body


def test_requests_that_are_sent_ahead_do_not_count_as_the_head_of_the_last_one():
    request = b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n"
    ahead = request * (MAX_HEAD // len(request))
    reader = RequestReader(judge, Budget(1 << 20))
    for piece in (ahead + request[:9], request[9:-9], request[-9:]):
        reader.feed(piece)
    assert [request.refusal for request in reader.ready] == [None] * (MAX_HEAD // len(request) + 1)


def test_too_many_headers_are_refused():
    headers = b"".join(b"X-%d: 1\r\n" % i for i in range(200))
    assert one(b"GET /mcp HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n").refusal.status == 431


def test_a_body_in_a_thousand_pieces_is_whole():
    reader = read(b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1000):
        reader.feed(b"1\r\nx\r\n")
    reader.feed(b"0\r\n\r\n")
    assert reader.ready[0].body == b"x" * 1000


def test_a_client_that_waits_to_be_asked_for_its_body_is_noticed():
    reader = read(b"POST /mcp HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert reader.wants_continue
    reader.feed(b"{}")
    assert not reader.wants_continue
    assert reader.ready[0].body == b"{}"


def test_a_client_that_would_be_refused_is_not_asked_for_its_body():
    reader = read(b"POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert not reader.wants_continue
    assert reader.ready[0].refusal.status == 404


def test_all_clients_together_can_only_make_it_hold_so_much():
    budget = Budget(150_000)
    large = Policy(msgspec.structs.replace(ROUTE, limits=Limits(max_body=1 << 20)), GUARDS, Counts())

    def judge_large(request):
        request.policy = large

    def reading(size: int) -> RequestReader:
        reader = RequestReader(judge_large, budget)
        reader.feed(b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * size)
        return reader

    first, second = reading(100_000), reading(90_000)
    (held,), (refused,) = first.ready, second.ready
    assert held.refusal is None
    assert (refused.refusal.status, refused.refusal.headers) == (503, (("Retry-After", "1"),))
    first.release(held)
    second.stop()
    assert budget.used == 0
    third = reading(90_000)
    assert budget.used == 90_000
    third.stop()
    assert budget.used == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from([sent(case) for case in CASES]), max_size=8))
def test_no_bytes_whatever_do_more_than_end_the_input(pieces):
    reader = RequestReader(judge, Budget(1 << 20))
    for piece in pieces:
        reader.feed(piece)
    if reader.over:
        assert not reader.ready[-1].keep_alive
    reader.stop()
    assert not reader.ready
