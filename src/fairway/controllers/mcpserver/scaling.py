"""How many copies run: the autoscaler of a server, and budgets that keep drains of nodes from taking all. Pure."""

from fairway.api import names
from fairway.controllers.mcpserver import children, shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs

_DEFAULT_CPU = 80


def autoscaled(inputs: Inputs) -> bool:
    """Whether the number of copies is the autoscaler's business. A suspended server's is not."""
    spec = inputs.server.spec
    return spec.autoscaling is not None and not spec.suspend and not shape.once(inputs)


def objects(inputs: Inputs) -> list[Object]:
    spec, child = inputs.server.spec, child_names(inputs)
    found = [_autoscaler(inputs)] if autoscaled(inputs) else []
    at_least = spec.autoscaling.min_replicas if spec.autoscaling else spec.replicas
    if at_least > 1 and not spec.suspend and not shape.once(inputs) and shape.workload(inputs) is not None:
        found.append(_budget(inputs, child.workload, names.COMPONENT_SERVER))
    if shape.own_proxy(inputs) and shape.proxy_replicas(inputs) > 1:
        found.append(_budget(inputs, child.proxy, names.COMPONENT_PROXY))
    return found


def _autoscaler(inputs: Inputs) -> Object:
    scaling = inputs.server.spec.autoscaling
    assert scaling is not None
    targets = {"cpu": scaling.target_cpu_utilization, "memory": scaling.target_memory_utilization}
    if not any(targets.values()) and not scaling.metrics:
        targets["cpu"] = _DEFAULT_CPU
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": percent}},
        }
        for name, percent in targets.items()
        if percent
    ]
    name = child_names(inputs).workload
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": children.metadata(inputs, name, names.COMPONENT_SERVER),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": shape.runs(inputs), "name": name},
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [*metrics, *(scaling.metrics or ())],
            **({"behavior": scaling.behavior} if scaling.behavior else {}),
        },
    }


def _budget(inputs: Inputs, name: str, component: str) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": children.metadata(inputs, name, component),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": children.selector(inputs, component)}},
    }
