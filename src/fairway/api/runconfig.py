"""RunConfig v1: what the control plane tells a proxy.

A proxy reads one or more RunConfig files, each with one or more routes. Secrets are named by file path, never by value.
Unknown fields are refused: a policy that this proxy does not understand must not be ignored.
"""

import hashlib
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from fairway.api import names
from fairway.api.policy import NO_POLICY, FilePath, Policy
from fairway.api.toolview import Presented, ToolView

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
# in patterns: `$` alone also matches before a line end, which must never get into a request line
Path = Annotated[str, msgspec.Meta(pattern=r"^/[!-~]*$(?!\n)", max_length=1024)]
EnvName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
_REMOTE_URL: Final = r"^https?://([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[!-\"$->@-~]*)?$(?!\n)"

DEFAULT_PATH: Final = "/mcp"


class InvalidRunConfig(ValueError):
    """The file cannot be used; the message says where and why."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """Base of every part of the contract."""


class ListenTLS(Struct, frozen=True, kw_only=True):
    """Clients are served over TLS. The files are read again when they change; a pair that is no pair keeps the last."""

    cert_file: FilePath
    """In PEM: the server's certificate, and then those between it and an authority."""
    key_file: FilePath


class Listen(Struct, frozen=True, kw_only=True):
    """Where and how clients reach the route."""

    port: Port
    host: str = "0.0.0.0"  # noqa: S104  the proxy's pod is what the NetworkPolicy and Service guard
    path: Path = DEFAULT_PATH
    also: tuple[Path, ...] = ()
    """More paths that mean the same, as they are published under."""
    mode: Literal["streamable-http", "sse"] = "streamable-http"
    """What clients speak. With sse, `path` is where the stream is; messages are posted to it as well."""
    tls: ListenTLS | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.path, *self.also)))


class ServiceEndpoints(Struct, frozen=True, kw_only=True):
    """The ready pods behind a headless Service; the place the proxy runs in knows how to look them up."""

    namespace: str
    name: str
    port: Port


class Command(Struct, frozen=True, kw_only=True):
    """A server that the proxy starts itself, and talks to over standard input and output."""

    argv: Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(min_length=1)]
    env: dict[EnvName, str] = {}
    """Variables that are no secrets."""
    env_files: dict[EnvName, str] = {}
    """Variables by the path of the file that holds the value."""
    inherit: tuple[EnvName, ...] = ()
    """More variables of the proxy's own environment that the server gets, beside PATH, HOME and their like."""
    cwd: str = ""
    """Empty: that of the proxy."""


class Attach(Struct, frozen=True, kw_only=True):
    """A server in a pod that speaks over standard input and output. Its container has `stdin: true`.

    The proxy needs the rights to get, list and watch this pod, and to get and create its `attach`.
    """

    namespace: Annotated[str, msgspec.Meta(min_length=1)]
    pod: Annotated[str, msgspec.Meta(min_length=1)]
    container: Annotated[str, msgspec.Meta(min_length=1)] = names.CONTAINER_SERVER


class UpstreamTLS(Struct, frozen=True, kw_only=True):
    """The server is dialled over TLS, and has to prove who it is."""

    ca_file: FilePath | None = None
    """Authorities in PEM instead of the system's; read again when the file changes."""
    server_name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]*$(?!\n)", max_length=253)] = ""
    """Whom the certificate must be for. Empty: the host of the address or URL, for a Service <name>.<namespace>.svc."""


class Remote(Struct, frozen=True, kw_only=True):
    """A server somewhere else, such as a vendor's. Its name is looked up, and where it leads is judged, by the proxy.

    Link-local and metadata addresses are never dialled.
    """

    url: Annotated[str, msgspec.Meta(pattern=_REMOTE_URL, max_length=2048)]
    """No more than scheme, host, port and path."""
    allow_private: bool = False
    """Admits private address ranges."""
    allow_loopback: bool = False
    """Admits the machine, or pod, that the proxy runs in."""

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or (443 if self.secure else 80)

    @property
    def path(self) -> str:
        return urlsplit(self.url).path or "/"

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        return urlsplit(self.url).netloc

    def __post_init__(self) -> None:
        try:
            port = urlsplit(self.url).port
        except ValueError as error:
            raise ValueError(f"remote.url: {error}") from None
        if port == 0 or not self.host:
            raise ValueError("remote.url: it needs a host, and a port that is not 0")


class Upstream(Struct, frozen=True, kw_only=True):
    """The MCP server. Exactly one of `service`, `addresses`, `command`, `attach`, `remote`."""

    transport: Literal["streamable-http", "sse", "stdio"] = "streamable-http"
    """stdio goes with `command` and `attach`, the others with the rest."""
    service: ServiceEndpoints | None = None
    addresses: tuple[str, ...] = ()
    """host:port, for servers that are not behind a Service."""
    command: Command | None = None
    attach: Attach | None = None
    remote: Remote | None = None
    path: Path = DEFAULT_PATH
    """Of the MCP endpoint, with transport sse of the stream. A `remote` says it in its URL instead."""
    host_header: Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[!-~]*$(?!\n)")] = ""
    """Host sent upstream. Empty sends the URL's to a `remote`, and localhost:<port> to others, which servers that
    guard against DNS rebinding accept."""
    tls: UpstreamTLS | None = None
    """For a `remote` only what to check: its URL says whether there is TLS."""

    def __post_init__(self) -> None:
        lines = (self.command is not None, self.attach is not None)
        if sum((self.service is not None, bool(self.addresses), self.remote is not None, *lines)) != 1:
            raise ValueError("set exactly one of service and addresses, or command, or attach, or remote")
        if (self.transport == "stdio") != any(lines):
            raise ValueError("command and attach go with transport stdio, everything else with the others")
        if self.tls is not None and (any(lines) or (self.remote is not None and not self.remote.secure)):
            raise ValueError("tls goes with service and addresses, and with a remote whose url is https")
        if self.remote is not None and self.path not in (DEFAULT_PATH, self.remote.path):
            raise ValueError("path: a remote says it in its url")

    @property
    def endpoint_path(self) -> str:
        """The path that requests go to, wherever it was said."""
        return self.path if self.remote is None else self.remote.path


class Annotations(Struct, frozen=True, kw_only=True):
    """What clients are told of a tool's nature; None keeps what the server says."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None

    def given(self) -> dict[str, str | bool]:
        """Those that are set, as MCP spells them."""
        found: dict[str, str | bool] = msgspec.to_builtins(self)
        return found


class ToolOverride(Struct, frozen=True, kw_only=True):
    """How one tool is shown."""

    tool: str
    name: str | None = None
    description: str | None = None
    annotations: Annotations | None = None


class Tools(Struct, frozen=True, kw_only=True):
    """Which tools clients see. `filter` None admits all, an empty one none; `*` and `?` stand for any characters."""

    filter: tuple[str, ...] | None = None
    override: tuple[ToolOverride, ...] = ()

    def view(self) -> ToolView:
        return ToolView(
            allowed=None if self.filter is None else frozenset(self.filter),
            presented={o.tool: _presented(o) for o in self.override},
        )


def _presented(override: ToolOverride) -> Presented:
    annotations = override.annotations.given() if override.annotations is not None else {}
    return Presented(name=override.name, description=override.description, annotations=annotations)


ALL_TOOLS = Tools()


class Timeouts(Struct, frozen=True, kw_only=True):
    """In seconds."""

    connect: Seconds = 5.0
    call: Seconds = 300.0
    idle: Seconds = 60.0


class Limits(Struct, frozen=True, kw_only=True):
    """In bytes."""

    max_body: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 8 << 20


class Route(Struct, frozen=True, kw_only=True):
    """One MCP server as clients see it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    """namespace/name of the MCPServer."""
    listen: Listen
    upstream: Upstream
    tools: Tools = ALL_TOOLS
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    policy: Policy = NO_POLICY

    def __post_init__(self) -> None:
        if self.listen.mode == "sse" and self.upstream.transport == "streamable-http":
            raise ValueError("listen.mode sse goes with upstreams whose transport is stdio or sse")
        if self.upstream.transport == "sse" and self.listen.mode != "sse":
            raise ValueError("listen.mode: an upstream whose transport is sse is served as sse")


class RunConfig(Struct, frozen=True, kw_only=True):
    """One file."""

    version: Literal[1]
    routes: tuple[Route, ...]


class _RawRoutes(msgspec.Struct):
    routes: tuple[Any, ...] = ()


_decoder = msgspec.json.Decoder(RunConfig)
_raw_decoder = msgspec.json.Decoder(_RawRoutes)


def parse(data: bytes) -> tuple[RunConfig, dict[str, str]]:
    """A RunConfig and the hash of each route by name."""
    try:
        config = _decoder.decode(data)
        raw = _raw_decoder.decode(data)
        for route in config.routes:
            route.tools.view()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRunConfig(str(error)) from None
    names = [route.name for route in config.routes]
    if len(set(names)) != len(names):
        raise InvalidRunConfig("routes: two routes have the same name")
    return config, {route.name: _hash(value) for route, value in zip(config.routes, raw.routes, strict=True)}


def encode(config: RunConfig) -> bytes:
    """Canonical bytes: the same config always gives the same file."""
    return msgspec.json.format(msgspec.json.encode(config, order="deterministic"), indent=2) + b"\n"


def route_hash(route: Route) -> str:
    """What a proxy reports when it runs exactly this route."""
    return _hash(msgspec.json.decode(msgspec.json.encode(route)))


def _hash(value: Any) -> str:
    # over the JSON as written, not as understood: a newer reader's extra defaults must not change it
    return "sha256:" + hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def json_schema() -> dict[str, Any]:
    return msgspec.json.schema(RunConfig)
