"""What a namespace holds in the end, without what two equal runs may differ in."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rig.api import Api, Object
from tests.faultproxy import toy

KINDS = {
    "Toy": f"/apis/{toy.GROUP}/v1/namespaces/{{}}/toys",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}
State = Mapping[str, Object]

# Given by the server, or the history of an object and not its state.
_OF_THE_OBJECT = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace"})
_OF_SERVICES = frozenset({"clusterIP", "clusterIPs"})
_HISTORY = frozenset({"observedGeneration", "lastUpdateTime", "lastTransitionTime"})
_MADE_BY_KUBERNETES = "kube-root-ca.crt"


@dataclass(frozen=True)
class Snapshot:
    """The objects of a namespace, by kind and name, as the server has them."""

    objects: Mapping[str, Object]

    @classmethod
    def of(cls, api: Api, namespace: str, kinds: Collection[str] = tuple(KINDS)) -> "Snapshot":
        found: dict[str, Object] = {}
        for kind in kinds:
            for item in api.items(KINDS[kind].format(namespace)):
                if item["metadata"]["name"] != _MADE_BY_KUBERNETES:
                    found[f"{kind}/{item['metadata']['name']}"] = item
        return cls(found)

    @property
    def state(self) -> State:
        """What must be the same after any two runs with the same specs."""
        return {name: _normal(name, item) for name, item in self.objects.items()}

    @property
    def uids(self) -> dict[str, str]:
        return {name: item["metadata"]["uid"] for name, item in self.objects.items()}

    def settled(self) -> bool:
        """Every toy's status speaks of its newest spec."""
        toys = [item for name, item in self.objects.items() if name.startswith("Toy/")]
        return all(
            item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
            and item["status"].get("phase") == "Ready"
            for item in toys
        )


def wait_settled(
    api: Api, namespace: str, expected: State, *, seconds: float = 90.0, poll: float = 0.05
) -> tuple[Snapshot, float]:
    """Until the namespace is as `expected` and every status is up to date; the snapshot and the seconds it took."""
    began = time.monotonic()
    while True:
        found = Snapshot.of(api, namespace)
        took = time.monotonic() - began
        if found.settled() and found.state == expected:
            return found, took
        if took > seconds:
            raise AssertionError(
                f"not as expected after {took:.0f} s:\n{difference(found.state, expected)}\nsettled: {found.settled()}"
            )
        time.sleep(poll)


def difference(found: Any, expected: Any, path: str = "") -> str:
    """Where two states differ, a line for each place."""
    if found == expected:
        return ""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        parts = [difference(found.get(key), expected.get(key), f"{path}.{key}") for key in sorted({*found, *expected})]
        return "\n".join(part for part in parts if part)
    return f"{path}: {found!r}, expected {expected!r}"


def _normal(name: str, item: Object) -> Object:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _OF_THE_OBJECT}
    metadata["ownerReferences"] = [
        {key: value for key, value in reference.items() if key != "uid"}
        for reference in metadata.get("ownerReferences", ())
    ]
    # The Deployment controller counts revisions, which is history; the hash covers the owner's uid.
    metadata["annotations"] = {
        key: "some" if key == toy.HASH_ANNOTATION else value
        for key, value in metadata.get("annotations", {}).items()
        if not key.startswith("deployment.")
    }
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status", "apiVersion", "kind")}
    if name.startswith("Service/"):
        rest["spec"] = {key: value for key, value in rest["spec"].items() if key not in _OF_SERVICES}
    if name.startswith("Toy/"):
        rest["status"] = {key: value for key, value in item.get("status", {}).items() if key not in _HISTORY}
    return {"metadata": metadata, **rest}
