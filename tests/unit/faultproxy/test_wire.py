"""HTTP/1.1 framing: what comes in goes out the same."""

import json

import httptools
import pytest

from tests.faultproxy.actions import too_many_requests
from tests.faultproxy.wire import AnswerReader, Message, RequestReader, chunk, made_up


def requests(*pieces: bytes) -> list[Message]:
    reader = RequestReader()
    for piece in pieces:
        reader.feed(piece)
    return [reader.inbox.get_nowait() for _ in range(reader.inbox.qsize())]


def answer(data: bytes, *, method: str = "GET", step: int = 7) -> AnswerReader:
    reader = AnswerReader(method=method)
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
    return reader


def test_requests_on_one_connection_are_told_apart() -> None:
    raw = b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    found = requests(raw[:20], raw[20:60], raw[60:])
    assert [(message.method, message.target, message.body) for message in found] == [
        ("PUT", "/a", b"abc"),
        ("GET", "/b", b""),
    ]


def test_a_request_is_passed_on_as_it_came() -> None:
    raw = b"PATCH /a?b=%20 HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nX-One: 2\r\nContent-Length: 2\r\n\r\n{}"
    (message,) = requests(raw)
    (again,) = requests(message.encoded())
    assert (again.method, again.target, again.body) == ("PATCH", "/a?b=%20", b"{}")
    assert [value for name, value in again.headers if name == b"X-One"] == [b"1", b"2"]


def test_a_chunked_request_is_passed_on_with_its_length() -> None:
    raw = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(b"abc")
        + chunk(b"de")
        + b"0\r\n\r\n"
    )
    (message,) = requests(raw)
    encoded = message.encoded()
    assert encoded.endswith(b"Content-Length: 5\r\n\r\nabcde")
    assert b"chunked" not in encoded


def test_a_header_can_be_taken_out() -> None:
    (message,) = requests(b"GET / HTTP/1.1\r\nAUTHORIZATION: secret\r\nHost: x\r\n\r\n")
    assert b"secret" not in message.without(b"authorization").encoded()


def test_bytes_behind_an_upgrade_go_to_the_tunnel() -> None:
    reader = RequestReader()
    reader.feed(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw")
    reader.feed(b"more")
    assert reader.inbox.get_nowait().upgrade
    assert [reader.tunnel.get_nowait(), reader.tunnel.get_nowait()] == [b"raw", b"more"]


def test_what_is_no_http_is_refused() -> None:
    with pytest.raises(httptools.HttpParserError):
        requests(b"\x16\x03\x01\x00\xa5\x01\x00\x00")


def test_an_answer_with_a_length_keeps_it() -> None:
    reader = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello")
    assert reader.ended
    assert b"".join(reader.parts) == b"hello"
    assert reader.head.encoded() == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n"


def test_an_answer_in_chunks_stays_one() -> None:
    reader = answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"hello") + b"0\r\n\r\n")
    assert reader.ended
    assert b"".join(reader.parts) == b"hello"
    assert reader.head.encoded().endswith(b"Transfer-Encoding: chunked\r\n\r\n")


def test_an_interim_answer_is_not_the_answer() -> None:
    reader = answer(b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")
    assert not reader.began
    reader.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert reader.ended
    assert (reader.head.status, reader.head.has_body, reader.head.headers) == (204, False, [])


def test_an_upgrade_keeps_what_came_with_it() -> None:
    reader = answer(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw", step=999
    )
    assert reader.upgraded
    assert reader.rest == b"raw"


def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    assert answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", method="HEAD").ended


def test_a_made_up_error_is_what_the_api_server_would_send() -> None:
    reader = answer(made_up(too_many_requests(3)), step=999)
    assert reader.ended
    assert reader.head.status == 429
    assert (b"Retry-After", b"3") in reader.head.headers
    body = json.loads(b"".join(reader.parts))
    assert (body["kind"], body["code"], body["reason"], body["details"]) == (
        "Status",
        429,
        "TooManyRequests",
        {"retryAfterSeconds": 3},
    )
