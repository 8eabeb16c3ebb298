"""An MCPToolConfig as the proxy is told it."""

import msgspec

from fairway.api.mcptoolconfig import MCPToolConfigSpec, ToolAnnotations
from fairway.api.runconfig import Annotations, ToolOverride, Tools

MAX_BYTES = 1_000_000
"""A RunConfig travels in a ConfigMap, which holds 1 MiB; the rest of it is small."""


class ToolConfigTooLarge(ValueError):
    """No ConfigMap could hold it."""


def checked_tools_of(spec: MCPToolConfigSpec) -> Tools:
    """Raises ToolConflict or ToolConfigTooLarge for what no proxy could be told."""
    tools = tools_of(spec)
    tools.view()
    size = len(msgspec.json.encode(tools))
    if size > MAX_BYTES:
        raise ToolConfigTooLarge(
            f"its tools come to {size} bytes, and {MAX_BYTES} can be told to a proxy: "
            "shorten the descriptions in spec.override"
        )
    return tools


def tools_of(spec: MCPToolConfigSpec) -> Tools:
    """Canonical: the order in which a user wrote things changes no hash."""
    return Tools(
        filter=None if spec.filter is None else tuple(sorted(set(spec.filter))),
        override=tuple(
            ToolOverride(
                tool=tool,
                name=override.name,
                description=override.description,
                annotations=_annotations(override.annotations),
            )
            for tool, override in sorted(spec.override.items())
        ),
    )


def _annotations(wanted: ToolAnnotations | None) -> Annotations | None:
    given = {} if wanted is None else wanted.model_dump(exclude_none=True)
    return Annotations(**given) if given else None
