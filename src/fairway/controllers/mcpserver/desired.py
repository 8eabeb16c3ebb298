"""The objects that one MCPServer stands for. Pure: the same inputs always give the same objects."""

import secrets

from fairway.api.names import ChildNames
from fairway.controllers.mcpserver import monitoring, network, proxy, publishing, scaling, shape, upstream, workload
from fairway.controllers.mcpserver.children import Object
from fairway.controllers.mcpserver.handover import NO_HANDOVER, Handover
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SECRET, STATEFUL_SET, ObjectRef


def desired(inputs: Inputs, settings: Settings, handover: Handover = NO_HANDOVER) -> list[Object]:
    """Every object; what a pod mounts or runs as comes before the pod."""
    objects = [
        *workload.service_accounts(inputs),
        *workload.files(inputs),
        network.client_service(inputs, settings, front=handover.front),
        *network.policies(inputs, settings, open_to=handover.open_to),
    ]
    if shape.listens(inputs) and (shape.own_proxy(inputs) or shape.workload(inputs) == STATEFUL_SET):
        objects.append(network.endpoints_service(inputs))
    ruled = inputs.rules is not None
    if shape.has_proxy(inputs) and ruled:
        objects.append(proxy.runconfig_map(inputs))
    if shape.own_proxy(inputs):
        objects += [
            proxy.service_account(inputs),
            *(
                [proxy.role(inputs, old_proxies=handover.old_proxies), proxy.role_binding(inputs)]
                if upstream.rights(inputs)
                else []
            ),
            *([proxy.deployment(inputs, settings)] if ruled and not handover.holds_proxy else []),
        ]
    if not _workload_is_open(inputs) and not handover.holds_workload:
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
    namespace, child = inputs.server.metadata.namespace, ChildNames(inputs.server.metadata.name)
    found = {SECRET.ref(namespace, child.seal)}  # other keys would end all sessions
    if _workload_is_open(inputs):
        found |= {kind.ref(namespace, child.workload) for kind in (DEPLOYMENT, STATEFUL_SET)}
    if shape.has_proxy(inputs) and inputs.rules is None:
        found |= {CONFIG_MAP.ref(namespace, shape.runconfig_name(inputs)), DEPLOYMENT.ref(namespace, child.proxy)}
    return frozenset(found)


def _workload_is_open(inputs: Inputs) -> bool:
    """Whether nobody can say now what the server's pods are to be."""
    return inputs.unmet is not None or (shape.sidecar(inputs) and inputs.rules is None)


def made_once(inputs: Inputs) -> list[Object]:
    """What is made where there is none, and never changed."""
    return [proxy.seal(inputs, secrets.token_bytes(32))] if shape.has_proxy(inputs) else []
