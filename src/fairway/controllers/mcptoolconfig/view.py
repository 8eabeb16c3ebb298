"""An MCPToolConfig as the proxy is told it."""

from fairway.api.mcptoolconfig import MCPToolConfigSpec
from fairway.api.runconfig import ToolOverride, Tools


def tools_of(spec: MCPToolConfigSpec) -> Tools:
    """Canonical: the order in which a user wrote things changes no hash."""
    return Tools(
        filter=None if spec.filter is None else tuple(sorted(set(spec.filter))),
        override=tuple(
            ToolOverride(tool=tool, name=override.name, description=override.description)
            for tool, override in sorted(spec.override.items())
        ),
    )
