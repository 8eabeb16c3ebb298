"""How a server is reached: its Service, an Ingress, a route of the Gateway API."""

from typing import Annotated, Final, Literal

from pydantic import Field

from fairway.api.container import HttpPath, Port
from fairway.api.duration import Duration
from fairway.api.meta import ObjectName
from fairway.api.podtemplate import Words
from fairway.api.schema import Cel, ListSet, Model

HOST: Final = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
Host = Annotated[str, Field(max_length=253, pattern=HOST)]


class Service(Model):
    """The Service that clients dial."""

    cel_rules = (
        Cel(
            "!has(self.extraPorts) || !self.extraPorts.exists(p, p == self.port)",
            "extraPorts: that is already service.port",
            lambda service: service.port not in (service.extra_ports or ()),
        ),
    )

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Where it is published: inside the cluster, on every node, or on an address of its own."""
    port: Port = 8080
    """The port that clients dial."""
    extra_ports: Annotated[list[Port], ListSet(), Field(max_length=16)] | None = None
    """More ports that lead to the same place, for clients that expect another one."""
    session_affinity: Literal["None", "ClientIP"] = "None"
    """ClientIP sends each client address to one pod. Not needed for sessions: any proxy serves any of them."""
    annotations: Words | None = None
    """Annotations of the Service, as cloud load balancers read them."""


class IngressTls(Model):
    """TLS at the ingress."""

    secret_name: ObjectName | None = None
    """Secret with certificate and key; without one the ingress controller uses its default certificate."""


class Ingress(Model):
    """Publishes the server through an ingress controller."""

    enabled: bool = False
    """Whether there is one."""
    class_name: Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = None
    """The ingress class; default: the operator's, else the cluster's."""
    host: Host | None = None
    """Host name; without one (and none of the operator's) the path alone tells servers apart."""
    path: HttpPath | None = None
    """Path; default: /PREFIX/mcp with a publicPathPrefix, /mcp with a host, /NAMESPACE/NAME/mcp without."""
    public_path_prefix: (
        Annotated[str, Field(max_length=253, pattern=r"^/*[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*/*$")] | None
    ) = None
    """First part of the path, where `path` is not given."""
    readiness: Literal["strict", "permissive"] | None = None
    """strict: ready once the controller has published an address (the default, unless the operator says otherwise);
    permissive: once the Ingress is there."""
    annotations: Words | None = None
    """Annotations of the Ingress; they win over those that Fairway sets for the class."""
    tls: IngressTls | None = None
    """Serve over TLS."""


class ParentReference(Model):
    """A Gateway, or one listener of it."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: ObjectName | None = None
    """Its namespace; default: the server's."""
    section_name: ObjectName | None = None
    """Name of the listener."""
    port: Port | None = None
    """Port of the listener."""


class GatewayRoute(Model):
    """Publishes the server through the Gateway API."""

    enabled: bool = False
    """Whether there is an HTTPRoute."""
    parent_refs: Annotated[list[ParentReference], Field(max_length=16)] | None = None
    """The Gateways; default: the operator's."""
    hostnames: Annotated[list[Host], ListSet(), Field(max_length=16)] | None = None
    """Host names; default: those of the listener."""
    path: HttpPath | None = None
    """Path; default: /mcp with a hostname, /NAMESPACE/NAME/mcp without."""
    timeout: Duration | None = None
    """Longest time for one request, such as 60s; default: none, since streams of events have no end."""
