"""The websocket core: what is sent is what RFC 6455 says, and what is received is checked."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.kube import websocket
from fairway.kube.websocket import (
    CloseCode,
    Closed,
    Event,
    HandshakeFailed,
    Message,
    Offer,
    Ping,
    Pong,
    ProtocolViolation,
    WebSocket,
)
from tests.unit.kube.peer import frame

# Of section 1.3 of the RFC.
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
GOOD = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-accept": ACCEPT,
    "sec-websocket-protocol": "b",
}


def opened(limit: int = 1 << 20) -> WebSocket:
    return WebSocket(max_message=limit)


def by_the_book(sent: bytes) -> tuple[int, bytes]:
    """First byte and payload of one frame of a client."""
    assert sent[1] & 0x80, "a client must mask"
    size, at = sent[1] & 0x7F, 2
    if size == 126:
        size, at = struct.unpack("!H", sent[2:4])[0], 4
    elif size == 127:
        size, at = struct.unpack("!Q", sent[2:10])[0], 10
    key, body = sent[at : at + 4], sent[at + 4 :]
    assert len(body) == size
    return sent[0], bytes(byte ^ key[position % 4] for position, byte in enumerate(body))


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 127, 2047, 2048, 2049, 65535, 65536, 70001])
def test_what_is_sent_can_be_read_by_the_book(size: int) -> None:
    data = bytes(position * 7 & 0xFF for position in range(size))
    assert by_the_book(websocket.message(data)) == (0x82, data)


def test_control_frames_are_sent_masked_too() -> None:
    assert by_the_book(websocket.ping(b"a")) == (0x89, b"a")
    assert by_the_book(websocket.pong(b"b")) == (0x8A, b"b")
    assert by_the_book(websocket.close(CloseCode.TOO_BIG)) == (0x88, b"\x03\xf1")
    assert by_the_book(websocket.close(CloseCode.NO_STATUS)) == (0x88, b"")


def test_every_frame_has_a_mask_of_its_own() -> None:
    assert len({websocket.message(b"same") for _ in range(50)}) == 50


@given(st.binary(max_size=5000), st.binary(min_size=4, max_size=4))
def test_a_mask_laid_on_twice_is_gone(data: bytes, key: bytes) -> None:
    assert websocket.mask(websocket.mask(data, key), key) == data
    assert websocket.mask(data, b"\0\0\0\0") == data


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536])
def test_a_message_of_any_length_arrives(size: int) -> None:
    assert opened().receive(frame(2, b"x" * size)) == [Message(b"x" * size)]


def test_control_frames_may_stand_between_fragments() -> None:
    data = frame(2, b"a", final=False) + frame(9, b"p") + frame(0, b"b", final=False) + frame(10) + frame(0, b"c")
    assert opened().receive(data) == [Ping(b"p"), Pong(b""), Message(b"abc")]


def test_a_text_message_in_fragments_may_be_cut_within_a_character() -> None:
    data = frame(1, b"\xc3", final=False) + frame(0, b"\xa4")
    assert opened().receive(data) == [Message("ä".encode(), text=True)]


MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=300).map(lambda data: (frame(2, data), [Message(data)])),
        st.binary(max_size=125).map(lambda data: (frame(9, data), [Ping(data)])),
        st.lists(st.binary(max_size=50), min_size=2, max_size=4).map(
            lambda parts: (
                frame(2, parts[0], final=False)
                + b"".join(frame(0, part, final=False) for part in parts[1:-1])
                + frame(0, parts[-1]),
                [Message(b"".join(parts))],
            )
        ),
        st.just((frame(2, b"l" * 66000), [Message(b"l" * 66000)])),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(MESSAGES, st.data())
def test_it_does_not_matter_how_bytes_are_cut(messages: list[tuple[bytes, list[Event]]], data: st.DataObject) -> None:
    stream = b"".join(sent for sent, _ in messages)
    expected = [event for _, events in messages for event in events]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    socket = opened()
    got: list[Event] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += socket.receive(stream[start:end])
    assert got == expected


def test_one_byte_at_a_time() -> None:
    socket = opened()
    stream = frame(2, b"y" * 300) + frame(8, b"\x03\xe8bye")
    assert [event for byte in stream for event in socket.receive(bytes((byte,)))] == [
        Message(b"y" * 300),
        Closed(1000, "bye"),
    ]


def test_nothing_is_read_behind_the_close() -> None:
    socket = opened()
    assert socket.receive(frame(8) + frame(2, b"late")) == [Closed(CloseCode.NO_STATUS, "")]
    assert socket.receive(frame(2, b"later")) == []


BAD = {
    "masked": (bytes((0x82, 0x81)) + b"kkkkx", 1002),
    "reserved bit": (frame(2, rsv=0x40), 1002),
    "unknown data opcode": (frame(3), 1002),
    "unknown control opcode": (frame(11), 1002),
    "fragmented ping": (frame(9, final=False), 1002),
    "long ping": (struct.pack("!BBH", 0x89, 126, 126), 1002),
    "continuation of nothing": (frame(0, b"x"), 1002),
    "message within a message": (frame(2, b"x", final=False) + frame(2, b"y"), 1002),
    "16-bit length for a short frame": (struct.pack("!BBH", 0x82, 126, 125), 1002),
    "64-bit length for a short frame": (struct.pack("!BBQ", 0x82, 127, 65535), 1002),
    "64-bit length with its highest bit": (struct.pack("!BBQ", 0x82, 127, 1 << 63), 1002),
    "longer than the limit": (struct.pack("!BBQ", 0x82, 127, (1 << 20) + 1), 1009),
    "fragments longer than the limit": (frame(2, b"x" * (1 << 19), final=False) * 1 + frame(0, b"x" * (1 << 20)), 1009),
    "text that is not UTF-8": (frame(1, b"\xff"), 1007),
    "text that ends within a character": (frame(1, b"\xc3"), 1007),
    "close with half a code": (frame(8, b"\x03"), 1002),
    "close with a code that must not be sent": (frame(8, struct.pack("!H", 1005)), 1002),
    "close with a code that is none": (frame(8, struct.pack("!H", 999)), 1002),
    "close with a reason that is not UTF-8": (frame(8, b"\x03\xe8\xff"), 1007),
}


@pytest.mark.parametrize("name", BAD)
def test_a_violation_is_refused_with_its_code(name: str) -> None:
    data, code = BAD[name]
    with pytest.raises(ProtocolViolation) as caught:
        opened().receive(data)
    assert caught.value.code == code


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        opened(1000).receive(data)
    except ProtocolViolation as violation:
        assert violation.code in set(CloseCode)


def test_an_announced_length_is_refused_before_anything_of_it_is_held() -> None:
    with pytest.raises(ProtocolViolation, match="longer than 1048576 bytes"):
        opened().receive(struct.pack("!BBQ", 0x82, 127, 1 << 40))


def test_the_answer_to_the_rfcs_example_is_accepted() -> None:
    assert Offer(("a", "b"), KEY).accepted(GOOD) == "b"


def test_the_offer_says_what_a_server_needs() -> None:
    headers = Offer(("a", "b")).headers
    assert headers.pop("Sec-WebSocket-Key") != Offer(("a", "b")).key
    assert headers == {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "a, b",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upgrade": "h2c"}, "something other than a websocket"),
        ({"connection": "keep-alive"}, "does not say Connection: Upgrade"),
        ({"sec-websocket-accept": "x"}, "does not belong to this request"),
        ({"sec-websocket-accept": ""}, "does not belong to this request"),
        ({"sec-websocket-extensions": "permessage-deflate"}, "an extension that was not offered"),
        ({"sec-websocket-protocol": "c"}, "no common subprotocol: a and b were offered, and the server chose 'c'"),
        ({"sec-websocket-protocol": ""}, "no common subprotocol: a and b were offered, and the server chose none"),
    ],
)
def test_an_answer_to_something_else_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(HandshakeFailed, match=message):
        Offer(("a", "b"), KEY).accepted(GOOD | change)
