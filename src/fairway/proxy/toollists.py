"""Lists of tools on their way to the client: hidden ones taken out, others renamed, all else kept byte for byte."""

from typing import Any, Final, Protocol

import msgspec

from fairway.api.toolview import ToolView
from fairway.mcp.offer import present_tool
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event, with_data

MAX_LIST: Final = 32 << 20
"""Bytes of one answer or event that has to be held to be rewritten."""


class UnreadableList(Exception):
    """The server's answer cannot be filtered, so it must not pass."""


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_PRIVATE: Final = msgspec.Raw(b'"private"')


def rewrite_message(message: bytes, view: ToolView) -> bytes | None:
    """A JSON-RPC message with its list of tools rewritten; None if it holds none and may pass as it is."""
    try:
        members: dict[str, Any] = dict(_members.decode(message))
        raw = members.get("result")
        if raw is None or bytes(memoryview(raw)[:1]) != b"{":
            return None
        result: dict[str, Any] = dict(_members.decode(raw))
        if "tools" not in result:
            return None
        shown = (present_tool(tool, view) for tool in _items.decode(result["tools"]))
        result["tools"] = [tool if isinstance(tool, msgspec.Raw) else msgspec.Raw(tool) for tool in shown if tool]
        if "cacheScope" in result:
            # what others may keep and serve is the server's list, not this view of it
            result["cacheScope"] = _PRIVATE
        members["result"] = result
        return _encode(members)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableList(f"the server's list of tools cannot be read: {error}") from None


class Rewriter(Protocol):
    """Takes the body of an answer piece by piece. Raises UnreadableList."""

    streams: bool
    """Whether pieces come out before the end; if not, the length of the whole is known when it comes out."""

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class JsonRewriter:
    """One JSON message, held until it is complete."""

    streams = False
    __slots__ = ("_body", "_view")

    def __init__(self, view: ToolView) -> None:
        self._view = view
        self._body = bytearray()

    def feed(self, data: bytes) -> bytes:
        self._body += data
        if len(self._body) > MAX_LIST:
            raise UnreadableList(f"the server's list of tools is larger than {MAX_LIST} bytes")
        return b""

    def end(self) -> bytes:
        body = bytes(self._body)
        if not body.strip():
            return body
        rewritten = rewrite_message(body, self._view)
        return body if rewritten is None else rewritten


class EventRewriter:
    """A stream of events; each passes as soon as it is complete."""

    streams = True
    __slots__ = ("_splitter", "_view")

    def __init__(self, view: ToolView) -> None:
        self._view = view
        self._splitter = EventSplitter(limit=MAX_LIST)

    def feed(self, data: bytes) -> bytes:
        try:
            return b"".join([self._event(block) for block in self._splitter.feed(data)])
        except EventTooLarge as error:
            raise UnreadableList(str(error)) from None

    def _event(self, block: bytes) -> bytes:
        if b'"tools"' not in block:
            return block
        data = parse_event(block).data
        if data is None or not data.lstrip().startswith(b"{"):
            return block
        rewritten = rewrite_message(data, self._view)
        return block if rewritten is None else with_data(block, rewritten)

    def end(self) -> bytes:
        # an event that was never finished is none: clients must ignore it, and it has not been looked at
        self._splitter.rest()
        return b""
