"""Defaults that depend on the transport or on the image: computed, shown, and never written into a spec."""

from collections.abc import Mapping
from typing import Final, Literal, cast

from fairway.api.names import MCP_PATH, PROXY_PORT, SIDECAR_PORT

Wire = Literal["stdio", "sse", "streamable-http"]
"""How a server talks, without aliases."""

SSE_PATH: Final = "/sse"

_REQUESTS: Final[Mapping[str, Mapping[str, str]]] = {
    # a stdio server is one process for one conversation; the others hold connections of many clients
    "stdio": {"cpu": "10m", "memory": "32Mi"},
    "sse": {"cpu": "20m", "memory": "64Mi"},
    "streamable-http": {"cpu": "20m", "memory": "64Mi"},
}

PROXY_REQUESTS: Final[Mapping[str, str]] = {"cpu": "20m", "memory": "64Mi"}
PROXY_LIMITS: Final[Mapping[str, str]] = {"memory": "256Mi"}
"""A proxy is our own program, so that its limit could be measured."""


def requests(transport: str) -> Mapping[str, str]:
    """What a server's container asks of its node. There is no default limit: it would kill servers nobody measured."""
    return _REQUESTS[transport]


def transport(given: str | None, *, packaged: bool) -> Wire:
    """How a server talks: most packages are programs for somebody's terminal, everything else listens on a port."""
    if given is None:
        return "stdio" if packaged else "streamable-http"
    return "streamable-http" if given == "http" else cast(Wire, given)


def workload(given: str | None, transport: str) -> Literal["Deployment", "StatefulSet"]:
    """What runs the pods: the proxy attaches to a server on stdio by the pod's name, which must stay."""
    return "StatefulSet" if given == "StatefulSet" or transport == "stdio" else "Deployment"


def presented(given: str | None, transport: str) -> Literal["streamable-http", "sse"]:
    """How a proxy speaks with clients."""
    return "sse" if given == "sse" or (given is None and transport == "sse") else "streamable-http"


def proxy_port(given: int | None, mode: str) -> int:
    return given or (SIDECAR_PORT if mode == "sidecar" else PROXY_PORT)


def path(transport: str) -> str:
    """Where a server is spoken to over HTTP."""
    return SSE_PATH if transport == "sse" else MCP_PATH


def pull_policy(image: str) -> Literal["Always", "IfNotPresent"]:
    """What the kubelet itself would default to, said outright so that nothing differs from what is live."""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"
