"""How an MCP server is reached: Services, and the policy that keeps everybody but the proxy out."""

from fairway.api import names
from fairway.controllers.mcpserver import children
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.permissions import egress
from fairway.controllers.settings import Settings


def client_service(inputs: Inputs, settings: Settings) -> Object:
    """What clients dial: the proxy, or the server itself where there is none."""
    component = names.COMPONENT_SERVER if inputs.server.spec.proxy.mode == "none" else names.COMPONENT_PROXY
    wanted = inputs.server.spec.service
    metadata = children.metadata(inputs, child_names(inputs).service, component)
    if wanted.annotations:
        metadata["annotations"] = dict(wanted.annotations)
    extra = [_port(f"{names.PORT_MCP}-{port}", port) for port in sorted(wanted.extra_ports or ())]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": wanted.type if settings.publishes else "ClusterIP",
            "selector": children.selector(inputs, component),
            **({"sessionAffinity": wanted.session_affinity} if wanted.session_affinity != "None" else {}),
            "ports": [_port(names.PORT_MCP, wanted.port), *extra],
        },
    }


def _port(name: str, port: int) -> Object:
    return {"name": name, "port": port, "targetPort": names.PORT_MCP, "protocol": "TCP", "appProtocol": "http"}


def endpoints_service(inputs: Inputs) -> Object:
    """Headless: through it the proxy learns of each single server pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": children.metadata(inputs, child_names(inputs).endpoints_service, names.COMPONENT_SERVER),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
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


def policies(inputs: Inputs, settings: Settings, *, proxied: bool) -> list[Object]:
    """Who may reach the server's pods, and whom they may reach; none where nothing is decided about either."""
    outward = egress(inputs, settings).rules
    if not proxied and outward is None:
        return []
    policy = _only_the_proxy(inputs) if proxied else _policy(inputs)
    if outward is not None:
        policy["spec"]["policyTypes"] = [*policy["spec"].get("policyTypes", ()), "Egress"]
        if outward:
            policy["spec"]["egress"] = list(outward)
    return [policy]


def _policy(inputs: Inputs) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": children.metadata(inputs, child_names(inputs).network_policy, names.COMPONENT_SERVER),
        "spec": {"podSelector": {"matchLabels": children.selector(inputs, names.COMPONENT_SERVER)}},
    }


def _only_the_proxy(inputs: Inputs) -> Object:
    """Admits the proxy to the server's port, and nobody else to any port of the server."""
    policy = _policy(inputs)
    policy["spec"] |= {
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": children.selector(inputs, names.COMPONENT_PROXY)}}],
                # by name: while the port changes, pods of the old and the new one serve side by side
                "ports": [{"protocol": "TCP", "port": names.PORT_MCP}],
            }
        ],
    }
    return policy
