"""The MCP server itself: its Deployment, its account, and the source of inline tools."""

import hashlib

from fairway.api import names
from fairway.api.meta import EnvVar, KeySelector
from fairway.controllers.mcpserver import children
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings

SERVER = names.COMPONENT_SERVER


def service_account(inputs: Inputs) -> Object:
    return children.service_account(inputs, child_names(inputs).workload, SERVER)


def tools_source(inputs: Inputs) -> list[Object]:
    tools = inputs.server.spec.inline_tools
    if tools is None:
        return []
    return [children.config_map(inputs, child_names(inputs).tools, SERVER, {names.TOOLS_KEY: tools.python})]


def deployment(inputs: Inputs, settings: Settings) -> Object:
    spec = inputs.server.spec
    container: Object = {
        "name": names.CONTAINER_SERVER,
        "env": _environment(inputs),
        "ports": [{"name": names.PORT_MCP, "containerPort": spec.port, "protocol": "TCP"}],
        "readinessProbe": {
            "tcpSocket": {"port": names.PORT_MCP},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 3,
        },
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
    }
    volumes = []
    annotations = None
    if spec.inline_tools is None:
        container["image"] = spec.image
        container["imagePullPolicy"] = _pull_policy(spec.image or "")
    else:
        container |= {
            "image": settings.image,
            "imagePullPolicy": settings.image_pull_policy,
            "args": ["tools", "--file", f"{names.TOOLS_DIR}/{names.TOOLS_KEY}", "--name", inputs.server.metadata.name],
            "volumeMounts": [{"name": "tools", "mountPath": names.TOOLS_DIR, "readOnly": True}],
        }
        volumes = [children.config_volume("tools", child_names(inputs).tools)]
        # the server reads its source once, so that new source needs new pods
        annotations = {names.ANNOTATION_INPUTS_DIGEST: _digest(spec.inline_tools.python)}
    pod = children.pod_spec(account=child_names(inputs).workload, container=container, volumes=volumes)
    return children.deployment(
        inputs, child_names(inputs).workload, SERVER, replicas=spec.replicas, pod=pod, annotations=annotations
    )


def _environment(inputs: Inputs) -> list[Object]:
    """What common MCP frameworks read to find their port, then the user's own, which win."""
    spec = inputs.server.spec
    port = str(spec.port)
    own = {variable.name for variable in spec.env}
    defaults = {
        "HOME": "/tmp",  # noqa: S108  the pod's own emptyDir
        "MCP_TRANSPORT": spec.transport,
        "MCP_HOST": "0.0.0.0",  # noqa: S104  only the proxy reaches the pod
        "MCP_PORT": port,
        "FASTMCP_HOST": "0.0.0.0",  # noqa: S104
        "FASTMCP_PORT": port,
    }
    return [
        *({"name": name, "value": value} for name, value in defaults.items() if name not in own),
        *map(_variable, spec.env),
    ]


def _variable(variable: EnvVar) -> Object:
    source = variable.value_from
    if source is None:
        return {"name": variable.name, **({"value": variable.value} if variable.value else {})}
    if source.secret_key_ref is not None:
        return {"name": variable.name, "valueFrom": {"secretKeyRef": _key(source.secret_key_ref)}}
    assert source.config_map_key_ref is not None
    return {"name": variable.name, "valueFrom": {"configMapKeyRef": _key(source.config_map_key_ref)}}


def _key(selector: KeySelector) -> Object:
    return {"name": selector.name, "key": selector.key, **({"optional": True} if selector.optional else {})}


def _pull_policy(image: str) -> str:
    """What the kubelet itself would default to, said outright so that nothing differs from what is live."""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
