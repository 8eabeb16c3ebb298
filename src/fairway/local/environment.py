"""A container's environment, from literal values, Secrets, ConfigMaps and the pod's own fields. Pure."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Obj = Mapping[str, Any]
Lookup = Callable[[str, str, str], Obj | None]
"""Finds an object by kind, namespace and name."""

_REFERENCE = re.compile(r"\$(\$|\([^()$]*\))")


class ConfigMissing(Exception):
    """The container cannot be made; the message names the object and the key that it asks for."""


def environment_of(pod: Obj, container: Obj, lookup: Lookup) -> dict[str, str]:
    """The variables in the order of Kubernetes: envFrom first, then env, later ones winning."""
    namespace = pod["metadata"]["namespace"]
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        found |= {prefix + key: value for key, value in _all_of(source, namespace, lookup).items()}
    for variable in container.get("env") or ():
        value = _value_of(variable, pod, lookup)
        if value is not None:
            found[variable["name"]] = expand(value, found)
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """$(NAME) becomes the variable's value, $$ a dollar sign; what is not defined stays as written."""

    def replacement(match: re.Match[str]) -> str:
        inner = match[1]
        return "$" if inner == "$" else variables.get(inner[1:-1], match[0])

    return _REFERENCE.sub(replacement, text)


def data_of(obj: Obj) -> dict[str, bytes]:
    """The content of a Secret or ConfigMap by key."""
    if obj["kind"] == "Secret":
        encoded = {key: _decoded(obj, key, value) for key, value in (obj.get("data") or {}).items()}
        return encoded | {key: str(value).encode() for key, value in (obj.get("stringData") or {}).items()}
    text = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    return text | {key: _decoded(obj, key, value) for key, value in (obj.get("binaryData") or {}).items()}


def _decoded(obj: Obj, key: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ConfigMissing(f"{obj['kind']} {obj['metadata']['name']}: key {key} is not valid base64") from None


def _value_of(variable: Obj, pod: Obj, lookup: Lookup) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "secretKeyRef" in source:
        return _key(variable, "Secret", source["secretKeyRef"], pod, lookup)
    if "configMapKeyRef" in source:
        return _key(variable, "ConfigMap", source["configMapKeyRef"], pod, lookup)
    if "fieldRef" in source:
        return _field(source["fieldRef"].get("fieldPath", ""), pod)
    raise ConfigMissing(f"env {variable['name']}: local mode does not know valueFrom.{next(iter(source), '')}")


def _key(variable: Obj, kind: str, reference: Obj, pod: Obj, lookup: Lookup) -> str | None:
    name, key = reference["name"], reference["key"]
    obj = lookup(kind, pod["metadata"]["namespace"], name)
    value = data_of(obj).get(key) if obj is not None else None
    if value is not None:
        return value.decode(errors="surrogateescape")
    if reference.get("optional"):
        return None
    missing = f"there is no {kind} {name}" if obj is None else f"{kind} {name} has no key {key}"
    raise ConfigMissing(f"env {variable['name']} asks for key {key} of {kind} {name}, but {missing}")


def _all_of(source: Obj, namespace: str, lookup: Lookup) -> dict[str, str]:
    kind = "Secret" if "secretRef" in source else "ConfigMap"
    reference = source["secretRef"] if "secretRef" in source else source["configMapRef"]
    obj = lookup(kind, namespace, reference["name"])
    if obj is None:
        if reference.get("optional"):
            return {}
        raise ConfigMissing(f"envFrom asks for {kind} {reference['name']}, but there is none")
    return {key: value.decode(errors="surrogateescape") for key, value in data_of(obj).items()}


def _field(path: str, pod: Obj) -> str:
    metadata, status = pod["metadata"], pod.get("status") or {}
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']*)'\]", path)
    if keyed:
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    known = {
        "metadata.name": metadata.get("name", ""),
        "metadata.namespace": metadata.get("namespace", ""),
        "metadata.uid": metadata.get("uid", ""),
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", "127.0.0.1"),
        "status.hostIP": status.get("hostIP", "127.0.0.1"),
    }
    if path not in known:
        raise ConfigMissing(f"local mode does not know the pod field {path}")
    return str(known[path])


def names_used(container: Obj, volumes: Iterable[Obj]) -> set[tuple[str, str]]:
    """Kind and name of every Secret and ConfigMap that the container depends on."""
    used: set[tuple[str, str]] = set()
    for source in container.get("envFrom") or ():
        for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if field in source:
                used.add((kind, source[field]["name"]))
    for variable in container.get("env") or ():
        for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            if field in (variable.get("valueFrom") or {}):
                used.add((kind, variable["valueFrom"][field]["name"]))
    for volume in volumes:
        if "configMap" in volume:
            used.add(("ConfigMap", volume["configMap"]["name"]))
        if "secret" in volume:
            used.add(("Secret", volume["secret"]["secretName"]))
    return used
