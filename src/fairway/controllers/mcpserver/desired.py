"""The objects that one MCPServer stands for. Pure: the same inputs always give the same objects."""

from fairway.controllers.mcpserver import network, proxy, workload
from fairway.controllers.mcpserver.children import Object
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings


def desired(inputs: Inputs, settings: Settings) -> list[Object]:
    """Every object; what a pod mounts or runs as comes before the pod."""
    objects = [
        workload.service_account(inputs),
        *workload.tools_source(inputs),
        network.client_service(inputs),
    ]
    if has_proxy(inputs):
        objects += [
            network.endpoints_service(inputs),
            network.only_the_proxy(inputs),
            proxy.runconfig_map(inputs),
            proxy.service_account(inputs),
            proxy.role(inputs),
            proxy.role_binding(inputs),
            proxy.deployment(inputs, settings),
        ]
    return [*objects, workload.deployment(inputs, settings)]


def has_proxy(inputs: Inputs) -> bool:
    return inputs.server.spec.proxy.mode == "standalone"
