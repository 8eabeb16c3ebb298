"""What was learned by asking a proxy or a server, and whether it is time to ask again. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fairway.api import names
from fairway.api.proxystatus import Config, ConfigState, EndpointState, Route
from fairway.controllers.mcpserver import pods

Obj = Mapping[str, Any]

_CONFIG_OK = Config(state=ConfigState.OK)


@dataclass(frozen=True, slots=True)
class Target:
    """One pod to ask, and all that makes an earlier answer stale."""

    namespace: str
    server: str
    pod: str
    uid: str
    via: Literal["proxy", "handshake"]
    """Ask the proxy for its status, or shake hands with the server itself."""
    address: str
    expected: str
    """The route hash that a proxy should report; the handshake has none."""
    ready: bool
    restarts: int
    backends: tuple[tuple[str, bool, int], ...] = ()
    """uid, readiness and restarts of the server pods: a change there changes the proxy's answer."""
    url: str = ""
    """Where clients reach a server without proxy: what a handshake asks for, wherever the pod itself is."""
    legacy: bool = False
    """Whether the handshake is that of the old HTTP+SSE transport."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest answer of one pod."""

    target: Target
    route: Route | None = None
    config: Config = _CONFIG_OK
    error: str = ""

    @property
    def hash_matches(self) -> bool:
        return self.route is not None and (self.target.via == "handshake" or self.route.hash == self.target.expected)

    @property
    def settled(self) -> bool:
        """Whether nothing in the answer is still on its way."""
        return (
            self.route is not None
            and self.hash_matches
            and self.route.ready
            and self.route.tools is not None
            and bool(self.route.endpoints)
            and all(e.state is EndpointState.OK for e in self.route.endpoints)
            and sum(ready for _, ready, _ in self.target.backends) <= len(self.route.endpoints)
        )


def has_proxy(pod: Obj) -> bool:
    """Whether a proxy runs in this pod."""
    return any(container["name"] == names.CONTAINER_PROXY for container in pod["spec"]["containers"])


def address_of(pod: Obj, port_name: str) -> str:
    """Where a named port of a pod is dialled: on the node where the pod has a host port, else on the pod itself."""
    status = pod.get("status") or {}
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == port_name:
                if port.get("hostPort"):
                    return _join(status.get("hostIP", ""), port["hostPort"])
                return _join(status.get("podIP", ""), port["containerPort"])
    return ""


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def proxy_target(pod: Obj, *, server: str, expected: str, backends: tuple[Obj, ...]) -> Target:
    return Target(
        namespace=pod["metadata"]["namespace"],
        server=server,
        pod=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        via="proxy",
        address=address_of(pod, names.PORT_ADMIN),
        expected=expected,
        ready=pods.is_ready(pod),
        restarts=pods.restarts(pod),
        backends=tuple((b["metadata"]["uid"], pods.is_ready(b), pods.restarts(b)) for b in backends),
    )


def server_target(pod: Obj, *, server: str, url: str, transport: str) -> Target:
    return Target(
        namespace=pod["metadata"]["namespace"],
        server=server,
        pod=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        via="handshake",
        address=address_of(pod, names.PORT_MCP),
        expected="",
        url=url,
        legacy=transport == "sse",
        ready=pods.is_ready(pod),
        restarts=pods.restarts(pod),
    )
