"""The objects that one MCPServer stands for. Pure: the same inputs always give the same objects."""

from fairway.api.names import ChildNames
from fairway.controllers.mcpserver import monitoring, network, proxy, publishing, scaling, workload
from fairway.controllers.mcpserver.children import Object
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings
from fairway.kube.resource import DEPLOYMENT, ObjectRef


def desired(inputs: Inputs, settings: Settings) -> list[Object]:
    """Every object; what a pod mounts or runs as comes before the pod."""
    objects = [
        *workload.service_accounts(inputs),
        *workload.files(inputs),
        network.client_service(inputs, settings),
        *network.policies(inputs, settings, proxied=has_proxy(inputs)),
    ]
    if has_proxy(inputs):
        objects += [
            network.endpoints_service(inputs),
            proxy.runconfig_map(inputs),
            proxy.service_account(inputs),
            proxy.role(inputs),
            proxy.role_binding(inputs),
            proxy.deployment(inputs, settings),
        ]
    if inputs.unmet is None:
        objects.append(workload.deployment(inputs, settings))
    if not settings.publishes:
        return objects
    return [
        *objects,
        *scaling.objects(inputs, proxied=has_proxy(inputs)),
        *publishing.objects(inputs, settings),
        *monitoring.objects(inputs, proxied=has_proxy(inputs)),
    ]


def kept(inputs: Inputs) -> frozenset[ObjectRef]:
    """What stays as it is, since it cannot be decided now."""
    if inputs.unmet is None:
        return frozenset()
    metadata = inputs.server.metadata
    return frozenset({DEPLOYMENT.ref(metadata.namespace, ChildNames(metadata.name).workload)})


def has_proxy(inputs: Inputs) -> bool:
    return inputs.server.spec.proxy.mode == "standalone"
