"""The tools that clients of a route see, summed up for the status: names, digest, size, and what does not fit."""

import hashlib
from typing import Final

import msgspec

from fairway.api import proxystatus
from fairway.api.toolview import ToolView
from fairway.mcp.client import ToolList
from fairway.proxy.toollists import present_tool

_DIGESTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


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
        tool = msgspec.json.decode(raw)
        told = {key: tool[key] for key in _DIGESTED if key in tool}
        digest.update(msgspec.json.encode(told, order="deterministic") + b"\n")
    return "sha256:" + digest.hexdigest()
