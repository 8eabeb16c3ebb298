"""Where a live object differs from what is desired of it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Which lists of the built-in kinds the API server merges by key, by (parent field, field) or by field alone. In all
# other lists of objects the position counts, and the server replaces them as a whole.
_BY_NAME = ("name",)
_MERGE_KEYS: Mapping[tuple[str, str] | str, tuple[str, ...]] = {
    ("containers", "ports"): ("containerPort", "protocol"),
    ("initContainers", "ports"): ("containerPort", "protocol"),
    ("spec", "ports"): ("port", "protocol"),
    "containers": _BY_NAME,
    "initContainers": _BY_NAME,
    "volumes": _BY_NAME,
    "env": _BY_NAME,
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": _BY_NAME,
    "secrets": _BY_NAME,
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": _BY_NAME,
    "schedulingGates": _BY_NAME,
    "conditions": ("type",),
    "ownerReferences": ("uid",),
}
# A key that is left out means what the server would fill in.
_KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where `found` (None if there is nothing) is not what was `wanted`."""

    path: str
    wanted: Any
    found: Any

    def __str__(self) -> str:
        return self.path


def differences(desired: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Difference]:
    """Every desired value that is not live. What is live beyond that (defaults, other managers) is no difference.

    A field that is no longer desired cannot be seen here; the digest of what was applied shows that.
    """
    return _in_mapping("", "", desired, live)


def has_drifted(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    return next(differences(desired, live), None) is not None


def _in_mapping(path: str, parent: str, desired: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Difference]:
    for name, wanted in desired.items():
        found = live.get(name, _MISSING)
        # Most values are equal as they stand, and comparing in C is cheap.
        if found is not _MISSING and wanted == found and type(wanted) is type(found):
            continue
        yield from _at(f"{path}.{name}" if path else name, parent, name, wanted, found)


def _at(path: str, parent: str, name: str, wanted: Any, found: Any) -> Iterator[Difference]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        yield from _in_mapping(path, name, wanted, found)
    elif isinstance(wanted, list) and isinstance(found, list):
        keys = _MERGE_KEYS.get((parent, name)) or _MERGE_KEYS.get(name)
        by_key = _keyed(wanted, keys), _keyed(found, keys)
        if by_key[0] is not None and by_key[1] is not None:
            yield from _in_keyed_list(path, name, by_key[0], by_key[1])
        else:
            yield from _in_list(path, name, wanted, found)
    elif not _same_scalar(wanted, found):
        yield Difference(path, wanted, None if found is _MISSING else found)


def _in_keyed_list(path: str, name: str, wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> Iterator[Difference]:
    for key, item in wanted.items():
        yield from _at(f"{path}[{','.join(map(str, key))}]", name, name, item, found.get(key, _MISSING))


def _in_list(path: str, name: str, wanted: list[Any], found: list[Any]) -> Iterator[Difference]:
    if len(wanted) != len(found):
        yield Difference(path, wanted, found)
        return
    for position, (item, live) in enumerate(zip(wanted, found, strict=True)):
        yield from _at(f"{path}[{position}]", name, name, item, live)


def _keyed(items: list[Any], keys: tuple[str, ...] | None) -> dict[tuple[Any, ...], Any] | None:
    """The items by their merge key, or None if this is no list of that sort."""
    if keys is None:
        return None
    found: dict[tuple[Any, ...], Any] = {}
    for item in items:
        if not isinstance(item, Mapping):
            return None
        key = tuple(item.get(name, _KEY_DEFAULTS.get(name)) for name in keys)
        if not all(isinstance(part, str | int) for part in key) or key in found:
            return None
        found[key] = item
    return found


def _same_scalar(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    return bool(wanted == found)
