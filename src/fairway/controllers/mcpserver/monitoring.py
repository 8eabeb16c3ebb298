"""Tells Prometheus where a proxy's metrics are, on clusters where its operator runs. Pure."""

from fairway.api import names
from fairway.controllers.mcpserver import children, shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.kube.resource import SERVICE_MONITOR


def objects(inputs: Inputs) -> list[Object]:
    if not shape.has_proxy(inputs) or SERVICE_MONITOR not in inputs.served:
        return []
    name = child_names(inputs).proxy
    return [
        {
            "apiVersion": SERVICE_MONITOR.api_version,
            "kind": SERVICE_MONITOR.kind,
            "metadata": children.metadata(inputs, name, names.COMPONENT_PROXY),
            "spec": {
                "selector": {"matchLabels": children.selector(inputs, shape.front(inputs))},
                # a port of the pod that is in no Service: metrics are not for clients
                "endpoints": [{"targetPort": names.ADMIN_PORT, "path": "/metrics"}],
            },
        }
    ]
