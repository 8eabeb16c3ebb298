"""What the operator made of a server, without what two equal runs may differ in."""

import json
from collections.abc import Mapping
from typing import Any

from fairway.api import names
from fairway.controllers.resources import CHILDREN, MADE_ONCE, MCP_SERVER

KINDS = (MCP_SERVER, *CHILDREN, *MADE_ONCE)
_GIVEN = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "labels"})
_OF_SERVICES = frozenset({"clusterIP", "clusterIPs"})
_TOLD = ("phase", "url", "transport", "selector")


def normal(item: Mapping[str, Any], **replaced: str) -> Any:
    """`replaced` are names for what is called differently from run to run, by its name there."""
    text = json.dumps(_normal(item))
    for common, name in replaced.items():
        text = text.replace(name, common)
    return json.loads(text)


def _normal(item: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _GIVEN}
    metadata["labels"] = {k: v for k, v in item["metadata"].get("labels", {}).items() if "example" not in k}
    metadata["ownerReferences"] = [{**o, "uid": ""} for o in metadata.get("ownerReferences", ())]
    metadata["annotations"] = {
        # one covers the owner's uid and the other its name, and revisions are history
        key: "some" if key in (names.ANNOTATION_APPLIED_HASH, names.ANNOTATION_TEMPLATE) else value
        for key, value in metadata.get("annotations", {}).items()
        if not key.startswith("deployment.")
    }
    # a Secret of ours is dice
    left_out = {"metadata", "status", *(["data"] if item.get("kind") == "Secret" or "type" in item else [])}
    rest = {key: value for key, value in item.items() if key not in left_out}
    if "clusterIP" in rest.get("spec", {}):
        rest["spec"] = {key: value for key, value in rest["spec"].items() if key not in _OF_SERVICES}
    if "url" in item.get("status", {}):
        rest["status"] = _told(item)
    return {"metadata": metadata, **rest}


def _told(server: Mapping[str, Any]) -> dict[str, Any]:
    status = server["status"]
    return {
        "current": status["observedGeneration"] == server["metadata"]["generation"],
        "conditions": {c["type"]: [c["status"], c["reason"]] for c in status["conditions"]},
        **{key: status.get(key) for key in _TOLD},
    }
