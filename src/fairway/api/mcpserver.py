"""MCPServer: one MCP server, what stands in front of it, and how it is reached."""

import re
from typing import Annotated, Literal

from pydantic import Field

from fairway.api import defaults
from fairway.api.access import Auth, Authz
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
from fairway.api.names import ADMIN_PORT, MAX_SERVER_NAME, SIDECAR_PORT, is_server_name
from fairway.api.permission import PermissionProfile
from fairway.api.podtemplate import PodTemplate
from fairway.api.scaling import Autoscaling
from fairway.api.schema import Cel, ListMap, ListSet, Model
from fairway.api.source import (
    SOURCES,
    Image,
    InlineTools,
    NamedRuntime,
    Package,
    RegistryReference,
    Remote,
    ServiceReference,
    UpstreamTls,
)
from fairway.api.traffic import Audit, Cors, Headers, Limits, RateLimit, Timeouts

KIND = "MCPServer"
PLURAL = "mcpservers"
SHORT_NAMES = ("mcps",)

Transport = Literal["stdio", "sse", "streamable-http", "http"]
Presented = Literal["streamable-http", "sse"]
Workload = Literal["Deployment", "StatefulSet"]
ProxyMode = Literal["standalone", "sidecar", "none"]
Registry = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$",
    ),
]
_CONFIG_KEY = r"^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
_TAGGED = re.compile(r"@|:[^/]*$")


_CONTAINER_FIELDS = {
    "imageTag": "image_tag",
    "registryOverride": "registry_override",
    "command": "command",
    "args": "args",
    "env": "env",
    "envFrom": "env_from",
    "secretName": "secret_name",
    "config": "config",
    "resources": "resources",
    "volumes": "volumes",
    "volumeMounts": "volume_mounts",
    "securityContext": "security_context",
    "serviceAccountName": "service_account_name",
    "probes": "probes",
    "podTemplate": "pod_template",
    "permissionProfile": "permission_profile",
    "workload": "workload",
    "autoscaling": "autoscaling",
}
_STDIO = "(has(self.transport) ? self.transport == 'stdio' : has(self.package))"
_RUNS_ELSEWHERE = "(has(self.remote) || has(self.serviceRef))"
_MODE = "(has(self.proxy) && has(self.proxy.mode) ? self.proxy.mode : 'standalone')"
_SIDECAR_PORT = f"(has(self.proxy.port) ? self.proxy.port : {SIDECAR_PORT})"
_ENFORCED = {
    "toolConfigRef": "tool_config_ref",
    "auth": "auth",
    "authz": "authz",
    "rateLimit": "rate_limit",
    "audit": "audit",
    "cors": "cors",
    "headers": "headers",
    "timeouts": "timeouts",
    "limits": "limits",
    "upstreamHost": "upstream_host",
}
"""What only a proxy can do, by camelCase name and attribute."""


def _needs_proxy(field: str, attribute: str) -> Cel:
    return Cel(
        f"!has(self.{field}) || !has(self.proxy) || self.proxy.mode != 'none'",
        f"{field} needs a proxy to enforce it: set proxy.mode to standalone or sidecar",
        lambda spec: getattr(spec, attribute) is None or spec.proxy.mode != "none",
    )


def _speaks_stdio(spec: "MCPServerSpec") -> bool:
    return defaults.transport(spec.transport, packaged=spec.package is not None) == "stdio"


def _sources(spec: "MCPServerSpec") -> int:
    return sum(getattr(spec, attribute) is not None for attribute in SOURCES.values())


def _runs_elsewhere(spec: "MCPServerSpec") -> bool:
    return spec.remote is not None or spec.service_ref is not None


def _says_of_container(spec: "MCPServerSpec") -> bool:
    given = (getattr(spec, attribute) for attribute in _CONTAINER_FIELDS.values())
    return any(value is not None and value != [] for value in given)


class ProxyTls(Model):
    """The proxy speaks TLS with clients."""

    secret_name: ObjectName
    """A Secret of type kubernetes.io/tls, with certificate and key; a renewed one is used without a restart."""


class Proxy(Model):
    """What stands between clients and the server."""

    cel_rules = (
        Cel(
            f"!has(self.port) || self.port != {ADMIN_PORT}",
            f"proxy.port: {ADMIN_PORT} is where a proxy is asked how it is",
            lambda proxy: proxy.port != ADMIN_PORT,
        ),
        Cel(
            "!has(self.mode) || self.mode != 'none' || !(has(self.proxyMode) || has(self.tls))",
            "proxy.proxyMode and proxy.tls are for a proxy, and proxy.mode is none",
            lambda proxy: proxy.mode != "none" or (proxy.proxy_mode is None and proxy.tls is None),
        ),
        Cel(
            "!has(self.mode) || self.mode != 'sidecar' || !has(self.replicas) || self.replicas == 1",
            "proxy.replicas: a sidecar runs once in each of the server's pods; set spec.replicas",
            lambda proxy: proxy.mode != "sidecar" or proxy.replicas == 1,
        ),
    )

    mode: ProxyMode = "standalone"
    """standalone: a proxy Deployment of its own. sidecar: a proxy in each of the server's pods. none: clients reach the
    server itself."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """How many copies of a standalone proxy run. Any of them serves any session."""
    port: Port | None = None
    """The port that the proxy listens on, in its pod; default: 8080, and 8091 for a sidecar."""
    proxy_mode: Presented | None = None
    """How the proxy speaks with clients, where that is not how the server speaks; default: streamable-http, and sse for
    a server with transport sse."""
    tls: ProxyTls | None = None
    """The proxy speaks TLS with clients."""
    resources: Resources | None = None
    """CPU and memory of the proxy's container."""


class MCPServerSpec(Model):
    """Where the server comes from, how it talks and what stands in front of it."""

    cel_rules = (
        Cel(
            f"[{', '.join(f'has(self.{name})' for name in SOURCES)}].exists_one(x, x)",
            "set exactly one source: image, package, inlineTools, runtime, remote or serviceRef",
            lambda spec: _sources(spec) == 1,
        ),
        Cel(
            "!has(self.registryRef)",
            "registryRef: this version of Fairway has no registries; name the server's image, package or URL itself",
            lambda spec: spec.registry_ref is None,
        ),
        Cel(
            f"!{_STDIO} || {_MODE} == 'standalone'",
            "proxy.mode: a server that speaks stdio (transport, or a package's default) needs a standalone proxy",
            lambda spec: not _speaks_stdio(spec) or spec.proxy.mode == "standalone",
        ),
        Cel(
            f"!{_STDIO} || !has(self.workload) || self.workload == 'StatefulSet'",
            "workload: a server that speaks stdio runs in a StatefulSet",
            lambda spec: not _speaks_stdio(spec) or spec.workload != "Deployment",
        ),
        Cel(
            f"!{_STDIO} || !has(self.upstreamTLS)",
            "upstreamTLS: stdio has no TLS",
            lambda spec: not _speaks_stdio(spec) or spec.upstream_tls is None,
        ),
        Cel(
            f"{_MODE} != 'none' || !has(self.upstreamTLS)",
            "upstreamTLS is for a proxy, and proxy.mode is none",
            lambda spec: spec.proxy.mode != "none" or spec.upstream_tls is None,
        ),
        Cel(
            f"{_STDIO} || !has(self.proxy) || !has(self.proxy.proxyMode) "
            "|| (has(self.runtime) && !has(self.transport)) "
            "|| (has(self.transport) && self.transport == 'sse') == (self.proxy.proxyMode == 'sse')",
            "proxy.proxyMode: what speaks HTTP is presented as it speaks; a choice there is only for stdio",
            lambda spec: (
                _speaks_stdio(spec)
                or spec.proxy.proxy_mode is None
                or (spec.runtime is not None and spec.transport is None)
                or (spec.transport == "sse") == (spec.proxy.proxy_mode == "sse")
            ),
        ),
        Cel(
            f"!{_STDIO} || !has(self.inlineTools)",
            "transport: inline tools speak streamable-http",
            lambda spec: not _speaks_stdio(spec) or spec.inline_tools is None,
        ),
        Cel(
            f"!{_RUNS_ELSEWHERE} || ({_MODE} == 'standalone' && !{_STDIO})",
            "remote and serviceRef want a standalone proxy, and transport streamable-http or sse",
            lambda spec: not _runs_elsewhere(spec) or (spec.proxy.mode == "standalone" and not _speaks_stdio(spec)),
        ),
        Cel(
            f"!{_RUNS_ELSEWHERE} || !("
            + " || ".join(
                f"(has(self.{name}) && self.{name}.size() > 0)" if name == "env" else f"has(self.{name})"
                for name in _CONTAINER_FIELDS
            )
            + ")",
            f"remote and serviceRef start no container: take out {', '.join(_CONTAINER_FIELDS)}",
            lambda spec: not _runs_elsewhere(spec) or not _says_of_container(spec),
        ),
        Cel(
            "!has(self.remote) || !has(self.path)",
            "path: the path of a remote server is in remote.url",
            lambda spec: spec.remote is None or spec.path is None,
        ),
        Cel(
            "!has(self.remote) || !has(self.upstreamTLS) || self.remote.url.startsWith('https:')",
            "upstreamTLS: remote.url is not https",
            lambda spec: spec.remote is None or spec.upstream_tls is None or spec.remote.url.startswith("https:"),
        ),
        Cel(
            "!has(self.package) || !has(self.args)",
            "args: the arguments of a package are package.args",
            lambda spec: spec.package is None or spec.args is None,
        ),
        Cel(
            f"{_MODE} != 'sidecar' || (!has(self.port) ? 8080 : self.port) != {_SIDECAR_PORT}",
            "proxy.port: a sidecar and the server share a pod, and need two ports",
            lambda spec: spec.proxy.mode != "sidecar" or spec.port != (spec.proxy.port or SIDECAR_PORT),
        ),
        Cel(
            f"{_MODE} != 'sidecar' || !has(self.port) || self.port != {ADMIN_PORT}",
            f"port: {ADMIN_PORT} is where the sidecar is asked how it is",
            lambda spec: spec.proxy.mode != "sidecar" or spec.port != ADMIN_PORT,
        ),
        *(_needs_proxy(field, attribute) for field, attribute in _ENFORCED.items()),
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

    image: Image | None = None
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
    package: Package | None = None
    """A package from an index, instead of an image."""
    inline_tools: InlineTools | None = None
    """Tools written right here, instead of an image."""
    runtime: NamedRuntime | None = None
    """A kind of server from the operator's catalogue, instead of an image."""
    remote: Remote | None = None
    """A server that somebody else runs; only the proxy is ours."""
    service_ref: ServiceReference | None = None
    """A Service that exists already; only the proxy is ours."""
    registry_ref: RegistryReference | None = None
    """An entry of a registry. Not in this version."""
    transport: Transport | None = None
    """How the server talks MCP; http is short for streamable-http. Default: what the runtime says, stdio for a package,
    streamable-http for all others."""
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
    workload: Workload | None = None
    """What runs the pods: a Deployment, or a StatefulSet for a server whose pods need names that stay. Default:
    Deployment, and StatefulSet for stdio."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many copies of the server run. One that speaks stdio runs once."""
    suspend: bool = False
    """Stops all pods, of server and proxy, and keeps everything else."""
    proxy: Proxy = Proxy()
    """What stands in front of the server."""
    upstream_tls: UpstreamTls | None = Field(None, alias="upstreamTLS")
    """The proxy dials the server over TLS."""
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
    auth: Auth | None = None
    """Who may come in; default: everybody."""
    authz: Authz | None = None
    """What they may do; default: everything."""
    rate_limit: RateLimit | None = None
    """How often clients may ask; default: as often as they like."""
    audit: Audit | None = None
    """Notes every request."""
    cors: Cors | None = None
    """Web pages that may talk to the server; default: those of the machine it runs on."""
    headers: Headers | None = None
    """Headers of the requests that reach the server."""
    timeouts: Timeouts | None = None
    """How long the proxy waits."""
    limits: Limits | None = None
    """How large a request may be."""
    upstream_host: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.\-\[\]:_]+$")] | None = None
    """The Host that the server is addressed by; default: localhost and its port, which servers accept that guard
    against DNS rebinding."""


class ServerInfo(Model):
    """What the server said of itself in the handshake."""

    name: str
    """Name of the server's program."""
    version: str = ""
    """Version of the server's program."""
    protocol_versions: list[str] = []
    """Protocol revisions that it speaks."""
    capabilities: list[str] = []
    """What it says that it can do: tools, resources, prompts, ..."""


class OfferedInfo(Model):
    """Resources or prompts of the server."""

    count: int
    """How many."""
    names: list[str] = []
    """What they are called, sorted; the first 100."""


class ToolsInfo(Model):
    """The tools as clients see them."""

    count: int
    """How many."""
    names: list[str] = []
    """Their names, sorted; the first 100."""
    digest: str = ""
    """Digest of names, descriptions and schemas: changes when any of them does."""
    bytes: int = 0
    """Size of the list as clients get it."""
    estimated_tokens: int = 0
    """What the list costs a model that is told of it, at about 4 bytes a token."""


class MCPServerStatus(Model):
    """What Fairway observed. Only the operator writes it."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this status was computed from."""
    phase: Annotated[Phase, Field(strict=False)] | None = None
    """One word that sums up the conditions."""
    message: str | None = None
    """What is missing or wrong, in one sentence."""
    conditions: Annotated[list[ConditionModel], ListMap(("type",))] | None = None
    """The facts, one by one."""
    transport: str | None = None
    """How the server talks MCP: what the spec says, or leaves to its source."""
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
    resources: OfferedInfo | None = None
    """The resources that the server lists."""
    prompts: OfferedInfo | None = None
    """The prompts that the server lists."""


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
