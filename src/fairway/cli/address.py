"""Where a server that a person named is reached from this machine."""

from typing import TYPE_CHECKING

from fairway.cli.mistake import Mistake

if TYPE_CHECKING:
    from fairway.cli.places import Place


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


def _port(obj: dict[str, object]) -> int:
    spec = obj.get("spec")
    service = spec.get("service") if isinstance(spec, dict) else None
    return int(service.get("port", 8080)) if isinstance(service, dict) else 8080
