"""Children: objects that exist because an owner wants them. Stamped, recognised, and never taken from others."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairway.kube.resource import Catalogue, Obj, ObjectRef

_DIGEST_BYTES = 12


def owner_reference(owner: Mapping[str, Any]) -> Obj:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(obj: Mapping[str, Any]) -> str | None:
    """The uid of the one owner that controls this object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def being_deleted(obj: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def children(
    owner: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], catalogue: Catalogue, *, hash_annotation: str | None
) -> list[tuple[ObjectRef, Obj]]:
    """The desired objects as children of `owner`, in the given order, with the digest of themselves as annotation.

    Raises ValueError for what no server would ever take or keep as it is: that is a bug of who built the object.
    """
    namespace = owner["metadata"].get("namespace", "")
    reference = owner_reference(owner)
    stamped: dict[ObjectRef, Obj] = {}
    for obj in objects:
        ref = catalogue.ref(obj, default_namespace=namespace)
        if ref in stamped:
            raise ValueError(f"{ref} is desired twice")
        if namespace and ref.namespace != namespace:
            raise ValueError(f"{ref} is outside namespace {namespace!r} of its owner, where garbage collection ends")
        if "stringData" in obj:
            raise ValueError(
                f"{ref} has stringData, which the server turns into data: every look would find it changed"
            )
        metadata = dict(obj["metadata"])
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), reference]
        child = {**obj, "metadata": metadata}
        if hash_annotation:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), hash_annotation: digest(child)}
        stamped[ref] = child
    return list(stamped.items())


def digest(value: Any) -> str:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES).hexdigest()
