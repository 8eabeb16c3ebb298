"""The old HTTP+SSE transport: a stream whose first event says where messages go, and answers that come on that stream.

A client opens the stream with GET and posts its messages to the same path, with a sealed session id in the query: it
holds where the server wants them and which server that is, so that any replica can pass them on. What the server says
of it never reaches the client. What this proxy refuses in the server's place comes on the stream too if it is held
here, since clients of this transport look for answers nowhere else; some give up on a session when a POST fails.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from fairway.mcp.protocol import error_body
from fairway.mcp.sse import parse_event
from fairway.proxy.answers import Answer, Refusal
from fairway.proxy.lists import EventRewriter, Lists, UnreadableList

PARAMETER: Final = b"sessionId"
ACCEPTED: Final = Answer(202)
ALLOW: Final = (("Allow", "GET, POST"),)
NO_SESSION: Final = Refusal(
    405, "this is an SSE endpoint: open it with GET, and post messages to where its first event says", headers=ALLOW
)
"""What clients that try the newer transport first understand as: try the older one."""
NOT_ALLOWED: Final = Refusal(405, "an SSE endpoint takes GET and POST", headers=ALLOW)
MAX_PENDING: Final = 10_000
_TARGET: Final = re.compile(r"/[!-~]*")


class _Answer(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""


_answer: Final = msgspec.json.Decoder(_Answer).decode


def session_of(query: bytes) -> str | None:
    """The sealed session id that a client posts with; None if there is none, or more than one."""
    found = [value for name, _, value in (part.partition(b"=") for part in query.split(b"&")) if name == PARAMETER]
    return found[0].decode("latin-1") if len(found) == 1 and found[0] else None


def read_target(data: bytes, path: str) -> str:
    """Where a server wants messages, from its endpoint event on the stream at `path`: a path with a query.

    Host and port that it may name are not looked at: messages go to the server that said it, and to no other.
    """
    try:
        parts = urlsplit(urljoin(f"http://server{path}", data.decode().strip()))
    except ValueError as error:
        raise UnreadableList(f"the server's endpoint event is no URL: {error}") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _TARGET.fullmatch(target):
        raise UnreadableList("the server's endpoint event is no URL")
    return target


class LegacyStream(EventRewriter):
    """The stream of one client, which the server opened at `path`.

    `announce` gets where the server wants messages, and gives what the client is told. `insert` puts an event between
    those of the server, if the client reads.
    """

    __slots__ = ("_announce", "_insert", "_path", "pending")

    def __init__(
        self, lists: Lists, path: str, announce: Callable[[str], bytes], insert: Callable[[bytes], bool]
    ) -> None:
        super().__init__(lists)
        self._path = path
        self._announce = announce
        self._insert = insert
        self.pending: set[bytes] = set()
        """Ids of requests whose answers are still to come."""

    def expect(self, request_id: bytes) -> None:
        if len(self.pending) < MAX_PENDING:
            self.pending.add(request_id)

    def refuse(self, request_id: bytes, refusal: Refusal) -> bool:
        """Answers a request in the server's place. False if the client does not read."""
        self.pending.discard(request_id)
        body = error_body(msgspec.Raw(request_id), refusal.code, refusal.message)
        return self._insert(b"event: message\r\ndata: %b\r\n\r\n" % body)

    def _event(self, block: bytes) -> bytes:
        if b"endpoint" in block:
            event = parse_event(block)
            if event.name == "endpoint":
                return b"event: endpoint\r\ndata: %b\r\n\r\n" % self._announce(
                    read_target(event.data or b"", self._path)
                )
        if self.pending:
            self._note_answer(block)
        return super()._event(block)

    def _note_answer(self, block: bytes) -> None:
        data = parse_event(block).data
        if data is None:
            return
        try:
            message = _answer(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return
        if not message.method:
            self.pending.discard(bytes(message.id))
