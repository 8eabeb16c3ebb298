"""The client's side of RFC 6455, without I/O: bytes in, events out."""

import base64
import codecs
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Final

# Theory of operation. `receive` takes bytes as they arrive and returns what they complete; a message in fragments is
# put together first. The first violation raises, and nothing after it is read: the connection is to be dropped, if
# possible after sending `close(error.code)`. What is to be sent comes back as bytes; nothing here writes anything.

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TRANSLATE_ABOVE: Final = 2048
_HEADER = struct.Struct("!BB")
_HEADER_16 = struct.Struct("!BBH")
_HEADER_64 = struct.Struct("!BBQ")


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005
    BAD_TEXT = 1007
    TOO_BIG = 1009


class ProtocolViolation(Exception):
    """The server does not keep to RFC 6455; `code` is what to tell it."""

    def __init__(self, message: str, code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class HandshakeFailed(ValueError):
    """The server said 101, but not to what was asked."""


@dataclass(frozen=True, slots=True)
class Message:
    data: bytes
    text: bool = False


@dataclass(frozen=True, slots=True)
class Ping:
    """To be answered with `pong(data)`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    data: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The server's close frame: to be answered with `close(code)` unless we sent ours before; nothing follows it."""

    code: int
    reason: str


Event = Message | Ping | Pong | Closed


class WebSocket:
    """One connection after its handshake. `max_message` bounds what is held for a message that is not complete."""

    def __init__(self, *, max_message: int) -> None:
        self._max = max_message
        self._buffer = bytearray()
        self._need = 2
        self._fragments: list[bytes] = []
        self._size = 0
        self._opcode: int | None = None
        """Of the message that is in fragments, if one is."""
        self._closed = False

    def receive(self, data: bytes) -> list[Event]:
        """Raises ProtocolViolation; what came before the violation in the same bytes is not reported."""
        events: list[Event] = []
        if self._closed:
            return events
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= self._need:
            frame = self._frame(buffer, at)
            if frame is None:
                continue
            final, opcode, start, end = frame
            payload = bytes(memoryview(buffer)[start:end])
            at = end
            self._need = 2
            event = self._control(opcode, payload) if opcode & 8 else self._data(opcode, payload, final)
            if event is not None:
                events.append(event)
                if event.__class__ is Closed:
                    self._closed = True
                    break
        del buffer[:at]
        return events

    def _frame(self, buffer: bytearray, at: int) -> tuple[bool, int, int, int] | None:
        """FIN, opcode, and where the payload begins and ends; None if more bytes are needed, `_need` in all."""
        first, second = buffer[at], buffer[at + 1]
        final, opcode, length = first >= 0x80, first & 0x0F, second
        if self._need == 2:
            self._check(final, first, second)
        start = at + 2
        if length == 126:
            start += 2
            if len(buffer) < start:
                self._need = 4
                return None
            length = int.from_bytes(buffer[at + 2 : start], "big")
            if length < 126:
                raise ProtocolViolation("a frame's length is not written in the shortest way")
        elif length == 127:
            start += 8
            if len(buffer) < start:
                self._need = 10
                return None
            length = int.from_bytes(buffer[at + 2 : start], "big")
            if length < 1 << 16 or length >= 1 << 63:
                raise ProtocolViolation("a frame's length is not written in the shortest way")
        if not opcode & 8 and self._size + length > self._max:
            raise ProtocolViolation(f"a message is longer than {self._max} bytes", CloseCode.TOO_BIG)
        end = start + length
        if len(buffer) < end:
            self._need = end - at
            return None
        return final, opcode, start, end

    def _check(self, final: bool, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise ProtocolViolation("a frame uses an extension that was not agreed on")
        if second & 0x80:
            raise ProtocolViolation("a frame from the server is masked")
        if opcode & 8:
            if opcode > Opcode.PONG:
                raise ProtocolViolation(f"a frame has the unknown opcode {opcode}")
            if not final or second > 125:
                raise ProtocolViolation("a control frame is fragmented or longer than 125 bytes")
        elif opcode > Opcode.BINARY:
            raise ProtocolViolation(f"a frame has the unknown opcode {opcode}")
        elif (opcode == Opcode.CONTINUATION) == (self._opcode is None):
            wrong = "a fragment continues nothing" if self._opcode is None else "a message begins within another"
            raise ProtocolViolation(wrong)

    def _data(self, opcode: int, payload: bytes, final: bool) -> Message | None:
        if opcode != Opcode.CONTINUATION:
            if final:
                return _message(opcode, payload)
            self._opcode = opcode
        self._fragments.append(payload)
        self._size += len(payload)
        if not final:
            return None
        assert self._opcode is not None
        message = _message(self._opcode, b"".join(self._fragments))
        self._fragments, self._size, self._opcode = [], 0, None
        return message

    def _control(self, opcode: int, payload: bytes) -> Event:
        if opcode == Opcode.PING:
            return Ping(payload)
        if opcode == Opcode.PONG:
            return Pong(payload)
        if not payload:
            return Closed(CloseCode.NO_STATUS, "")
        code = int.from_bytes(payload[:2], "big")
        if len(payload) == 1 or not (1000 <= code <= 1014 or 3000 <= code <= 4999) or code in (1004, 1005, 1006):
            raise ProtocolViolation("a close frame has no valid code")
        try:
            return Closed(code, payload[2:].decode())
        except UnicodeDecodeError:
            raise ProtocolViolation("a close frame's reason is not UTF-8", CloseCode.BAD_TEXT) from None


def message(data: bytes) -> bytes:
    """A binary message in one frame."""
    return _masked(Opcode.BINARY, data)


def ping(data: bytes = b"") -> bytes:
    return _masked(Opcode.PING, data)


def pong(data: bytes) -> bytes:
    return _masked(Opcode.PONG, data)


def close(code: int = CloseCode.NORMAL) -> bytes:
    return _masked(Opcode.CLOSE, b"" if code == CloseCode.NO_STATUS else code.to_bytes(2, "big"))


def _message(opcode: int, data: bytes) -> Message:
    if opcode == Opcode.BINARY:
        return Message(data)
    try:
        codecs.utf_8_decode(data, "strict", True)
    except UnicodeDecodeError:
        raise ProtocolViolation("a text message is not UTF-8", CloseCode.BAD_TEXT) from None
    return Message(data, text=True)


def _masked(opcode: Opcode, data: bytes) -> bytes:
    size = len(data)
    first = 0x80 | opcode
    if size < 126:
        head = _HEADER.pack(first, 0x80 | size)
    elif size < 1 << 16:
        head = _HEADER_16.pack(first, 0x80 | 126, size)
    else:
        head = _HEADER_64.pack(first, 0x80 | 127, size)
    key = os.urandom(4)
    return b"".join((head, key, mask(data, key)))


def mask(data: bytes, key: bytes) -> bytes:
    """`data` with the four bytes of `key` laid over it again and again; twice gives `data`."""
    size = len(data)
    if size < _TRANSLATE_ABOVE:
        over = (key * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(over, "little")).to_bytes(size, "little")
    # long numbers grow slow: a table for every fourth byte takes a third of the time
    masked = bytearray(data)
    for place, byte in enumerate(key):
        masked[place::4] = data[place::4].translate(_table(byte))
    return bytes(masked)


@cache
def _table(byte: int) -> bytes:
    return bytes(value ^ byte for value in range(256))


@dataclass(frozen=True, slots=True)
class Offer:
    """One request for a websocket: its headers, and whether an answer is one to it."""

    protocols: tuple[str, ...]
    key: str = field(default_factory=lambda: base64.b64encode(os.urandom(16)).decode("ascii"))

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": self.key,
            "Sec-WebSocket-Protocol": ", ".join(self.protocols),
        }

    def accepted(self, headers: Mapping[str, str]) -> str:
        """The protocol that the server chose; `headers` are those of its 101, names in lower case."""
        if headers.get("upgrade", "").lower() != "websocket":
            raise HandshakeFailed("the server switched to something other than a websocket")
        if "upgrade" not in (token.strip() for token in headers.get("connection", "").lower().split(",")):
            raise HandshakeFailed("the server's answer does not say Connection: Upgrade")
        digest = hashlib.sha1(self.key.encode("ascii") + _MAGIC, usedforsecurity=False).digest()
        if headers.get("sec-websocket-accept") != base64.b64encode(digest).decode("ascii"):
            raise HandshakeFailed("the server's Sec-WebSocket-Accept does not belong to this request")
        if headers.get("sec-websocket-extensions"):
            raise HandshakeFailed("the server wants an extension that was not offered")
        chosen = headers.get("sec-websocket-protocol", "")
        if chosen in self.protocols:
            return chosen
        said = f"chose {chosen!r}" if chosen else "chose none"
        offered = " and ".join(self.protocols)
        raise HandshakeFailed(f"no common subprotocol: {offered} were offered, and the server {said}")
