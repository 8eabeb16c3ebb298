"""The server's side of a bridge: the handshake, who waits for which id, and lines both ways."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from fairway.mcp import protocol
from fairway.mcp.client import CLIENT, ServerInfo
from fairway.mcp.client import Session as Spoken
from fairway.mcp.protocol import Era, Method
from fairway.proxy.bridge import messages
from fairway.proxy.bridge.lines import LineSplitter, LineTooLong, LineTransport
from fairway.proxy.bridge.messages import FromServer, Members

MAX_BACKLOG: Final = 32 << 20
"""Bytes that a server may leave unread before it is given no more requests."""
OFFERED: Final = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
"""What clients can do, for a server that is greeted before any of them is there; those that cannot refuse."""

Defer = Callable[[Callable[[], None]], object]
"""Runs something soon, but not now."""


class Waiting(Protocol):
    """Somebody who waits for an answer."""

    def answered(self, answer: FromServer) -> None: ...

    def lost(self, reason: str) -> None: ...


class Question:
    """A request of the bridge's own. `then` gets None when there will be no answer."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[FromServer | None], None]) -> None:
        self._then = then

    def answered(self, answer: FromServer) -> None:
        self._then(answer)

    def lost(self, reason: str) -> None:  # noqa: ARG002
        self._then(None)


class _Initialized(msgspec.Struct, rename="camel"):
    class Info(msgspec.Struct):
        name: str = ""
        version: str = ""

    protocol_version: str
    capabilities: dict[str, Any] = {}
    server_info: Info = msgspec.field(default_factory=Info)
    instructions: str | None = None


class Link:
    """What the server says beside answers goes to `heard`; `changed` is called when it is up, and when it is not."""

    def __init__(
        self, *, defer: Defer, heard: Callable[[FromServer], None], changed: Callable[[], None], last_id: int = 0
    ) -> None:
        self._defer = defer
        self._heard = heard
        self._changed = changed
        self._transport: LineTransport | None = None
        self._splitter = LineSplitter()
        self._out: list[bytes] = []
        self._last = last_id
        self.pending: dict[int, Waiting] = {}
        self.up = False
        """It has been greeted, and takes requests."""
        self.why = "the server is starting"
        """Why it is not up."""
        self.spoken: Spoken | None = None
        """What the last handshake gave."""
        self.greeting: Members = {}
        """The server's answer to it, as it came."""
        self.noise = 0
        """Lines that were no messages."""

    # the transport's side

    def opened(self, transport: LineTransport, *, fresh: bool) -> None:
        self._transport = transport
        self._splitter = LineSplitter()
        if not fresh and self.spoken is not None:
            self._rise()
            return
        self.why = "the server has not answered initialize yet"
        params = {
            "protocolVersion": protocol.LATEST_SESSION_VERSION,
            "capabilities": OFFERED,
            "clientInfo": dict(CLIENT),
        }
        self.ask(Method.INITIALIZE, messages.encode(params), self._greeted)

    def closed(self, reason: str) -> None:
        self._transport = None
        self.up = False
        self.why = reason
        self._out = []
        pending, self.pending = self.pending, {}
        for waiting in pending.values():
            waiting.lost(reason)
        self._changed()

    def feed(self, data: bytes) -> None:
        try:
            lines = self._splitter.feed(data)
        except LineTooLong as error:
            self._give_up(str(error))
            return
        pending = self.pending
        for line in lines:
            try:
                message = messages.read_line(line)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                self.noise += bool(line.strip())
                continue
            if message.method:
                self._heard(message)
            elif message.id.__class__ is int and (waiting := pending.pop(message.id, None)) is not None:
                waiting.answered(message)

    def _greeted(self, answer: FromServer | None) -> None:
        if answer is None:
            return
        try:
            if len(answer.error):
                said = messages.read_error(answer.error)
                raise ValueError(f"initialize answered error {said.code}: {said.message}")
            self.greeting = messages.read_members(answer.result)
            found = msgspec.json.decode(answer.result, type=_Initialized)
            if found.protocol_version not in protocol.SESSION_VERSIONS:
                ours = ", ".join(protocol.SESSION_VERSIONS)
                raise ValueError(f"the server speaks MCP {found.protocol_version}, this proxy {ours}")
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._give_up(str(error))
            return
        self.spoken = Spoken(
            era=Era.SESSION,
            version=found.protocol_version,
            versions=(found.protocol_version,),
            server=ServerInfo(found.server_info.name, found.server_info.version),
            capabilities=found.capabilities,
            instructions=found.instructions or "",
            client=CLIENT,
        )
        self.send(messages.notification(Method.INITIALIZED))
        self._rise()

    def _rise(self) -> None:
        self.up = True
        self.why = ""
        self._changed()

    def _give_up(self, reason: str) -> None:
        self.up = False
        self.why = reason
        if self._transport is not None:
            self._transport.give_up(reason)

    # the bridge's side

    def send(self, message: bytes) -> None:
        """As one line; those of one turn of the loop go out together."""
        if not self._out:
            self._defer(self._flush)
        self._out.append(messages.one_line(message) + b"\n")

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def number(self) -> int:
        self._last += 1
        return self._last

    def request(self, waiting: Waiting, number: int, method: str, params: bytes | msgspec.Raw) -> None:
        self.pending[number] = waiting
        self.send(messages.request(number, method, params))

    def ask(self, method: str, params: bytes | msgspec.Raw, then: Callable[[FromServer | None], None]) -> int:
        number = self.number()
        self.request(Question(then), number, method, params)
        return number

    def notify(self, method: str, params: bytes | msgspec.Raw = b"") -> None:
        self.send(messages.notification(method, params))

    def give_up_on(self, number: int, reason: msgspec.Raw | None = None) -> None:
        """Tells the server that an answer is not wanted any more."""
        if self.pending.pop(number, None) is not None:
            params: dict[str, Any] = {"requestId": number}
            if reason is not None:
                params["reason"] = reason
            self.notify(Method.CANCELLED, messages.encode(params))

    def congested(self) -> bool:
        return self._transport is not None and self._transport.backlog() > MAX_BACKLOG
