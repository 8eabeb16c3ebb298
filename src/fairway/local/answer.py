"""A tool's answer as a person reads it. Pure."""

import json
from collections.abc import Mapping
from typing import Any


def text_of(result: Mapping[str, Any]) -> str:
    """What a tool answered, as text: its text parts, and a word for each part that is none."""
    parts = []
    for part in result.get("content") or ():
        parts.append(str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type', 'unknown')}]")
    if not parts and "structuredContent" in result:
        return json.dumps(result["structuredContent"])
    return "\n".join(parts)
