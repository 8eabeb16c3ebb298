"""MCPServer: one MCP server, what stands in front of it, and how it is reached."""

import re
from typing import Annotated, Literal

from pydantic import Field

from fairway.api.conditions import ConditionModel, Phase
from fairway.api.container import (
    Arguments,
    Config,
    EnvFrom,
    HttpPath,
    Port,
    Probes,
    PullPolicy,
    PullSecrets,
    Resources,
    SecurityContext,
    VolumeMounts,
    Volumes,
)
from fairway.api.exposure import GatewayRoute, Ingress, Service
from fairway.api.meta import EnvVar, ObjectMeta, ObjectName, ObjectReference
from fairway.api.names import ADMIN_PORT, MAX_SERVER_NAME, PROXY_PORT, is_server_name
from fairway.api.permission import PermissionProfile
from fairway.api.podtemplate import PodTemplate
from fairway.api.scaling import Autoscaling
from fairway.api.schema import Cel, ListMap, ListSet, Model

KIND = "MCPServer"
PLURAL = "mcpservers"
SHORT_NAMES = ("mcps",)

Transport = Literal["streamable-http"]
ProxyMode = Literal["standalone", "none"]
Registry = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$",
    ),
]
_CONFIG_KEY = r"^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
_TAGGED = re.compile(r"@|:[^/]*$")


class InlineTools(Model):
    """Tools written in the manifest; Fairway runs them in its own server."""

    python: Annotated[str, Field(min_length=1, max_length=262144)]
    """Python source. Every public function becomes a tool; its annotations and docstring become the tool's schema."""


class Proxy(Model):
    """What stands between clients and the server."""

    cel_rules = (
        Cel(
            f"!has(self.port) || self.port != {ADMIN_PORT}",
            f"proxy.port: {ADMIN_PORT} is where a proxy is asked how it is",
            lambda proxy: proxy.port != ADMIN_PORT,
        ),
    )

    mode: ProxyMode = "standalone"
    """standalone: a proxy Deployment of its own. none: clients reach the server itself."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """How many copies of a standalone proxy run. Any of them serves any session."""
    port: Port = PROXY_PORT
    """The port that the proxy listens on, in its pod."""
    resources: Resources | None = None
    """CPU and memory of the proxy's container."""


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
        Cel(
            "!has(self.imageTag) || (has(self.image) && !self.image.matches('@|:[^/]*$'))",
            "imageTag goes with an image that has neither tag nor digest",
            lambda spec: spec.image_tag is None or (spec.image is not None and not _TAGGED.search(spec.image)),
        ),
        Cel(
            f"!has(self.config) || self.config.all(key, key.size() <= 253 && key.matches('{_CONFIG_KEY}'))",
            "config: a key is a file name of letters, digits, '-', '_' and '.', not starting with '.'",
            lambda _: True,  # the model's own keys say it
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")] | None = None
    """Container image of the server."""
    image_tag: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")] | None = None
    """Tag of the image, where `image` itself has neither tag nor digest."""
    registry_override: Registry | None = None
    """Registry (host, port, path) to pull from instead of the one that the image names."""
    use_provisioned_registry: bool = False
    """Whether to pull from the registry that came with the operator; goes before registryOverride."""
    image_pull_policy: PullPolicy | None = None
    """When the node pulls; default: Always for `latest` or no tag, else IfNotPresent."""
    image_pull_secrets: PullSecrets | None = None
    """Names of Secrets with credentials for the registry; default: what the operator is set up with."""
    inline_tools: InlineTools | None = None
    """Tools written right here, instead of an image."""
    transport: Transport = "streamable-http"
    """How the server talks MCP."""
    port: Port = 8080
    """The port that the server's container listens on."""
    path: HttpPath | None = None
    """Where on its port the server speaks MCP; default /mcp."""
    command: Arguments | None = None
    """Replaces the entry point of the image. No shell; $(NAME) is a variable of the environment."""
    args: Arguments | None = None
    """Arguments of the command."""
    env: Annotated[list[EnvVar], ListMap(("name",)), Field(max_length=256)] = []
    """Environment of the server's container."""
    env_from: EnvFrom | None = None
    """Secrets and ConfigMaps of which every key becomes a variable; `env` and `config` go before them."""
    secret_name: ObjectName | None = None
    """A Secret of which every key becomes a variable: short for one entry of envFrom."""
    config: Config | None = None
    """Settings of the server: each key is a file in /etc/mcp and, if it can be one, an environment variable; all of
    them together are /etc/mcp/config.json. A change replaces the pods."""
    resources: Resources | None = None
    """CPU and memory of the server's container."""
    volumes: Volumes | None = None
    """Volumes of the server's pods."""
    volume_mounts: VolumeMounts | None = None
    """Where the server's container sees them."""
    security_context: SecurityContext | None = None
    """Security of the server's container; what is not set stays restricted."""
    service_account_name: ObjectName | None = None
    """Account of the server's pods instead of one without rights and token; it decides on the token itself."""
    probes: Probes | None = None
    """The node's probes of the server's container."""
    pod_template: PodTemplate | None = None
    """What else should be different in the server's pods."""
    permission_profile: PermissionProfile | None = None
    """What the server may connect to; default: whatever the cluster's network allows."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many copies of the server run."""
    suspend: bool = False
    """Stops all pods, of server and proxy, and keeps everything else."""
    proxy: Proxy = Proxy()
    """What stands in front of the server."""
    autoscaling: Autoscaling | None = None
    """Lets the number of copies follow the load."""
    service: Service = Service()
    """The Service that clients dial."""
    ingress: Ingress = Ingress()
    """Publishes the server through an ingress controller."""
    gateway_route: GatewayRoute = GatewayRoute()
    """Publishes the server through the Gateway API."""
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
    external_urls: Annotated[list[str], ListSet()] | None = Field(None, alias="externalURLs")
    """Where it is really published: by nodes, a load balancer, an ingress, a gateway."""
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
