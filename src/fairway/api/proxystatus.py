"""Proxy status v1: what a proxy tells the control plane on `GET /v1/status` of its admin port."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

PATH = "/v1/status"


class EndpointState(StrEnum):
    """What the last handshake with one endpoint gave."""

    PENDING = "pending"
    OK = "ok"
    UNREACHABLE = "unreachable"
    """Nothing listens, or it does not answer in time."""
    FAILED = "failed"
    """It speaks MCP, or might, but the handshake failed."""
    NOT_MCP = "not-mcp"
    """It answers, and what it answers is not MCP."""
    HOST_REFUSED = "host-refused"
    """It speaks MCP, and refuses the Host that it is addressed by."""


class ConfigState(StrEnum):
    """What became of the RunConfig file."""

    OK = "ok"
    MISSING = "missing"
    INVALID = "invalid"
    """The newest file cannot be used; the last good one stays in force."""


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """Base of every part of the contract. Readers skip what they do not know."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One pod or address behind a route."""

    address: str
    pod: str = ""
    uid: str = ""
    state: EndpointState = EndpointState.PENDING
    message: str = ""


class Server(Struct, frozen=True, kw_only=True):
    """What the server said of itself."""

    name: str
    version: str = ""
    protocol_versions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


class Tools(Struct, frozen=True, kw_only=True):
    """The tools as clients see them, after filter and overrides."""

    count: int
    names: tuple[str, ...] = ()
    digest: str = ""
    bytes: int = 0
    unknown: tuple[str, ...] = ()
    """Names in the tool configuration that the server does not offer."""
    shadowed: tuple[str, ...] = ()
    """Tools of the server that are hidden since a rename took their name."""
    nearest: dict[str, str] = {}
    """For an unknown name, the tool of the server that it may have been meant for."""
    complete: bool = True
    error: str = ""


class Offered(Struct, frozen=True, kw_only=True):
    """Resources or prompts, as the server lists them."""

    count: int
    names: tuple[str, ...] = ()
    """The first 100."""
    complete: bool = True


class Route(Struct, frozen=True, kw_only=True):
    """One MCP server as this proxy serves it."""

    name: str
    hash: str
    """Of the settings that are in force; empty as long as none could be put into force."""
    ready: bool
    """Whether a handshake has ever succeeded since this route was loaded, and a policy is in force."""
    error: str = ""
    """Why the newest settings, or the newest policy files, are not in force."""
    listen: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    server: Server | None = None
    tools: Tools | None = None
    resources: Offered | None = None
    """None if the server has none, or does not list them."""
    prompts: Offered | None = None


class Config(Struct, frozen=True, kw_only=True):
    """The state of the RunConfig files."""

    state: ConfigState
    error: str = ""


class ProxyStatus(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    version: Literal[1]
    proxy_version: str
    config: Config
    routes: tuple[Route, ...] = ()

    def route(self, name: str) -> Route | None:
        return next((r for r in self.routes if r.name == name), None)


_decoder = msgspec.json.Decoder(ProxyStatus)


def parse(data: bytes) -> ProxyStatus:
    """Raises msgspec.MsgspecError (a ValueError) when this is no proxy status."""
    return _decoder.decode(data)


def encode(status: ProxyStatus) -> bytes:
    return msgspec.json.encode(status)


def json_schema() -> dict[str, Any]:
    return msgspec.json.schema(ProxyStatus)
