"""The server's own container: image, arguments, environment, ports, probes, resources, mounts. Pure."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairway.api import defaults, names
from fairway.api.container import Probe, Resources
from fairway.api.quantity import canonical
from fairway.api.schema import Model
from fairway.controllers.mcpserver import package, shape
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.image import server_image
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TMP = "/tmp"  # noqa: S108  the pod's own emptyDir
DRAIN_SECONDS = 6
"""For which a server that is to end still serves: as long as others may not know of it, and its sidecar takes calls."""


def server_container(inputs: Inputs, settings: Settings, *, from_elsewhere: frozenset[str] = frozenset()) -> Object:
    """`from_elsewhere` are the variables that come by envFrom, which our own defaults must not hide."""
    spec = inputs.server.spec
    image = server_image(spec, settings)
    container: Object = {
        "name": names.CONTAINER_SERVER,
        "image": image.reference,
        "imagePullPolicy": image.pull_policy,
        **_started_by(inputs, settings),
        **({"stdin": True} if shape.attached(inputs) else {}),
        "env": [*environment(inputs, from_elsewhere), *package.settings_on_a_laptop(inputs, settings)],
        "envFrom": _environment_from(inputs),
        "ports": [{"name": names.PORT_MCP, "containerPort": spec.port, "protocol": "TCP"}]
        if shape.listens(inputs)
        else [],
        **_probes(inputs),
        **({"lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}}} if drains(inputs) else {}),
        "resources": resources(spec.resources, defaults.requests(inputs.transport)),
        "volumeMounts": _mounts(inputs),
    }
    return {field: value for field, value in container.items() if value not in ([], {})}


def volumes(inputs: Inputs, settings: Settings) -> list[Object]:
    """Volumes of the server's pod: ours, then the user's."""
    spec = inputs.server.spec
    ours = []
    if spec.inline_tools is not None:
        ours.append({"name": "tools", **_source_of_tools(inputs)})
    if package.in_pod(inputs):
        ours += package.volumes(settings)
    if spec.config:
        ours.append({"name": "config", "configMap": {"name": child_names(inputs).config}})
    return [*ours, *map(as_written, spec.volumes or ())]


def _source_of_tools(inputs: Inputs) -> Object:
    tools = inputs.server.spec.inline_tools
    assert tools is not None
    if tools.secret_key_ref is None:
        return {"configMap": {"name": child_names(inputs).tools}}
    secret = tools.secret_key_ref
    return {"secret": {"secretName": secret.name, "items": [{"key": secret.key, "path": names.TOOLS_KEY}]}}


def drains(inputs: Inputs) -> bool:
    """Whether the server's pods hear of their end only when nobody sends them anything any more."""
    return shape.listens(inputs) and not inputs.processes


def within_grace(pod: Object) -> Object:
    """The same with a drain that is over before the pod's time is, as the API server wants it."""
    grace = pod.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int) or grace >= DRAIN_SECONDS:
        return pod
    return {**pod, "containers": [_drained(container, grace) for container in pod["containers"]]}


def _drained(container: Object, grace: int) -> Object:
    hooks = container.get("lifecycle") or {}
    if hooks.get("preStop") != {"sleep": {"seconds": DRAIN_SECONDS}}:
        return container
    hooks = {name: hook for name, hook in hooks.items() if name != "preStop"}
    if grace > 0:
        hooks["preStop"] = {"sleep": {"seconds": grace}}
    rest = {field: value for field, value in container.items() if field != "lifecycle"}
    return {**rest, **({"lifecycle": hooks} if hooks else {})}


def config_data(inputs: Inputs) -> dict[str, str]:
    """The files in /etc/mcp: one for each key, and all of them in one, for servers that read JSON."""
    server, config = inputs.server, dict(sorted((inputs.server.spec.config or {}).items()))
    about = {"name": server.metadata.name, "transport": inputs.transport, "port": server.spec.port}
    whole = json.dumps({"server": about, "config": config}, indent=2, ensure_ascii=False) + "\n"
    return {names.CONFIG_KEY: whole, **config}


def security_context(inputs: Inputs) -> Object:
    """The user's own over what the restricted standard wants."""
    own = inputs.server.spec.security_context
    if own is None:
        return {}
    given = as_written(own)
    if "capabilities" in given:
        given["capabilities"] = {"drop": ["ALL"], **given["capabilities"]}
    if own.privileged:
        given.setdefault("allowPrivilegeEscalation", True)
    if own.run_as_user == 0:
        given["runAsNonRoot"] = False
    return given


def _started_by(inputs: Inputs, settings: Settings) -> Object:
    spec = inputs.server.spec
    if spec.package is not None:
        return package.started_by(inputs, settings)
    if spec.inline_tools is not None:
        source = f"{names.TOOLS_DIR}/{names.TOOLS_KEY}"
        return {"args": ["tools", "--file", source, "--name", inputs.server.metadata.name]}
    return {
        **({"command": list(spec.command)} if spec.command else {}),
        **({"args": list(spec.args)} if spec.args else {}),
    }


def environment(inputs: Inputs, from_elsewhere: frozenset[str]) -> list[Object]:
    """What common MCP frameworks read to find their port, then `config`, then the user's own, which win."""
    server, spec = inputs.server, inputs.server.spec
    listening = (
        {
            "MCP_HOST": "0.0.0.0",  # noqa: S104  only the proxy reaches the pod
            "MCP_PORT": str(spec.port),
            "FASTMCP_HOST": "0.0.0.0",  # noqa: S104
            "FASTMCP_PORT": str(spec.port),
        }
        if inputs.transport != "stdio"
        else {}
    )
    own = {variable.name for variable in spec.env}
    config = [key for key in sorted(spec.config or {}) if _VARIABLE.fullmatch(key) and key not in own]
    taken = own | {*config} | from_elsewhere
    values = {
        "HOME": _TMP,
        "MCP_TRANSPORT": inputs.transport,
        **listening,
        "MCP_SERVER_NAME": server.metadata.name,
        **({"MCP_CONFIG_FILE": f"{names.CONFIG_DIR}/{names.CONFIG_KEY}"} if spec.config else {}),
    }
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    return [
        *({"name": name, "value": value} for name, value in values.items() if name not in taken),
        *(
            {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
            for name, path in fields.items()
            if name not in taken
        ),
        *(
            {"name": key, "valueFrom": {"configMapKeyRef": {"name": child_names(inputs).config, "key": key}}}
            for key in config
        ),
        *map(_variable, spec.env),
    ]


def _variable(variable: Model) -> Object:
    written = as_written(variable)
    if field := (written.get("valueFrom") or {}).get("fieldRef"):
        field["apiVersion"] = "v1"
    return written


def _environment_from(inputs: Inputs) -> list[Object]:
    spec = inputs.server.spec
    short = [{"secretRef": {"name": spec.secret_name}}] if spec.secret_name else []
    return [*map(as_written, spec.env_from or ()), *short]


def _probes(inputs: Inputs) -> Object:
    given = inputs.server.spec.probes
    readiness = given.readiness if given else None
    found: Object = {}
    if readiness is not None:
        found["readinessProbe"] = _probe(readiness)
    elif shape.listens(inputs) and not shape.sidecar(inputs):
        # beside a sidecar, which reaches it on loopback and is not ready before it answers, it may listen there alone
        found["readinessProbe"] = {**_probe(Probe()), "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3}
    if given and given.liveness is not None:
        found["livenessProbe"] = _probe(given.liveness)
    if given and given.startup is not None:
        found["startupProbe"] = _probe(given.startup)
    return found


def _probe(probe: Probe) -> Object:
    written = as_written(probe)
    if probe.http_get is not None:
        get = {"port": names.PORT_MCP, "path": probe.http_get.path, "scheme": probe.http_get.scheme}
        written["httpGet"] = get | written.get("httpGet", {})
    elif probe.exec is None and probe.grpc is None:
        written["tcpSocket"] = {"port": names.PORT_MCP} | written.get("tcpSocket", {})
    return written


def resources(
    given: Resources | None, wanted: Mapping[str, str], at_most: Mapping[str, str] = MappingProxyType({})
) -> Object:
    """The user's own over our defaults, one by one, without a default that contradicts them."""
    own_requests = {name: str(value) for name, value in ((given and given.requests) or {}).items()}
    own_limits = {name: str(value) for name, value in ((given and given.limits) or {}).items()}
    own = own_requests.keys() | own_limits.keys()
    requests = {name: canonical(value) for name, value in wanted.items() if name not in own} | own_requests
    limits = {name: canonical(value) for name, value in at_most.items() if name not in own} | own_limits
    return {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}


def _mounts(inputs: Inputs) -> list[Object]:
    spec = inputs.server.spec
    ours = []
    if spec.inline_tools is not None:
        ours.append({"name": "tools", "mountPath": names.TOOLS_DIR, "readOnly": True})
    if package.in_pod(inputs):
        ours.append(package.mount(read_only=True))
    if spec.config:
        ours.append({"name": "config", "mountPath": names.CONFIG_DIR, "readOnly": True})
    own = [as_written(mount) for mount in spec.volume_mounts or ()]
    taken = {mount["mountPath"].rstrip("/") for mount in own}
    return [*(mount for mount in ours if mount["mountPath"] not in taken), *own]


def as_written(model: Model) -> Object:
    """A part of the spec as Kubernetes would store it: nothing null, nothing empty, no default spelled out."""
    dumped = model.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True, mode="json")
    return {name: _pruned(value) for name, value in dumped.items() if name == "emptyDir" or value not in ("", [], {})}


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {name: _pruned(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if name == "emptyDir" or inner not in ("", [], {})}
    return [_pruned(inner) for inner in value] if isinstance(value, list) else value
