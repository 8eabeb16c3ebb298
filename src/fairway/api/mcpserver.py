"""MCPServer: one MCP server, what stands in front of it, and how it is reached."""

from typing import Annotated, Literal

from pydantic import Field

from fairway.api.conditions import ConditionModel, Phase
from fairway.api.meta import EnvVar, ObjectMeta, ObjectReference
from fairway.api.names import MAX_SERVER_NAME, is_server_name
from fairway.api.schema import Cel, ListMap, Model

KIND = "MCPServer"
PLURAL = "mcpservers"
SHORT_NAMES = ("mcps",)

Transport = Literal["streamable-http"]
ProxyMode = Literal["standalone", "none"]


class InlineTools(Model):
    """Tools written in the manifest; Fairway runs them in its own server."""

    python: Annotated[str, Field(min_length=1, max_length=262144)]
    """Python source. Every public function becomes a tool; its annotations and docstring become the tool's schema."""


class Proxy(Model):
    """What stands between clients and the server."""

    mode: ProxyMode = "standalone"
    """standalone: a proxy Deployment of its own. none: clients reach the server itself."""


class MCPServerSpec(Model):
    """Where the server comes from, how it talks and what stands in front of it."""

    cel_rules = (
        Cel(
            "[has(self.image), has(self.inlineTools)].exists_one(x, x)",
            "set exactly one source: image or inlineTools",
            lambda spec: (spec.image is None) != (spec.inline_tools is None),
        ),
        Cel(
            "!has(self.toolConfigRef) || !has(self.proxy) || self.proxy.mode != 'none'",
            "toolConfigRef needs a proxy to enforce it: set proxy.mode to standalone",
            lambda spec: spec.tool_config_ref is None or spec.proxy.mode != "none",
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")] | None = None
    """Container image of the server."""
    inline_tools: InlineTools | None = None
    """Tools written right here, instead of an image."""
    transport: Transport = "streamable-http"
    """How the server talks MCP."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port that the server's container listens on."""
    env: Annotated[list[EnvVar], ListMap(("name",)), Field(max_length=256)] = []
    """Environment of the server's container."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many copies of the server run."""
    proxy: Proxy = Proxy()
    """What stands in front of the server."""
    tool_config_ref: ObjectReference | None = None
    """The MCPToolConfig that decides which tools clients see."""


class ServerInfo(Model):
    """What the server said of itself in the handshake."""

    name: str
    """Name of the server's program."""
    version: str = ""
    """Version of the server's program."""
    protocol_versions: list[str] = []
    """Protocol revisions that it speaks."""


class ToolsInfo(Model):
    """The tools as clients see them."""

    count: int
    """How many."""
    names: list[str] = []
    """Their names, sorted; the first 100."""
    digest: str = ""
    """Digest of names, descriptions and schemas: changes when any of them does."""


class MCPServerStatus(Model):
    """What Fairway observed. Only the operator writes it."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this status was computed from."""
    phase: Phase | None = None
    """One word that sums up the conditions."""
    message: str | None = None
    """What is missing or wrong, in one sentence."""
    conditions: Annotated[list[ConditionModel], ListMap(("type",))] | None = None
    """The facts, one by one."""
    url: str | None = None
    """Where clients inside the cluster reach the server."""
    replicas: int | None = None
    """Server pods that exist."""
    ready_replicas: int | None = None
    """Server pods of the current generation that are ready."""
    ready: str | None = None
    """Ready of wanted server pods, for people."""
    selector: str | None = None
    """Label selector of the server pods, for the scale subresource."""
    server: ServerInfo | None = None
    """What the server said of itself."""
    tools: ToolsInfo | None = None
    """The tools that clients see."""


class MCPServer(Model):
    """One MCP server: where it comes from, how it talks, what stands in front, how it is reached."""

    cel_rules = (
        Cel(
            f"self.metadata.name.size() <= {MAX_SERVER_NAME} "
            "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            f"metadata.name must be a DNS label (lower-case letters, digits, '-', a letter first) "
            f"of at most {MAX_SERVER_NAME} characters",
            lambda server: is_server_name(server.metadata.name),
        ),
    )

    metadata: ObjectMeta
    spec: MCPServerSpec
    """The server that you want."""
    status: MCPServerStatus | None = None
    """Written by Fairway."""
