"""The tools of a server as its clients are told of them: one by one, and summed up for the status."""

import difflib
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fairway.api import proxystatus
from fairway.api.toolview import ToolView
from fairway.mcp.client import Offered, ToolList

_DIGESTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

_NAMES_SHOWN: Final = 100
_COMPARED: Final = 20
_COMPARED_WITH: Final = 2000
"""Comparing names is slow, and nobody reads more of them."""


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
    annotations = view.annotations(name)
    if exposed == name and description is None and not annotations:
        return raw
    tool: dict[str, Any] = {**_members.decode(raw), "name": exposed}
    if description is not None:
        tool["description"] = description
    if annotations:
        told = tool.get("annotations")
        tool["annotations"] = {
            **(_members.decode(told) if told is not None and bytes(told) != b"null" else {}),
            **annotations,
        }
        if "title" in annotations:
            tool["title"] = annotations["title"]  # where both are, clients show this one
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
    unknown = tuple(view.unknown(offered)) if not listed.incomplete else ()
    return proxystatus.Tools(
        count=len(names),
        names=tuple(names),
        digest=_digest([shown[name] for name in names]),
        bytes=size,
        unknown=unknown,
        nearest=_nearest(unknown[:_COMPARED], offered[:_COMPARED_WITH]),
        shadowed=tuple(view.shadowed(offered)),
        complete=not listed.incomplete,
        error=listed.incomplete,
    )


def named(offered: Offered | None) -> proxystatus.Offered | None:
    """Resources or prompts for the status."""
    if offered is None:
        return None
    names = tuple(sorted(offered.names)[:_NAMES_SHOWN])
    return proxystatus.Offered(count=len(offered.names), names=names, complete=offered.complete)


def _nearest(unknown: Iterable[str], offered: Sequence[str]) -> dict[str, str]:
    found = {name: difflib.get_close_matches(name, offered, n=1, cutoff=0.6) for name in unknown}
    return {name: close[0] for name, close in found.items() if close}


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
