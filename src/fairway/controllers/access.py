"""What the operator must be allowed to do, derived from what its controllers read and write. No wildcards."""

from collections.abc import Iterable
from typing import Any

from fairway.controllers.resources import CHILDREN, MADE_ONCE, MCP_SERVER, MCP_TOOL_CONFIG, OURS, USERS_OBJECTS
from fairway.kube.resource import ENDPOINT_SLICE, EVENT, LEASE, POD, Resource

WATCH = ("list", "watch")
READ = ("get", *WATCH)
APPLY = ("create", "patch", "delete")

Rule = dict[str, Any]


def rule(resources: Iterable[Resource], verbs: Iterable[str], *, subresource: str = "") -> list[Rule]:
    """One rule for each API group."""
    by_group: dict[str, set[str]] = {}
    for resource in resources:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        by_group.setdefault(resource.group, set()).add(plural)
    return [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": sorted(verbs)}
        for group, plurals in sorted(by_group.items())
    ]


def cluster_rules() -> list[Rule]:
    """In every namespace that holds our objects."""
    return [
        *rule((MCP_SERVER,), READ),
        *rule((MCP_TOOL_CONFIG,), WATCH),
        *rule(OURS, ("patch",), subresource="status"),
        *rule(
            (MCP_SERVER,), ("update",), subresource="finalizers"
        ),  # to own objects where owner references are policed
        *rule(CHILDREN, (*READ, *APPLY)),
        *rule(MADE_ONCE, ("create",)),
        *rule(USERS_OBJECTS.values(), READ),  # content is fetched of those that a server refers to
        *rule((POD,), (*READ, "patch")),  # patch: the annotation that makes the kubelet refresh a RunConfig
        *rule((ENDPOINT_SLICE,), READ),  # nobody can grant to a proxy what they do not have
        *rule((POD,), ("create", "get"), subresource="attach"),  # the same, with get, for servers on lines
        *rule((EVENT,), ("create", "patch")),
    ]


def leader_rules() -> list[Rule]:
    """In the operator's own namespace."""
    return rule((LEASE,), ("create", "get", "update"))
