"""A request of a client that the server works on."""

from typing import TYPE_CHECKING

import msgspec

from fairway.mcp.protocol import Era, ErrorCode, http_status
from fairway.proxy.bridge import messages
from fairway.proxy.bridge.exchange import Exchange
from fairway.proxy.bridge.messages import FromServer

if TYPE_CHECKING:
    from fairway.proxy.bridge.core import Bridge
    from fairway.proxy.bridge.sessions import Session


class Call:
    """Waits for one answer, and passes it on under the id and in the words of who asked."""

    __slots__ = ("_bridge", "method", "modern", "number", "outlet", "request_id", "session", "token")

    def __init__(self, bridge: "Bridge", outlet: Exchange, number: int, request_id: bytes, method: str) -> None:
        self._bridge = bridge
        self.outlet = outlet
        """Where the answer goes."""
        self.number = number
        """Its id on the server's side."""
        self.request_id = request_id
        """Its id on the client's side, as it was written."""
        self.method = method
        self.modern = False
        self.session: Session | None = None
        self.token = b""
        """What the client called its progress; empty if it did not ask for any."""

    def answered(self, answer: FromServer) -> None:
        self._bridge.ended(self)
        if not self.outlet.open:
            return
        if len(answer.result):
            value = messages.modern_result(self.method, answer.result) if self.modern else answer.result
            self.outlet.finish(messages.result(self.request_id, value))
        elif not len(answer.error):
            self._fail(ErrorCode.INTERNAL_ERROR, "the server's answer has neither result nor error")
        elif not self.modern:
            self.outlet.finish(messages.error(self.request_id, answer.error))
        else:
            try:
                code, error = messages.modern_error(self.method, answer.error)
            except (msgspec.MsgspecError, RecursionError):
                self._fail(ErrorCode.INTERNAL_ERROR, "the server's answer is an error that is none of JSON-RPC")
            else:
                self.outlet.finish(messages.error(self.request_id, error), status=http_status(code, Era.MODERN))

    def lost(self, reason: str) -> None:
        """There will be no answer: the server has gone."""
        self._bridge.ended(self)
        if self.outlet.streaming:
            self._fail(ErrorCode.INTERNAL_ERROR, reason)
        else:
            self.outlet.fail(reason)

    def given_up(self, why: str) -> None:
        """The answer is not wanted any more, but the client still waits for one."""
        self._fail(ErrorCode.INTERNAL_ERROR, why)

    def _fail(self, code: int, why: str) -> None:
        self.outlet.finish(messages.refusal(self.request_id, code, why))
