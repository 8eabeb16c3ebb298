"""A user's podTemplate merged into the pod that Fairway would make: by key, with some paths protected. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.api import names
from fairway.api.container import RESERVED_VOLUMES
from fairway.api.quantity import InvalidQuantity, canonical
from fairway.controllers.mcpserver.children import Object

Obj = Mapping[str, Any]

# Which lists are merged by key, by the field that holds them; all others are replaced as a whole, like scalars.
_NAMED = ("name",)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": _NAMED,
    "initContainers": _NAMED,
    "volumes": _NAMED,
    "env": _NAMED,
    "imagePullSecrets": _NAMED,
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort",),
}
_MAPS = frozenset({"labels", "annotations", "nodeSelector"})
_QUANTITIES = frozenset({"requests", "limits", "overhead"})
_DEEPEST = 40


class TemplateRefused(ValueError):
    """The template asks for what it may not or cannot have; the message names the path."""


def merged(metadata: Obj, pod: Obj, template: Obj) -> tuple[Object, Object]:
    """Metadata and spec of the pod with the template over them; raises TemplateRefused."""
    _check(template, _port_names(pod))
    given = template.get("metadata") or {}
    words = {
        field: {**metadata.get(field, {}), **(given.get(field) or {})}
        for field in ("labels", "annotations")
        if metadata.get(field) or given.get(field)
    }
    spec = _merge(pod, template.get("spec") or {}, "spec.podTemplate.spec", 0)
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            # whoever says nothing about the security of a container wants it safe
            container.setdefault(
                "securityContext", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            )
    return {**metadata, **words}, spec


def _check(template: Obj, taken: frozenset[str]) -> None:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for label in metadata.get("labels") or {}:
        if label in _OUR_LABELS:
            raise TemplateRefused(f"spec.podTemplate.metadata.labels: {label} is set by Fairway")
    for annotation in metadata.get("annotations") or {}:
        if annotation.startswith(f"{names.GROUP}/"):
            raise TemplateRefused(f"spec.podTemplate.metadata.annotations: {annotation} is set by Fairway")
    for field, instead in _PROTECTED.items():
        if field in spec:
            raise TemplateRefused(f"spec.podTemplate.spec.{field}: {instead}")
    for volume in _listed(spec, "volumes", "spec.podTemplate.spec"):
        if volume["name"] in RESERVED_VOLUMES:
            raise TemplateRefused(f"spec.podTemplate.spec.volumes: {volume['name']} is a volume of Fairway's own")
    for kind in ("containers", "initContainers"):
        for container in _listed(spec, kind, "spec.podTemplate.spec"):
            _check_container(container, kind, taken)


def _port_names(pod: Obj) -> frozenset[str]:
    """Ports that are ours: Services and NetworkPolicies know them by name, whichever container has it."""
    ports = (port for container in pod.get("containers") or () for port in container.get("ports") or ())
    return frozenset({names.PORT_MCP, names.PORT_ADMIN, *(str(port.get("name")) for port in ports)})


def _check_container(container: Obj, kind: str, taken: frozenset[str]) -> None:
    name, at = container["name"], f"spec.podTemplate.spec.{kind}[{container['name']}]"
    if name == names.CONTAINER_PROXY or (kind == "initContainers" and name in _OUR_INIT_CONTAINERS):
        raise TemplateRefused(f"{at}: the container {name} belongs to Fairway")
    if kind == "containers" and name == names.CONTAINER_SERVER:
        for field, instead in _PROTECTED_OF_SERVER.items():
            if field in container:
                raise TemplateRefused(f"{at}.{field}: {instead}")
    for port in _listed(container, "ports", at):
        if port.get("name") in taken:
            raise TemplateRefused(f"{at}.ports: the port name {port['name']} belongs to Fairway")


_OUR_LABELS = frozenset(names.labels("", ""))
_OUR_INIT_CONTAINERS = frozenset({"fetch"})
_PROTECTED = {
    "serviceAccountName": "set spec.serviceAccountName",
    "serviceAccount": "set spec.serviceAccountName",
}
_PROTECTED_OF_SERVER = {
    "image": "set spec.image",
    "ports": "set spec.port, and spec.service.extraPorts for more",
}


def _listed(holder: Obj, field: str, at: str) -> Sequence[Obj]:
    """A list that is merged by key, checked for having keys."""
    items = holder.get(field)
    if items is None:
        return ()
    keys = _KEYS[field]
    if not isinstance(items, list) or not all(isinstance(i, Mapping) and all(i.get(k) for k in keys) for i in items):
        raise TemplateRefused(f"{at}.{field}: a list of objects, each with {' and '.join(keys)}")
    seen = [tuple(str(item[k]) for k in keys) for item in items]
    for position, key in enumerate(seen):
        if key in seen[:position]:
            raise TemplateRefused(f"{at}.{field}: {'/'.join(key)} is there twice")
    return items


def _merge(ours: Obj, theirs: Obj, at: str, depth: int) -> Object:
    if depth > _DEEPEST:
        raise TemplateRefused(f"{at}: nested too deeply")
    result = dict(ours)
    for field, value in theirs.items():
        if field.startswith("$"):
            raise TemplateRefused(f"{at}.{field}: patch directives are not supported; null takes a field out")
        path = f"{at}.{field}"
        if value is None:
            result.pop(field, None)
        elif field in _KEYS and isinstance(value, list | str | int | Mapping):
            merged_list = _merge_list(result.get(field) or [], _listed(theirs, field, at), _KEYS[field], path, depth)
            if merged_list:
                result[field] = merged_list
        elif isinstance(value, Mapping):
            base = result.get(field)
            inner = _merge(_making_way(base, value) if isinstance(base, Mapping) else {}, value, path, depth + 1)
            if inner or field not in _MAPS:
                result[field] = _each(inner, _spelled) if field in _QUANTITIES else inner
        elif value not in ([], ""):
            result[field] = _tidy(value, path, depth + 1) if field != "sizeLimit" else _spelled(value)
    return result


def _merge_list(ours: Sequence[Obj], theirs: Sequence[Obj], keys: tuple[str, ...], at: str, depth: int) -> list[Object]:
    def key(item: Obj) -> tuple[Any, ...]:
        return tuple(item.get(name) for name in keys)

    waiting = {key(item): item for item in theirs}
    result = []
    for item in ours:
        change = waiting.pop(key(item), None)
        result.append(dict(item) if change is None else _merge(_making_way(item, change), change, f"{at}[]", depth + 1))
    return result + [_merge({}, item, f"{at}[]", depth + 1) for item in waiting.values()]


# Members of which only one can be set: theirs takes the place of ours.
_EITHER = (
    frozenset({"value", "valueFrom"}),
    frozenset({"httpGet", "tcpSocket", "exec", "grpc", "sleep"}),
    frozenset(
        {"emptyDir", "configMap", "secret", "persistentVolumeClaim", "hostPath", "projected", "csi", "ephemeral"}
    ),
)


def _making_way(ours: Obj, theirs: Obj) -> Obj:
    gone = {name for group in _EITHER if group & theirs.keys() for name in group}
    return {name: value for name, value in ours.items() if name not in gone}


def _tidy(value: Any, at: str, depth: int) -> Any:
    if isinstance(value, list):
        return [_merge({}, v, f"{at}[]", depth + 1) if isinstance(v, Mapping) else v for v in value]
    return value


def _each(values: Obj, of: Callable[[Any], Any]) -> Object:
    return {name: of(value) for name, value in values.items()}


def _spelled(value: Any) -> Any:
    """A quantity as the API server stores it; what is none is for the API server to refuse."""
    try:
        return canonical(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else value
    except InvalidQuantity:
        return value
