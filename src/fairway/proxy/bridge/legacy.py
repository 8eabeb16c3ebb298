"""Clients of the old HTTP+SSE transport: one stream for each session, which ends with it and carries every answer.

The stream's first event names the session in the form of a path. Before it reaches the client, the proxy puts in its
place where to post messages.
"""

from functools import partial
from typing import TYPE_CHECKING

from fairway.mcp.protocol import ErrorCode
from fairway.proxy.bridge import messages
from fairway.proxy.bridge.exchange import Exchange
from fairway.proxy.bridge.sessions import Session

if TYPE_CHECKING:
    from fairway.proxy.bridge.core import Bridge
    from fairway.proxy.envelope import Envelope
    from fairway.proxy.request import Request

_PREFIX = b"/?"


class OnStream(Exchange):
    """Answers one message of a client on its session's stream; the request that carried it has its answer already."""

    __slots__ = ("_of",)

    def __init__(self, bridge: "Bridge", session: Session) -> None:
        self._bridge = bridge
        self._of = session
        self._sink = None
        self.call = None
        self.session = None
        self.takes_json = False
        self.takes_events = True
        self.streaming = True

    @property
    def open(self) -> bool:
        return self._of.stream is not None and self._of.stream.open

    @property
    def paused(self) -> bool:  # type: ignore[override]
        return self._of.stream is not None and self._of.stream.paused

    def finish(self, message: bytes, *, status: int = 200, session: bytes = b"") -> None:  # noqa: ARG002
        self.event(message)

    def unavailable(self, message: bytes) -> None:
        self.event(message)

    def acknowledge(self) -> None:
        """That was done when the message came in."""

    def event(self, message: bytes, *, name: bytes = b"message") -> None:
        if self._of.stream is not None:
            self._of.stream.event(message, name=name)

    def fail(self, message: str) -> None: ...

    def end(self) -> None: ...


def receive(bridge: "Bridge", exchange: Exchange, request: "Request") -> None:
    """Opens a stream, or takes a message. Answers, but never before the caller returns."""
    if request.envelope is None:
        bridge.defer(partial(_open, bridge, exchange, request))
    else:
        bridge.defer(partial(_take, bridge, exchange, request, request.envelope))


def _open(bridge: "Bridge", exchange: Exchange, request: "Request") -> None:
    if request.method != b"GET":
        exchange.finish(messages.refusal(b"null", ErrorCode.INVALID_REQUEST, "GET opens the stream"), status=405)
    elif not exchange.takes_events:
        why = "Accept has to admit text/event-stream"
        exchange.finish(messages.refusal(b"null", ErrorCode.INVALID_REQUEST, why), status=406)
    elif not bridge.link.up:
        exchange.unavailable(messages.refusal(b"null", ErrorCode.INTERNAL_ERROR, bridge.link.why))
    else:
        session = bridge.open_session(())
        session.legacy = True
        session.stream = exchange
        exchange.session = session
        exchange.event(_PREFIX + session.id, name=b"endpoint")


def _take(bridge: "Bridge", exchange: Exchange, request: "Request", message: "Envelope") -> None:
    session = bridge.find_session(request.target.removeprefix(_PREFIX))
    if session is None or session.stream is None or not session.stream.open:
        why = "the stream of this session has ended: open another"
        exchange.finish(messages.refusal(bytes(message.id) or b"null", ErrorCode.INVALID_REQUEST, why), status=404)
        return
    on_stream = OnStream(bridge, session)
    refused = bridge.why_not()
    if refused and message.is_request:
        exchange.acknowledge()
        on_stream.finish(messages.refusal(bytes(message.id), ErrorCode.INTERNAL_ERROR, refused))
    elif refused or session.stream.paused:
        # what is not read would have to be kept
        why = refused or "the client does not read its stream"
        exchange.unavailable(messages.refusal(bytes(message.id) or b"null", ErrorCode.INTERNAL_ERROR, why))
    else:
        exchange.acknowledge()
        bridge.take(on_stream, session, message)
