"""One object that a person named, or a Mistake that says which there are."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from fairway.api import names
from fairway.api.crd import Kind
from fairway.cli.kinds import DEFAULT, kind_and_name, resource_of
from fairway.cli.mistake import Mistake
from fairway.cli.places import LogSource, Place
from fairway.kube.resource import POD, Obj


async def the_object(place: Place, text: str) -> tuple[Kind, Obj]:
    """NAME or KIND/NAME, in the place's namespace."""
    kind, name = kind_and_name(text)
    resource = resource_of(kind)
    found = await place.get(resource, place.namespace, name)
    if found is None:
        others = [obj["metadata"]["name"] for obj in await place.list(resource, place.namespace)]
        raise Mistake(
            f"there is no {kind.kind} {name} in namespace {place.namespace} of {place.title}{hint(name, others)}"
        )
    return kind, found


def hint(wrong: str, known: Iterable[str]) -> str:
    names_known = sorted(known)
    close = get_close_matches(wrong, names_known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(names_known[:10])}" if names_known else "; there is none at all"


async def pods_of(place: Place, kind: Kind, obj: Obj) -> list[Obj]:
    """The pods that run for an object: the server's own first, each sort oldest first."""
    metadata = obj["metadata"]
    if kind is DEFAULT:
        labels = {names.LABEL_SERVER: metadata["name"]}
        found = await place.list(POD, metadata["namespace"], labels=labels)
    else:
        labels = {names.LABEL_INSTANCE: metadata["name"], names.LABEL_MANAGED_BY: names.MANAGED_BY}
        found = await place.list(POD, metadata["namespace"], labels=labels)
        found = [pod for pod in found if names.LABEL_SERVER not in pod["metadata"].get("labels", {})]

    def order(pod: Obj) -> tuple[bool, str, str]:
        proxy = component_of(pod) == names.COMPONENT_PROXY
        return proxy, pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]

    return sorted(found, key=order)


def component_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, ""))


def containers_of(pod: Obj) -> list[LogSource]:
    metadata = pod["metadata"]
    spec = pod["spec"]
    all_of_them = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return [LogSource(metadata["namespace"], metadata["name"], container["name"]) for container in all_of_them]
