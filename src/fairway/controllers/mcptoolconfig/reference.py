"""Which MCPToolConfig an MCPServer refers to."""

from collections.abc import Mapping
from typing import Any


def referenced_tool_config(server: Mapping[str, Any]) -> str | None:
    """The name in toolConfigRef, read before the object is known to be valid."""
    reference = (server.get("spec") or {}).get("toolConfigRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None
