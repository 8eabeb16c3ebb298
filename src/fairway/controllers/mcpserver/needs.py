"""What a pod needs of other people's Secrets and ConfigMaps, and the digest of what a running container cannot re-read.

Pure. What is mounted as files follows its object by itself; what enters by env, envFrom or subPath stays as it was when
the container started, so the pod template carries a digest of it, and a change replaces the pods.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Obj = Mapping[str, Any]
Kind = Literal["Secret", "ConfigMap"]
Name = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a pod takes from a Secret or ConfigMap."""

    kind: Kind
    name: str
    key: str | None
    """None: all of them."""
    optional: bool
    asked_by: str
    """The part of the pod that asks, for people."""
    stays: bool
    """Whether a running container keeps what it got at its start."""
    prefix: str = ""
    """What goes before each key to make a variable of it."""
    read: bool = False
    """Whether the operator itself reads the text, which it never does with a Secret."""
    python: bool = False
    """Whether the value is Python source, of which it is to be known what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of a Secret or ConfigMap: digests of values. Text only of ConfigMaps that are read as a whole."""

    uid: str
    digests: Mapping[str, str]
    text: Mapping[str, str] = field(default_factory=dict)
    not_python: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with values as Python source, of the keys that somebody asked it of."""


Contents = Mapping[Name, Content | None]
"""By kind and name; None for an object that does not exist."""


def needs_of(pod_spec: Obj, *, but: Collection[Name] = ()) -> tuple[Need, ...]:
    """Everything that the pod asks for, apart from objects of our own."""
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    found = [need for container in containers for need in _of_container(container)]
    found += _of_volumes(pod_spec.get("volumes") or (), containers)
    return tuple(need for need in dict.fromkeys(found) if (need.kind, need.name) not in but)


def _of_container(container: Obj) -> Iterator[Need]:
    for source in container.get("envFrom") or ():
        for place, kind in _SOURCES:
            if reference := _object(source, place):
                optional = bool(reference.get("optional"))
                name, prefix = reference.get("name", ""), source.get("prefix", "")
                yield Need(kind, name, None, optional, "envFrom", stays=True, prefix=prefix)
    for variable in container.get("env") or ():
        for place, kind in _KEY_SOURCES:
            if reference := _object(_object(variable, "valueFrom"), place):
                yield Need(
                    kind,
                    reference.get("name", ""),
                    reference.get("key", ""),
                    bool(reference.get("optional")),
                    f"env {variable['name']}",
                    stays=True,
                )


_SOURCES: Sequence[tuple[str, Kind]] = (("secretRef", "Secret"), ("configMapRef", "ConfigMap"))
_KEY_SOURCES: Sequence[tuple[str, Kind]] = (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap"))
_OF_ISSUERS: Sequence[tuple[str, Kind]] = (("sharedSecretRef", "Secret"), ("caBundleRef", "ConfigMap"))
_VOLUMES: Sequence[tuple[str, Kind, str]] = (("secret", "Secret", "secretName"), ("configMap", "ConfigMap", "name"))


def _of_volumes(volumes: Iterable[Obj], containers: Sequence[Obj]) -> Iterator[Need]:
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    for volume in volumes:
        for place, kind, name_field in _VOLUMES:
            source = _object(volume, place)
            if not source:
                continue
            stays = any(m["name"] == volume["name"] and (m.get("subPath") or m.get("subPathExpr")) for m in mounts)
            keys = [item["key"] for item in source.get("items") or () if isinstance(item, Mapping) and "key" in item]
            for key in keys or [None]:
                yield Need(
                    kind,
                    source.get(name_field, ""),
                    key,
                    bool(source.get("optional")),
                    f"volume {volume['name']}",
                    stays=stays,
                )


def _object(holder: Obj, field: str) -> Obj:
    """A member that should be an object, and in a user's own template might be anything."""
    value = holder.get(field)
    return value if isinstance(value, Mapping) else {}


def missing(needs: Iterable[Need], contents: Contents) -> Need | None:
    """The first need that nothing fulfils; None if all is there."""
    return next((need for need in needs if not need.optional and not _fulfilled(need, contents)), None)


def _fulfilled(need: Need, contents: Contents) -> bool:
    content = contents.get((need.kind, need.name))
    return content is not None and (need.key is None or need.key in content.digests)


def explained(need: Need, contents: Contents, *, namespace: str) -> str:
    """What is missing, in a sentence."""
    if contents.get((need.kind, need.name)) is None:
        what = f"key {need.key} of {need.kind} {need.name}" if need.key else f"{need.kind} {need.name}"
        return f"{need.asked_by} asks for {what}, and there is no such {need.kind} in namespace {namespace}"
    return f"{need.asked_by} asks for key {need.key} of {need.kind} {need.name}, which has no such key"


def names_from(needs: Iterable[Need], contents: Contents) -> frozenset[str]:
    """The variables that come by envFrom."""
    whole = [(need.prefix, contents.get((need.kind, need.name))) for need in needs if need.asked_by == "envFrom"]
    return frozenset(prefix + key for prefix, content in whole if content is not None for key in content.digests)


def digest_parts(needs: Iterable[Need], contents: Contents) -> list[str]:
    """One line for each value that a running container keeps: whose it is, which key, and the digest of the value."""
    lines: set[str] = set()
    for need in needs:
        content = contents.get((need.kind, need.name))
        if not need.stays or content is None:
            continue
        keys = content.digests if need.key is None else {need.key} & content.digests.keys()
        lines |= {f"{need.kind}/{content.uid}/{key}={content.digests[key]}" for key in keys}
    return sorted(lines)


def digest(parts: Sequence[str]) -> str | None:
    """For an annotation of the pod template; None where there is nothing to tell."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32] if parts else None


def mentioned(spec: Any) -> frozenset[Name]:
    """Every Secret and ConfigMap that a spec as written might be about: what to look at again when one changes."""
    found: set[Name] = set()
    waiting = [spec]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            for place, kind, name_field in (
                *((place, kind, "name") for place, kind in (*_SOURCES, *_KEY_SOURCES, *_OF_ISSUERS)),
                *_VOLUMES,
                ("permissionProfile", "ConfigMap", "name"),
            ):
                reference = value.get(place)
                if isinstance(reference, dict) and isinstance(name := reference.get(name_field), str):
                    found.add((kind, name))
            if isinstance(name := value.get("secretName"), str):
                found.add(("Secret", name))
    return frozenset(found)
