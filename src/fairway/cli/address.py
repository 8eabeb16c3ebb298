"""Where a server that a person named is reached from this machine, and how."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairway.cli.mistake import Mistake

if TYPE_CHECKING:
    from fairway.cli.places import Place
    from fairway.cli.where import Where
    from fairway.mcp.http import HttpClient


@dataclass(frozen=True, slots=True)
class Way:
    """How to ask a server: its URL, and what whoever is on the way there wants to see."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    server_name: str = ""

    def client(self, *, timeout: float) -> "HttpClient":
        from fairway.mcp.http import HttpClient, Limits

        return HttpClient(Limits(answer=timeout), tls=self.tls, server_name=self.server_name)


async def way_to(where: "Where", server: str, *, anonymous: bool = False) -> Way:
    """A URL as it is, a server of this machine with its token, one of a cluster where it is published, or else through
    the API server, with the caller's rights. Raises Mistake where there is none."""
    from fairway.cli.servers import UnknownServer, headers_of, url_of

    if is_url(server):
        return Way(server)
    if where.means_local:
        try:
            own = {} if anonymous else headers_of(server, where.state_dir)
            return Way(url_of(server, where.state_dir), own)
        except UnknownServer as unknown:
            raise Mistake(str(unknown)) from None
    from fairway.cli.found import the_object

    async with where.place() as place:
        kind, obj = await the_object(place, server)
        if kind.kind != "MCPServer":
            raise Mistake(f"a {kind.kind} has no address; name an MCPServer")
        published = (obj.get("status") or {}).get("externalURLs") or ()
        return Way(str(published[0])) if published else await _through_api_server(place, obj)


async def _through_api_server(place: "Place", obj: Mapping[str, Any]) -> Way:
    """The API server passes requests on to a Service, our Authorization apart: no token gets through."""
    from fairway.cli.places.cluster import Cluster

    assert isinstance(place, Cluster)
    name = obj["metadata"]["name"]
    if obj["spec"].get("auth"):
        raise Mistake(
            f"{name} asks for a token, and none gets through the API server; "
            f"forward a port and give the URL: kubectl port-forward service/{name} 8080:{_port(obj)}"
        )
    url = str((obj.get("status") or {}).get("url") or "")
    if not url:
        raise Mistake(f"{name} has no address yet; see fairway describe {name}")
    scheme, path = url.partition("://")[0], "/" + url.split("/", 3)[3]
    server, headers, tls, server_name = await place.as_http()
    service = f"{scheme}:{name}:{_port(obj)}"
    return Way(
        f"{server}/api/v1/namespaces/{obj['metadata']['namespace']}/services/{service}/proxy{path}",
        headers,
        tls,
        server_name,
    )


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


async def address_of(place: "Place", server: str) -> str:
    """The URL of an MCPServer for a client on this machine. Raises Mistake where there is none."""
    from fairway.cli.found import the_object

    kind, obj = await the_object(place, server)
    name = obj["metadata"]["name"]
    if kind.kind != "MCPServer":
        raise Mistake(f"a {kind.kind} has no address; name an MCPServer")
    status = obj.get("status") or {}
    published = status.get("externalURLs") or ()
    if place.is_local and status.get("url"):
        return str(status["url"])
    if published:
        return str(published[0])
    if place.is_local:
        raise Mistake(f"{name} has no address yet; see fairway describe {name}")
    raise Mistake(
        f"{name} is reached inside the cluster only; publish it (spec.ingress, spec.gatewayRoute, spec.service.type), "
        f"or forward a port and give the URL: kubectl port-forward service/{name} 8080:{_port(obj)}"
    )


def _port(obj: Mapping[str, Any]) -> int:
    spec = obj.get("spec")
    service = spec.get("service") if isinstance(spec, dict) else None
    return int(service.get("port", 8080)) if isinstance(service, dict) else 8080
