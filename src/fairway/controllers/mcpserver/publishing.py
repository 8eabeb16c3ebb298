"""How a server is published beyond its cluster: Ingress, HTTPRoute, and the URLs that come of it. Pure.

The proxy itself answers at the published path, so that no ingress controller has to rewrite anything.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fairway.api import names
from fairway.controllers.mcpserver import children, shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings
from fairway.kube.resource import HTTP_ROUTE

Obj = Mapping[str, Any]

_SHOWN_NODES = 3


def ingress_path(inputs: Inputs) -> str:
    """An explicit path wins over a prefix, and that over what depends on whether there is a host."""
    ingress = inputs.server.spec.ingress
    if ingress.path:
        return ingress.path
    if ingress.public_path_prefix:
        return f"/{ingress.public_path_prefix.strip('/')}{names.MCP_PATH}"
    return names.MCP_PATH if ingress.host else _own_path(inputs)


def route_path(inputs: Inputs) -> str:
    route = inputs.server.spec.gateway_route
    return route.path or (names.MCP_PATH if route.hostnames else _own_path(inputs))


def paths(inputs: Inputs) -> tuple[str, ...]:
    """Where a proxy answers besides its own path."""
    spec = inputs.server.spec
    found = [ingress_path(inputs)] if spec.ingress.enabled else []
    found += [route_path(inputs)] if spec.gateway_route.enabled else []
    return tuple(sorted({*found} - {names.MCP_PATH}))


def problem(inputs: Inputs, settings: Settings) -> str | None:
    """What is asked for and cannot be made."""
    spec = inputs.server.spec
    if spec.gateway_route.enabled and not (spec.gateway_route.parent_refs or settings.gateway) and settings.publishes:
        return "spec.gatewayRoute.parentRefs: name a Gateway; this operator has no default one"
    return None


def objects(inputs: Inputs, settings: Settings) -> list[Object]:
    """Ingress and HTTPRoute, as far as they are wanted and this cluster knows them."""
    spec = inputs.server.spec
    found = [_ingress(inputs, settings)] if spec.ingress.enabled else []
    if spec.gateway_route.enabled and HTTP_ROUTE in inputs.served:
        found.append(_http_route(inputs, settings))
    return found


def _own_path(inputs: Inputs) -> str:
    metadata = inputs.server.metadata
    return f"/{metadata.namespace}/{metadata.name}{names.MCP_PATH}"


def ingress_host(inputs: Inputs, settings: Settings) -> str:
    ingress = inputs.server.spec.ingress
    if ingress.host or ingress.path or ingress.public_path_prefix:
        return ingress.host or ""
    return settings.ingress_host


def _ingress(inputs: Inputs, settings: Settings) -> Object:
    wanted = inputs.server.spec.ingress
    host, class_name = ingress_host(inputs, settings), wanted.class_name or settings.ingress_class
    backend = {"service": {"name": child_names(inputs).service, "port": {"name": names.PORT_MCP}}}
    rule = {"http": {"paths": [{"path": ingress_path(inputs), "pathType": "Prefix", "backend": backend}]}}
    metadata = children.metadata(inputs, child_names(inputs).service, shape.front(inputs))
    annotations = {**_annotations(class_name, settings, tls=wanted.tls is not None), **(wanted.annotations or {})}
    if annotations:
        metadata["annotations"] = annotations
    tls: Object = {}
    if wanted.tls is not None:
        tls = {**({"hosts": [host]} if host else {})}
        if wanted.tls.secret_name:
            tls["secretName"] = wanted.tls.secret_name
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": {
            **({"ingressClassName": class_name} if class_name else {}),
            "rules": [{**({"host": host} if host else {}), **rule}],
            **({"tls": [tls]} if wanted.tls is not None and tls else {}),
        },
    }


def _annotations(class_name: str, settings: Settings, *, tls: bool) -> dict[str, str]:
    """What a class needs for MCP: plain HTTP unless TLS is asked for, and streams that are passed on as they come."""
    if "traefik" in class_name:
        prefix = "traefik.ingress.kubernetes.io/router"
        found = {f"{prefix}.entrypoints": settings.ingress_entrypoints}
        return found | ({f"{prefix}.tls": "true"} if settings.ingress_tls or tls else {})
    if "nginx" in class_name:
        prefix = "nginx.ingress.kubernetes.io"
        return {
            f"{prefix}/proxy-buffering": "off",
            f"{prefix}/proxy-read-timeout": "3600",
            **({} if settings.ingress_tls or tls else {f"{prefix}/ssl-redirect": "false"}),
        }
    return {}


def _http_route(inputs: Inputs, settings: Settings) -> Object:
    wanted = inputs.server.spec.gateway_route
    parents = [parent.to_object() for parent in wanted.parent_refs or ()]
    if not parents:
        namespace, _, name = settings.gateway.rpartition("/")
        parents = [{"name": name, **({"namespace": namespace} if namespace else {})}]
    spec: Object = {
        "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", **parent} for parent in parents],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": route_path(inputs)}}],
                "backendRefs": [
                    {
                        "kind": "Service",
                        "name": child_names(inputs).service,
                        "port": inputs.server.spec.service.port,
                        "weight": 1,
                    }
                ],
                **({"timeouts": {"request": wanted.timeout}} if wanted.timeout else {}),
            }
        ],
    }
    if wanted.hostnames:
        spec["hostnames"] = list(wanted.hostnames)
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": children.metadata(inputs, child_names(inputs).service, shape.front(inputs)),
        "spec": spec,
    }


def external_urls(
    inputs: Inputs, *, service: Obj | None, ingress: Obj | None, http_route: Obj | None, nodes: list[str]
) -> list[str]:
    """Where the server is really published, by what each object says of itself; `nodes` are addresses of some."""
    return list(
        dict.fromkeys(
            [*_of_service(inputs, service, nodes), *_of_ingress(inputs, ingress), *_of_route(inputs, http_route)]
        )
    )


def _of_service(inputs: Inputs, service: Obj | None, nodes: list[str]) -> Iterator[str]:
    if service is None:
        return
    path = inputs.client_path
    kind = service["spec"].get("type")
    if kind == "LoadBalancer":
        for host in load_balancer_hosts(service):
            yield f"http://{_bracketed(host)}:{inputs.server.spec.service.port}{path}"
    if kind in ("NodePort", "LoadBalancer"):
        ports = service["spec"].get("ports") or ()
        number = next((p.get("nodePort") for p in ports if p.get("name") == names.PORT_MCP), None)
        if number and kind == "NodePort":
            yield from (f"http://{_bracketed(node)}:{number}{path}" for node in nodes[:_SHOWN_NODES])


def load_balancer_hosts(obj: Obj) -> list[str]:
    """The addresses that a load balancer or an ingress controller has written into the object's status."""
    status = obj.get("status") or {}
    entries = (status.get("loadBalancer") or {}).get("ingress") or ()
    return [host for entry in entries if (host := entry.get("hostname") or entry.get("ip"))]


def _of_ingress(inputs: Inputs, ingress: Obj | None) -> Iterator[str]:
    if ingress is None:
        return
    published = load_balancer_hosts(ingress)
    host = next((rule.get("host") for rule in ingress["spec"].get("rules") or ()), None)
    scheme = "https" if ingress["spec"].get("tls") else "http"
    for name in [host] if host and published else published:
        yield f"{scheme}://{_bracketed(name)}{ingress_path(inputs)}"


def _of_route(inputs: Inputs, http_route: Obj | None) -> Iterator[str]:
    if http_route is None or not accepted(http_route):
        return
    # a listener's own scheme and port are the Gateway's business; a host name is all that the route knows
    yield from (f"https://{host}{route_path(inputs)}" for host in http_route["spec"].get("hostnames") or ())


def accepted(http_route: Obj) -> bool:
    """Whether a gateway has taken the route up."""
    parents = (http_route.get("status") or {}).get("parents") or ()
    return any(
        condition.get("type") == "Accepted" and condition.get("status") == "True"
        for parent in parents
        for condition in parent.get("conditions") or ()
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
