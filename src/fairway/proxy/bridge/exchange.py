"""One HTTP request to a bridge and the answer to it, which is one message or a stream of events."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fairway.mcp.protocol import JSON, SSE
from fairway.proxy.answers import RETRY_SOON, header_lines
from fairway.proxy.bridge import messages
from fairway.proxy.upstream import Sink

if TYPE_CHECKING:
    from fairway.proxy.bridge.call import Call
    from fairway.proxy.bridge.core import Bridge
    from fairway.proxy.bridge.sessions import Session

_JSON_LINE: Final = b"Content-Type: application/json\r\n"
_JSON_HEADERS: Final = {b"content-type": JSON.encode()}
_SSE_LINES: Final = [
    b"Content-Type: text/event-stream\r\n",
    b"Cache-Control: no-cache, no-transform\r\n",
    b"X-Accel-Buffering: no\r\n",
]
_RETRY_LINE: Final = header_lines(RETRY_SOON)
_SSE_HEADERS: Final = {b"content-type": SSE.encode()}
_NO_HEADERS: Final[Mapping[bytes, bytes]] = {}


class Exchange:
    """Answers one HTTP request through its sink, which is forgotten once it has the answer or has gone.

    The sink holds on to it as to a server's connection: `abort`, `left`, `pause`, `resume`.
    """

    __slots__ = ("_bridge", "_sink", "call", "paused", "session", "streaming", "takes_events", "takes_json")

    def __init__(self, bridge: "Bridge", sink: Sink, *, accept: bytes) -> None:
        self._bridge = bridge
        self._sink: Sink | None = sink
        self.takes_json = b"json" in accept or b"*/*" in accept or not accept
        self.takes_events = b"event-stream" in accept or b"*/*" in accept
        self.streaming = False
        """Events have been sent, so the rest of the answer is events as well."""
        self.paused = False
        """The client does not read as fast as it is sent to."""
        self.call: Call | None = None
        self.session: Session | None = None
        """The session whose stream this is."""

    @property
    def open(self) -> bool:
        return self._sink is not None

    # the answer

    def finish(self, message: bytes, *, status: int = 200, session: bytes = b"") -> None:
        """The last or only message. `session` is the id of one that it opens."""
        if self.streaming or (not self.takes_json and self.takes_events and status == 200):
            self.start_stream(session)
            self.event(message)
            self.end()
            return
        self._whole(status, [_JSON_LINE], _JSON_HEADERS, message, session)

    def acknowledge(self) -> None:
        """It was a notification or an answer, and has been taken note of."""
        self._whole(202, [], _NO_HEADERS, b"")

    def unavailable(self, message: bytes) -> None:
        """Nothing of the request has gone to the server."""
        self._whole(503, [_JSON_LINE, _RETRY_LINE], _JSON_HEADERS, message)

    def _whole(
        self, status: int, lines: list[bytes], headers: Mapping[bytes, bytes], body: bytes, session: bytes = b""
    ) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if session:
            headers = {**headers, b"mcp-session-id": session}
        sink.on_head(status, lines, headers, len(body))
        if body:
            sink.on_body(body)
        sink.on_end()

    def start_stream(self, session: bytes = b"") -> None:
        if self._sink is None or self.streaming:
            return
        self.streaming = True
        headers = {**_SSE_HEADERS, b"mcp-session-id": session} if session else _SSE_HEADERS
        self._sink.on_head(200, [*_SSE_LINES], headers, None)
        self._sink.flush()

    def event(self, message: bytes, *, name: bytes = b"message") -> None:
        self.start_stream()
        self._write(b"event: %b\ndata: %b\n\n" % (name, messages.one_line(message)))

    def comment(self) -> None:
        """Says that the line is alive; proxies on the way cut what is silent."""
        self._write(b": still here\n\n")

    def _write(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.on_body(data)
            if self._sink is not None:  # what it was given may have been too much for it
                self._sink.flush()

    def end(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_end()

    def fail(self, message: str) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_failure(message)

    # the client's side

    def abort(self) -> None:
        """The proxy wants no answer any more."""
        self._sink = None
        self._bridge.dropped(self, cancel=True)

    def left(self) -> None:
        """The client has gone. In the session era that does not say that it wants its request cancelled."""
        self._sink = None
        self._bridge.dropped(self, cancel=False)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
