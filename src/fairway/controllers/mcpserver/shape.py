"""What a server consists of: what runs it, what stands in front of it, and which port clients reach. Pure."""

from typing import Literal

from fairway.api import defaults, names
from fairway.api.mcpserver import ProxyMode
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.kube.resource import DEPLOYMENT, STATEFUL_SET, Resource

Runs = Literal["Deployment", "StatefulSet", "elsewhere"]


def mode(inputs: Inputs) -> ProxyMode:
    wanted = inputs.server.spec.proxy.mode
    # where pods are processes, one proxy stands before all servers, and nothing is gained by more
    return "standalone" if wanted == "sidecar" and inputs.processes else wanted


def runs(inputs: Inputs) -> Runs:
    """What runs the server: pods of its own, or somebody else."""
    spec = inputs.server.spec
    if spec.remote is not None or spec.service_ref is not None:
        return "elsewhere"
    if inputs.processes:
        return "Deployment"  # where pods are processes, no pod shares anything with another
    return defaults.workload(spec.workload, inputs.transport)


def workload(inputs: Inputs) -> Resource | None:
    """The kind that makes the server's pods; None where it has none."""
    return {"Deployment": DEPLOYMENT, "StatefulSet": STATEFUL_SET}.get(runs(inputs))


def attached(inputs: Inputs) -> bool:
    """Whether the proxy reaches the server by attaching to its pod."""
    return inputs.transport == "stdio" and workload(inputs) is not None


def listens(inputs: Inputs) -> bool:
    """Whether the server's pods have a port."""
    return inputs.transport != "stdio" and workload(inputs) is not None


def has_proxy(inputs: Inputs) -> bool:
    """Whether clients meet a proxy."""
    return mode(inputs) != "none"


def own_proxy(inputs: Inputs) -> bool:
    """Whether the proxy has pods of its own."""
    return mode(inputs) == "standalone"


def sidecar(inputs: Inputs) -> bool:
    """Whether a proxy runs in each of the server's pods."""
    return mode(inputs) == "sidecar"


def front(inputs: Inputs) -> str:
    """The component whose pods clients reach."""
    return names.COMPONENT_PROXY if own_proxy(inputs) else names.COMPONENT_SERVER


def front_port(inputs: Inputs) -> str:
    """The name of the port that clients reach there."""
    return names.PORT_PROXY if sidecar(inputs) else names.PORT_MCP


def runconfig_name(inputs: Inputs) -> str:
    """The ConfigMap of the proxies: one for each way to the server, so that two can be at work while one makes way."""
    child = names.ChildNames(inputs.server.metadata.name)
    if inputs.processes:
        return child.runconfig
    ways = [
        *(["sidecar"] if sidecar(inputs) else []),
        *([inputs.transport] if inputs.transport != "streamable-http" else []),
    ]
    return "-".join([child.runconfig, *ways])


def once(inputs: Inputs) -> bool:
    """Whether there is one process that all clients share, and so one pod of the server and one of the proxy."""
    return inputs.transport == "stdio"


def replicas(inputs: Inputs) -> int:
    """How many pods the server is to have; an autoscaler may think otherwise."""
    spec = inputs.server.spec
    if spec.suspend:
        return 0
    return min(spec.replicas, 1) if once(inputs) else spec.replicas


def proxy_replicas(inputs: Inputs) -> int:
    spec = inputs.server.spec
    if spec.suspend:
        return 0
    return 1 if once(inputs) else spec.proxy.replicas


def capped(inputs: Inputs) -> str | None:
    """What is asked for in vain, since there is one process; None if nothing is."""
    if not once(inputs):
        return None
    spec = inputs.server.spec
    asked = [
        *([f"spec.replicas: {spec.replicas}"] if spec.replicas > 1 else []),
        *([f"spec.proxy.replicas: {spec.proxy.replicas}"] if spec.proxy.replicas > 1 else []),
        *(["spec.autoscaling"] if spec.autoscaling is not None else []),
    ]
    if not asked:
        return None
    return f"{', '.join(asked)}: a server that speaks stdio is one process, and its proxy runs once"
