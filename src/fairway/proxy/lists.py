"""Lists on their way to the client: what it may not use taken out, tools renamed, all else kept byte for byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from fairway.api.toolview import ToolView
from fairway.mcp.offer import present_tool
from fairway.mcp.protocol import Method
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event, with_data
from fairway.proxy.middleware.principal import Principal

if TYPE_CHECKING:
    from fairway.proxy.middleware.authorization import Authorizer

MAX_LIST: Final = 32 << 20
"""Bytes of one answer or event that has to be held to be rewritten."""


class UnreadableList(Exception):
    """The server's answer cannot be filtered, so it must not pass."""


class _Tool(msgspec.Struct):
    name: str


class _Resource(msgspec.Struct):
    uri: str


class _Template(msgspec.Struct, rename="camel"):
    uri_template: str


_NAMES: Final[Mapping[str, tuple[str, msgspec.json.Decoder[Any], str]]] = {
    "tools": (Method.TOOLS_LIST.value, msgspec.json.Decoder(_Tool), "name"),
    "prompts": (Method.PROMPTS_LIST.value, msgspec.json.Decoder(_Tool), "name"),
    "resources": (Method.RESOURCES_LIST.value, msgspec.json.Decoder(_Resource), "uri"),
    "resourceTemplates": (Method.RESOURCES_TEMPLATES_LIST.value, msgspec.json.Decoder(_Template), "uri_template"),
}
"""By the member of a result that holds the list: which method asks for it, and what its items are called by."""
_MARKS: Final = (*(f'"{member}"'.encode() for member in _NAMES), b"\\u")
"""One of these is in every event that has such a member, however it is spelt."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_PRIVATE: Final = msgspec.Raw(b'"private"')


@dataclass(frozen=True, slots=True)
class Lists:
    """How one client sees lists: tools through a view, and of everything only what policies let it use."""

    view: ToolView | None = None
    authorizer: "Authorizer | None" = None
    principal: Principal | None = None

    def shown(self, member: str, items: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
        if member == "tools" and self.view is not None:
            presented = (present_tool(item, self.view) for item in items)
            items = [item if isinstance(item, msgspec.Raw) else msgspec.Raw(item) for item in presented if item]
        if self.authorizer is None or self.principal is None:
            return list(items)
        method, decoder, attribute = _NAMES[member]
        names = [getattr(decoder.decode(item), attribute) for item in items]
        allowed = self.authorizer.visible(self.principal, method, names)
        return [item for item, may in zip(items, allowed, strict=True) if may]

    @property
    def members(self) -> tuple[str, ...]:
        """The lists that it can change anything of."""
        if self.authorizer is not None:
            return tuple(_NAMES)
        return () if self.view is None else ("tools",)


def rewrite_message(message: bytes, lists: Lists) -> bytes | None:
    """A JSON-RPC message with its list rewritten; None if it holds none and may pass as it is."""
    try:
        members: dict[str, Any] = dict(_members.decode(message))
        raw = members.get("result")
        if raw is None or bytes(memoryview(raw)[:1]) != b"{":
            return None
        result: dict[str, Any] = dict(_members.decode(raw))
        found = [member for member in lists.members if member in result]
        if not found:
            return None
        for member in found:
            result[member] = lists.shown(member, _items.decode(result[member]))
        if "cacheScope" in result:
            # what others may keep and serve is the server's list, not this client's view of it
            result["cacheScope"] = _PRIVATE
        members["result"] = result
        return _encode(members)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableList(f"the server's list cannot be read: {error}") from None


class Rewriter(Protocol):
    """Takes the body of an answer piece by piece. Raises UnreadableList."""

    lists: Lists
    """May be replaced at any time."""
    streams: bool
    """Whether pieces come out before the end; if not, the length of the whole is known when it comes out."""

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class JsonRewriter:
    """One JSON message, held until it is complete."""

    streams = False
    __slots__ = ("_body", "lists")

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        self._body = bytearray()

    def feed(self, data: bytes) -> bytes:
        self._body += data
        if len(self._body) > MAX_LIST:
            raise UnreadableList(f"the server's list is larger than {MAX_LIST} bytes")
        return b""

    def end(self) -> bytes:
        body = bytes(self._body)
        if not body.strip():
            return body
        rewritten = rewrite_message(body, self.lists)
        return body if rewritten is None else rewritten


class EventRewriter:
    """A stream of events; each passes as soon as it is complete."""

    streams = True
    __slots__ = ("_splitter", "lists")

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        self._splitter = EventSplitter(limit=MAX_LIST)

    def feed(self, data: bytes) -> bytes:
        try:
            return b"".join([self._event(block) for block in self._splitter.feed(data)])
        except EventTooLarge as error:
            raise UnreadableList(str(error)) from None

    def _event(self, block: bytes) -> bytes:
        if not any(mark in block for mark in _MARKS):
            return block
        data = parse_event(block).data
        if data is None or not data.lstrip().startswith(b"{"):
            return block
        rewritten = rewrite_message(data, self.lists)
        return block if rewritten is None else with_data(block, rewritten)

    def end(self) -> bytes:
        # an event that was never finished is none: clients must ignore it, and it has not been looked at
        self._splitter.rest()
        return b""
