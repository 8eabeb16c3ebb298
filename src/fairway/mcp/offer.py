"""The tools of a server as its clients are told of them: one by one, and summed up for the status."""

import hashlib
from typing import Any, Final

import msgspec

from fairway.api import proxystatus
from fairway.api.toolview import ToolView
from fairway.mcp.client import ToolList

_DIGESTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


class _Named(msgspec.Struct):
    name: str


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_named: Final = msgspec.json.Decoder(_Named)
_encode: Final = msgspec.json.Encoder().encode


def present_tool(raw: bytes | msgspec.Raw, view: ToolView) -> bytes | msgspec.Raw | None:
    """One tool as clients see it; None if they do not. A tool that nobody has to change comes back as it is."""
    name = _named.decode(raw).name
    exposed = view.exposed(name)
    if exposed is None:
        return None
    description = view.description(name)
    if exposed == name and description is None:
        return raw
    tool: dict[str, Any] = {**_members.decode(raw), "name": exposed}
    if description is not None:
        tool["description"] = description
    return _encode(tool)


def summarise(listed: ToolList | None, error: str, view: ToolView) -> proxystatus.Tools:
    """`listed` is None when the server could not be asked."""
    if listed is None:
        return proxystatus.Tools(count=0, complete=False, error=error)
    offered = [tool.name for tool in listed.tools]
    shown: dict[str, bytes] = {}
    size = 0
    for tool in listed.tools:
        try:
            raw = present_tool(tool.raw, view)
        except (msgspec.MsgspecError, RecursionError):
            continue
        if raw is not None:
            size += len(raw)
            shown[view.exposed(tool.name) or tool.name] = bytes(raw)
    names = sorted(shown)
    return proxystatus.Tools(
        count=len(names),
        names=tuple(names),
        digest=_digest([shown[name] for name in names]),
        bytes=size,
        unknown=tuple(view.unknown(offered)) if not listed.incomplete else (),
        shadowed=tuple(view.shadowed(offered)),
        complete=not listed.incomplete,
        error=listed.incomplete,
    )


def _digest(tools: list[bytes]) -> str:
    """Changes with what a client is told of a tool, not with how the server happens to write it down."""
    digest = hashlib.sha256()
    for raw in tools:
        try:
            tool = msgspec.json.decode(raw)
            told = {key: tool[key] for key in _DIGESTED if key in tool}
            raw = msgspec.json.encode(told, order="deterministic")
        except (msgspec.MsgspecError, RecursionError):
            pass  # a number beyond all floats, say: then every byte counts
        digest.update(raw + b"\n")
    return "sha256:" + digest.hexdigest()
