"""HTTP/1.1 as it lies on the wire: requests in, answers out, nothing changed that need not be."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import httptools

from tests.faultproxy.actions import Answer

Headers = Sequence[tuple[bytes, bytes]]

_FRAMING = frozenset({b"transfer-encoding", b"keep-alive", b"proxy-connection"})


@dataclass(frozen=True, slots=True)
class Message:
    """A whole request. `tail` are the bytes that a client sent behind an upgrade without waiting for the answer."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""
    upgrade: bool = False

    @property
    def fields(self) -> Mapping[str, str]:
        """Header values by lower-case name; the last one wins."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.headers}

    def encoded(self) -> bytes:
        # The body is complete by now, so its length is known even if it came in chunks.
        kept = [pair for pair in self.headers if pair[0].lower() not in _FRAMING | {b"content-length", b"expect"}]
        if self.body or self.method in ("POST", "PUT", "PATCH"):
            kept.append((b"Content-Length", str(len(self.body)).encode()))
        start = f"{self.method} {self.target} HTTP/1.1\r\n".encode("latin-1")
        return start + _block(kept) + self.body

    def without(self, header: bytes) -> "Message":
        return replace(self, headers=[pair for pair in self.headers if pair[0].lower() != header])

    def aimed_at(self, target: str) -> "Message":
        return replace(self, target=target)


class RequestReader:
    """Puts whole requests into `inbox`; bytes behind an upgrade go to `tunnel` instead."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.tunnel: asyncio.Queue[bytes] = asyncio.Queue()
        self.wants_continue = False
        self._upgraded = False
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        if self._upgraded:
            self.tunnel.put_nowait(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded = True
            if rest := data[upgrade.args[0] :]:
                self.tunnel.put_nowait(rest)

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", [], []

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self.wants_continue = True

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        self.inbox.put_nowait(
            Message(
                self._parser.get_method().decode(),
                self._target.decode("latin-1"),
                tuple(self._headers),
                b"".join(self._body),
                upgrade=self._parser.should_upgrade(),
            )
        )


@dataclass(slots=True)
class Head:
    """Status and headers of an answer. `length` is None if the answer is chunked or ends with the connection."""

    status: int = 0
    phrase: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    keep_alive: bool = True
    length: int | None = None

    @property
    def is_json(self) -> bool:
        return any(
            name.lower() == b"content-type" and value.startswith(b"application/json") for name, value in self.headers
        )

    def encoded(self) -> bytes:
        kept = [pair for pair in self.headers if pair[0].lower() not in _FRAMING]
        if self.chunked:
            kept.append((b"Transfer-Encoding", b"chunked"))
        return b"HTTP/1.1 %d %s\r\n" % (self.status, self.phrase) + _block(kept)

    @property
    def has_body(self) -> bool:
        return self.status >= 200 and self.status not in (204, 304) and self.length != 0

    @property
    def chunked(self) -> bool:
        return self.has_body and self.length is None


class AnswerReader:
    """Collects one answer as it arrives: `head` is complete when `began`, everything when `ended`."""

    def __init__(self, *, method: str) -> None:
        self.head = Head()
        self.began = self.ended = self.upgraded = False
        self.parts: list[bytes] = []
        self.rest = b""
        self._bodiless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.upgraded = self.ended = True
            self.rest = data[upgrade.args[0] :]

    def on_message_begin(self) -> None:
        self.head = Head()

    def on_status(self, part: bytes) -> None:
        self.head.phrase += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head.headers.append((name, value))
        if name.lower() == b"content-length":
            self.head.length = int(value)

    def on_headers_complete(self) -> None:
        self.head.status = self._parser.get_status_code()
        self.head.keep_alive = self._parser.should_keep_alive()
        # Interim answers (100, 103) are not the answer.
        self.began = self.head.status >= 200 or self.head.status == 101
        self.ended = self.began and self._bodiless

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.ended = self.began


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def made_up(answer: Answer) -> bytes:
    """An error as the API server would word it."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": answer.message,
        "reason": answer.reason,
        "code": answer.status,
    }
    headers = [(b"Content-Type", b"application/json")]
    if answer.retry_after is not None:
        status["details"] = {"retryAfterSeconds": answer.retry_after}
        headers.append((b"Retry-After", str(answer.retry_after).encode()))
    body = json.dumps(status).encode()
    headers.append((b"Content-Length", str(len(body)).encode()))
    return b"HTTP/1.1 %d %s\r\n" % (answer.status, answer.reason.encode()) + _block(headers) + body


def _block(headers: Headers) -> bytes:
    return b"".join(b"%b: %b\r\n" % pair for pair in headers) + b"\r\n"
