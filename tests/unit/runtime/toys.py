"""A made-up kind with children, for tests of a runtime that has no kinds of its own."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SERVICE, WELL_KNOWN, Catalogue, Obj, Resource

TOY = Resource("runtime.example.dev", "v1", "Toy", "toys")
CATALOGUE = Catalogue((TOY, CONFIG_MAP, SERVICE, DEPLOYMENT))
FULL_CATALOGUE = WELL_KNOWN.plus((TOY,))


def config_map(
    name: str = "a",
    *,
    namespace: str = "default",
    uid: str = "uid-a",
    version: int | str = 1,
    owner: str | None = None,
    labels: Mapping[str, str] | None = None,
    data: Mapping[str, str] | None = None,
) -> Obj:
    """A ConfigMap as a server would return it."""
    metadata: Obj = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "runtime.example.dev/v1", "kind": "Toy", "name": "t", "uid": owner, "controller": True}
        ]
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data or {})}


def toy(name: str = "t", *, namespace: str = "default", **spec: Any) -> Obj:
    """A Toy as a user would write it."""
    return {
        "apiVersion": TOY.api_version,
        "kind": "Toy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Waits for something that comes about through the event loop."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.001)
