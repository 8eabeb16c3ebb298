"""How an MCP server is reached: Services, and the policy that keeps everybody but the proxy out."""

from fairway.api import names
from fairway.api.mcpserver import ProxyMode
from fairway.controllers.mcpserver import children, shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.permissions import egress
from fairway.controllers.settings import Settings


def client_service(inputs: Inputs, settings: Settings, *, front: tuple[str, str] | None = None) -> Object:
    """What clients dial: the proxy, or the server itself where there is none. `front` goes before what is wanted."""
    component, target = front or (shape.front(inputs), shape.front_port(inputs))
    wanted = inputs.server.spec.service
    metadata = children.metadata(inputs, child_names(inputs).service, shape.front(inputs))
    if wanted.annotations:
        metadata["annotations"] = dict(wanted.annotations)
    extra = [_port(f"{names.PORT_MCP}-{port}", port, target) for port in sorted(wanted.extra_ports or ())]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": wanted.type if settings.publishes else "ClusterIP",
            "selector": children.selector(inputs, component),
            **({"sessionAffinity": wanted.session_affinity} if wanted.session_affinity != "None" else {}),
            "ports": [_port(names.PORT_MCP, wanted.port, target), *extra],
        },
    }


def _port(name: str, port: int, target: str) -> Object:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP", "appProtocol": "http"}


def endpoints_service(inputs: Inputs) -> Object:
    """Headless: through it the proxy learns of each single server pod, and pods of a StatefulSet have names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": children.metadata(inputs, child_names(inputs).endpoints_service, names.COMPONENT_SERVER),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            **({"publishNotReadyAddresses": True} if _handshake_decides(inputs) else {}),
            "selector": children.selector(inputs, names.COMPONENT_SERVER),
            "ports": [
                {
                    "name": names.PORT_MCP,
                    "port": inputs.server.spec.port,
                    "targetPort": names.PORT_MCP,
                    "protocol": "TCP",
                }
            ],
        },
    }


def _handshake_decides(inputs: Inputs) -> bool:
    """Whether nobody wants more of a pod than that it answers: the proxy asks itself, and need not wait for a probe."""
    spec = inputs.server.spec
    probed = spec.probes is not None and spec.probes.readiness is not None
    return shape.own_proxy(inputs) and not probed and spec.pod_template is None


def policies(inputs: Inputs, settings: Settings, *, open_to: frozenset[ProxyMode] = frozenset()) -> list[Object]:
    """Who may reach the pods that run the server, and whom those may reach; none where nothing is decided.

    `open_to` are ways to the server that are still in use, beside the wanted one.
    """
    outward = egress(inputs, settings).rules
    inward = _inward(inputs, open_to)
    if inward is None and outward is None:
        return []
    spec: Object = {
        "podSelector": {"matchLabels": children.selector(inputs, names.COMPONENT_SERVER)},
        "policyTypes": [*(["Ingress"] if inward is not None else []), *(["Egress"] if outward is not None else [])],
    }
    if inward:
        spec["ingress"] = inward
    if outward:
        spec["egress"] = list(outward)
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": children.metadata(inputs, child_names(inputs).network_policy, names.COMPONENT_SERVER),
            "spec": spec,
        }
    ]


def _inward(inputs: Inputs, open_to: frozenset[ProxyMode]) -> list[Object] | None:
    """Whom the server's pods let in, and to which ports; None where that is everybody."""
    if shape.workload(inputs) is None or not shape.has_proxy(inputs) or "none" in open_to:
        return None
    rules: list[Object] = []
    # by name: while a port changes, pods of the old and the new one serve side by side
    if shape.sidecar(inputs) or "sidecar" in open_to:
        rules.append({"ports": [{"protocol": "TCP", "port": name} for name in (names.PORT_PROXY, names.PORT_ADMIN)]})
    if (shape.own_proxy(inputs) and shape.listens(inputs)) or "standalone" in open_to:
        proxy = {"podSelector": {"matchLabels": children.selector(inputs, names.COMPONENT_PROXY)}}
        rules.append({"from": [proxy], "ports": [{"protocol": "TCP", "port": names.PORT_MCP}]})
    return rules
