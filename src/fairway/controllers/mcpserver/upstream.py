"""How the proxy reaches the server: the upstream of its RunConfig, and what the proxy may do for that. Pure."""

from typing import Any, Final

from fairway.api import runconfig
from fairway.controllers.mcpserver import shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs


def upstream(inputs: Inputs) -> runconfig.Upstream:
    tls = inputs.rules.upstream_tls if inputs.rules is not None else None
    return runconfig.Upstream(transport=inputs.transport, **_target(inputs), **_path(inputs), **_host(inputs), tls=tls)


def _host(inputs: Inputs) -> dict[str, Any]:
    host = inputs.server.spec.upstream_host
    return {"host_header": host} if host else {}


def _target(inputs: Inputs) -> dict[str, Any]:
    spec, namespace = inputs.server.spec, inputs.server.metadata.namespace
    if spec.remote is not None:
        return {"remote": runconfig.Remote(url=spec.remote.url, allow_private=spec.remote.allow_private)}
    if spec.service_ref is not None:
        service = spec.service_ref
        return {"service": runconfig.ServiceEndpoints(namespace=namespace, name=service.name, port=service.port)}
    if shape.attached(inputs):
        return {"attach": runconfig.Attach(namespace=namespace, pod=pod_name(inputs))}
    if shape.sidecar(inputs):
        return {"addresses": (f"127.0.0.1:{spec.port}",)}
    endpoints = child_names(inputs).endpoints_service
    return {"service": runconfig.ServiceEndpoints(namespace=namespace, name=endpoints, port=spec.port)}


def _path(inputs: Inputs) -> dict[str, Any]:
    if inputs.server.spec.remote is not None or inputs.transport == "stdio":
        return {}
    path = inputs.path
    # the very object, so that it is left out where it is the contract's own default, and no hash changes
    return {"path": runconfig.DEFAULT_PATH if path == runconfig.DEFAULT_PATH else path}


def pod_name(inputs: Inputs) -> str:
    """Of the one pod that the proxy attaches to."""
    return f"{child_names(inputs).workload}-0"


def all_rights(inputs: Inputs) -> list[Object]:
    """Those of both ways to a server of ours: for as long as some proxies go one and some the other."""
    return [_ENDPOINTS, *_attaching(pod_name(inputs))]


def rights(inputs: Inputs) -> list[Object]:
    """What the proxy may do in its namespace: find the server, and nothing else. Without any, it gets no token."""
    if not shape.own_proxy(inputs):
        return []
    if shape.attached(inputs):
        return _attaching(pod_name(inputs))
    if shape.listens(inputs) or inputs.server.spec.service_ref is not None:
        return [_ENDPOINTS]
    return []


_ENDPOINTS: Final = {
    "apiGroups": ["discovery.k8s.io"],
    "resources": ["endpointslices"],
    "verbs": ["get", "list", "watch"],
}


def _attaching(pod: str) -> list[Object]:
    return [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": [pod], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/attach"], "resourceNames": [pod], "verbs": ["create", "get"]},
    ]
