"""MCPToolConfig: which tools clients see, and under what name and description."""

from typing import Annotated

from pydantic import Field

from fairway.api.conditions import ConditionModel
from fairway.api.meta import ObjectMeta
from fairway.api.schema import Cel, ListMap, ListSet, Model

KIND = "MCPToolConfig"
PLURAL = "mcptoolconfigs"
SHORT_NAMES = ("mtc",)

ToolName = Annotated[str, Field(min_length=1, max_length=128)]


class ToolAnnotations(Model):
    """What clients are told of a tool's nature; what is not set stays as the server says."""

    title: Annotated[str, Field(max_length=1024)] | None = None
    """A name for people."""
    read_only_hint: bool | None = None
    """Whether it changes nothing."""
    destructive_hint: bool | None = None
    """Whether what it changes may be lost."""
    idempotent_hint: bool | None = None
    """Whether a second call with the same arguments changes nothing more."""
    open_world_hint: bool | None = None
    """Whether it reaches beyond the server."""


class ToolOverride(Model):
    """What clients see instead of what the server says."""

    cel_rules = (
        Cel(
            "has(self.name) || has(self.description) || has(self.annotations)",
            "set name, description or annotations",
            lambda override: (
                override.name is not None or override.description is not None or override.annotations is not None
            ),
        ),
    )

    name: ToolName | None = None
    """The name that clients see and call."""
    description: Annotated[str, Field(max_length=16384)] | None = None
    """The description that clients see."""
    annotations: ToolAnnotations | None = None
    """Title and hints that clients see."""


class MCPToolConfigSpec(Model):
    """A filter and overrides; both speak of tools by the name that the server itself gives them."""

    # not a set: of a set that becomes empty a server-side apply leaves no field, and no filter means every tool
    filter: Annotated[list[ToolName], Field(max_length=512)] | None = None
    """The tools that clients may see and call; `*` stands for any characters, `?` for one. Unset means all; an empty
    list means none."""
    override: Annotated[dict[str, ToolOverride], Field(max_length=512)] = {}
    """New names and descriptions, keyed by the server's own tool name."""


class MCPToolConfigStatus(Model):
    """What Fairway thinks of this configuration."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this status was computed from."""
    conditions: Annotated[list[ConditionModel], ListMap(("type",))] | None = None
    """Ready says whether the configuration is valid in itself."""
    users: Annotated[list[str], ListSet()] | None = None
    """Names of the MCPServers that refer to this object."""


class MCPToolConfig(Model):
    """Which tools of an MCP server clients see, and under what name and description."""

    metadata: ObjectMeta
    spec: MCPToolConfigSpec = MCPToolConfigSpec()
    """Which tools are visible, and how they are presented."""
    status: MCPToolConfigStatus | None = None
    """Written by Fairway."""
