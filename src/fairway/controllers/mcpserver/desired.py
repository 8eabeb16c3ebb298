"""The objects that one MCPServer stands for. Pure: the same inputs always give the same objects."""

from fairway.api.names import ChildNames
from fairway.controllers.mcpserver import monitoring, network, proxy, publishing, scaling, shape, upstream, workload
from fairway.controllers.mcpserver.children import Object
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings
from fairway.kube.resource import DEPLOYMENT, STATEFUL_SET, ObjectRef


def desired(inputs: Inputs, settings: Settings) -> list[Object]:
    """Every object; what a pod mounts or runs as comes before the pod."""
    objects = [
        *workload.service_accounts(inputs),
        *workload.files(inputs),
        network.client_service(inputs, settings),
        *network.policies(inputs, settings),
    ]
    if shape.listens(inputs) and (shape.own_proxy(inputs) or shape.workload(inputs) == STATEFUL_SET):
        objects.append(network.endpoints_service(inputs))
    if shape.has_proxy(inputs):
        objects.append(proxy.runconfig_map(inputs))
    if shape.own_proxy(inputs):
        objects += [
            proxy.service_account(inputs),
            *([proxy.role(inputs), proxy.role_binding(inputs)] if upstream.rights(inputs) else []),
            proxy.deployment(inputs, settings),
        ]
    if inputs.unmet is None:
        objects += workload.objects(inputs, settings)
    if not settings.publishes:
        return objects
    return [
        *objects,
        *scaling.objects(inputs),
        *publishing.objects(inputs, settings),
        *monitoring.objects(inputs),
    ]


def kept(inputs: Inputs) -> frozenset[ObjectRef]:
    """What stays as it is, since it cannot be decided now."""
    if inputs.unmet is None:
        return frozenset()
    metadata = inputs.server.metadata
    name = ChildNames(metadata.name).workload
    return frozenset(kind.ref(metadata.namespace, name) for kind in (DEPLOYMENT, STATEFUL_SET))
