"""Everything that the decisions about one MCPServer read, gathered once and frozen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from fairway.api import defaults
from fairway.api.conditions import Reason
from fairway.api.defaults import Wire
from fairway.api.mcpserver import MCPServer
from fairway.api.mcptoolconfig import MCPToolConfig
from fairway.api.names import ChildNames
from fairway.api.policy import NO_POLICY, Policy
from fairway.api.runconfig import ListenTLS, UpstreamTLS
from fairway.api.toolview import ToolConflict
from fairway.controllers.mcpserver.needs import Contents, Need, explained, missing
from fairway.controllers.mcpserver.pythonsource import problem_of
from fairway.controllers.mcptoolconfig.view import ToolConfigTooLarge, checked_tools_of
from fairway.kube.resource import Resource

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Missing:
    """Why nothing can be decided: what the user has to supply or fix."""

    reason: Reason
    message: str
    waiting: bool = False
    """Whether it may come by itself, as an object that is created later does."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a proxy has to enforce, and what it needs for that."""

    policy: Policy = NO_POLICY
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files beside the RunConfig, by name."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Names and keys of users' Secrets that it reads."""
    cluster_token: bool = False
    """Whether it asks the API server for the keys of its tokens."""
    listen_tls: ListenTLS | None = None
    """With what it shows clients who it is."""
    upstream_tls: UpstreamTLS | None = None
    """How it sees that the server is who it should be."""


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Running:
    """How the workload that there is was made, as it says itself."""

    image: str
    """Fairway's own image in its pods."""
    template: str
    """Digest of the template of its pods."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A valid MCPServer with all that it refers to."""

    server: MCPServer
    tool_config: MCPToolConfig | None = None
    needs: tuple[Need, ...] = ()
    """What the server's pods take from Secrets and ConfigMaps."""
    contents: Contents = field(default_factory=dict)
    served: frozenset[Resource] = frozenset()
    """Kinds that not every cluster has, and this one does."""
    unmet: Missing | None = None
    """Why the workload has to stay as it is while everything else goes on."""
    processes: bool = False
    """Whether pods are processes of one machine, as in local mode."""
    required_env: tuple[str, ...] = ()
    """Variables without which a named runtime does not work."""

    running: Running | None = None
    """What runs already of Fairway's own image in the server's pods."""
    rules: Rules | None = NO_RULES
    """What the proxy enforces; None while nobody can say, and then it stays as it is."""
    unruled: Missing | None = None
    """What is missing of the rules; some of it, such as a Secret, the proxy can wait for itself."""

    def with_runtime(self, server: MCPServer, *, required_env: tuple[str, ...]) -> "Inputs":
        """The same with a spec that says what its named runtime means."""
        return replace(self, server=server, required_env=required_env)

    @property
    def transport(self) -> Wire:
        """How the server talks: stdio, sse or streamable-http."""
        spec = self.server.spec
        return defaults.transport(spec.transport, packaged=spec.package is not None)

    @property
    def path(self) -> str:
        """Where the server itself speaks MCP."""
        return self.server.spec.path or defaults.path(self.transport)

    @property
    def proxy_port(self) -> int:
        """Where the proxy listens in its pod."""
        proxy = self.server.spec.proxy
        return defaults.proxy_port(proxy.port, "standalone" if self.processes else proxy.mode)

    @property
    def presented(self) -> Literal["streamable-http", "sse"]:
        """How the proxy speaks with clients."""
        return defaults.presented(self.server.spec.proxy.proxy_mode, self.transport)

    @property
    def client_path(self) -> str:
        """Where clients speak MCP, with the proxy or with the server itself."""
        return self.path if self.server.spec.proxy.mode == "none" else defaults.path(self.presented)

    @property
    def url(self) -> str:
        """Where clients inside the cluster reach it."""
        return self.url_of(self.client_path)

    def url_of(self, path: str) -> str:
        """Where clients inside the cluster reach a path of it."""
        metadata, spec = self.server.metadata, self.server.spec
        return self.secured(ChildNames(metadata.name).url(metadata.namespace, port=spec.service.port, path=path))

    def secured(self, url: str) -> str:
        """A URL of the proxy with the scheme that it is served in."""
        return url if self.server.spec.proxy.tls is None else url.replace("http:", "https:", 1)


def gather(server: Obj, tool_config: Obj | None, *, processes: bool = False) -> Inputs | Missing:
    """Checks the object and what it refers to; `tool_config` is the object that toolConfigRef names, if it exists."""
    try:
        model = MCPServer.model_validate(_body(server), extra="ignore")
    except ValidationError as error:
        return Missing(Reason.INVALID_SPEC, first_error(error))
    if model.spec.inline_tools is not None and model.spec.inline_tools.python is not None:
        problem = problem_of(model.spec.inline_tools.python.encode())
        if problem:
            return Missing(Reason.INLINE_TOOLS_INVALID, f"spec.inlineTools.python: {problem}")
    if model.spec.tool_config_ref is None:
        return Inputs(model, processes=processes)
    name = model.spec.tool_config_ref.name
    if tool_config is None:
        return Missing(
            Reason.TOOL_CONFIG_NOT_FOUND,
            f"spec.toolConfigRef: there is no MCPToolConfig {name} in namespace {model.metadata.namespace}",
            waiting=True,
        )
    try:
        config = MCPToolConfig.model_validate(_body(tool_config), extra="ignore")
        checked_tools_of(config.spec)
    except ValidationError as error:
        return Missing(Reason.TOOL_CONFIG_INVALID, f"MCPToolConfig {name}: {first_error(error)}")
    except ToolConflict as conflict:
        return Missing(Reason.TOOL_CONFLICT, f"MCPToolConfig {name}: {conflict}")
    except ToolConfigTooLarge as large:
        return Missing(Reason.TOOL_CONFIG_INVALID, f"MCPToolConfig {name}: {large}")
    return Inputs(model, config, processes=processes)


def unmet(needs: Iterable[Need], contents: Contents, *, namespace: str) -> Missing | None:
    """What the pods ask for and nobody has."""
    need = missing(needs, contents)
    if need is None:
        return None
    reason = Reason.SECRET_MISSING if need.kind == "Secret" else Reason.CONFIG_MAP_MISSING
    return Missing(reason, explained(need, contents, namespace=namespace), waiting=True)


def _body(obj: Obj) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key in ("metadata", "spec")}


def first_error(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    what = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return f"{where}: {what}" if where else what
