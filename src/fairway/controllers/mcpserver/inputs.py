"""Everything that the decisions about one MCPServer read, gathered once and frozen."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fairway.api import defaults
from fairway.api.conditions import Reason
from fairway.api.defaults import Wire
from fairway.api.mcpserver import MCPServer
from fairway.api.mcptoolconfig import MCPToolConfig
from fairway.api.toolview import ToolConflict
from fairway.controllers.mcpserver.needs import Contents, Need, explained, missing
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
        return defaults.proxy_port(proxy.port, proxy.mode)


def gather(server: Obj, tool_config: Obj | None) -> Inputs | Missing:
    """Checks the object and what it refers to; `tool_config` is the object that toolConfigRef names, if it exists."""
    try:
        model = MCPServer.model_validate(_body(server), extra="ignore")
    except ValidationError as error:
        return Missing(Reason.INVALID_SPEC, _first(error))
    if (not_yet := _not_yet(model)) is not None:
        return Missing(Reason.INVALID_SPEC, f"{not_yet}: this operator is too old for it")
    if model.spec.inline_tools is not None and model.spec.inline_tools.python is not None:
        problem = syntax_problem(model.spec.inline_tools.python)
        if problem is not None:
            return Missing(Reason.INLINE_TOOLS_INVALID, f"spec.inlineTools.python: {problem}")
    if model.spec.tool_config_ref is None:
        return Inputs(model)
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
        return Missing(Reason.TOOL_CONFIG_INVALID, f"MCPToolConfig {name}: {_first(error)}")
    except ToolConflict as conflict:
        return Missing(Reason.TOOL_CONFLICT, f"MCPToolConfig {name}: {conflict}")
    except ToolConfigTooLarge as large:
        return Missing(Reason.TOOL_CONFIG_INVALID, f"MCPToolConfig {name}: {large}")
    return Inputs(model, config)


def _not_yet(model: MCPServer) -> str | None:
    spec = model.spec
    for name, given in (
        ("spec.package", spec.package),
        ("spec.runtime", spec.runtime),
        ("spec.remote", spec.remote),
        ("spec.serviceRef", spec.service_ref),
        ("spec.inlineTools.secretKeyRef", spec.inline_tools and spec.inline_tools.secret_key_ref),
        ("spec.upstreamTLS", spec.upstream_tls),
        ("spec.proxy.tls", spec.proxy.tls),
        ("spec.proxy.proxyMode", spec.proxy.proxy_mode),
    ):
        if given is not None:
            return name
    if spec.transport not in (None, "http", "streamable-http"):
        return "spec.transport"
    if spec.workload == "StatefulSet":
        return "spec.workload"
    return "spec.proxy.mode" if spec.proxy.mode == "sidecar" else None


def unmet(needs: Iterable[Need], contents: Contents, *, namespace: str) -> Missing | None:
    """What the pods ask for and nobody has."""
    need = missing(needs, contents)
    if need is None:
        return None
    reason = Reason.SECRET_MISSING if need.kind == "Secret" else Reason.CONFIG_MAP_MISSING
    return Missing(reason, explained(need, contents, namespace=namespace), waiting=True)


def syntax_problem(source: str) -> str | None:
    """What is wrong with Python source, with the line; None if it compiles."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nesting beyond the parser's stack
        return str(error) or "nested too deeply"
    return None


def _body(obj: Obj) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key in ("metadata", "spec")}


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    what = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return f"{where}: {what}" if where else what
