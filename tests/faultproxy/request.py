"""What a request to a Kubernetes API server is about, read from its first line and headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

WRITES = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})
READS = frozenset({"get", "list", "watch"})

_APPLY = "application/apply-patch"
# These follow the name of a namespace without being a kind inside it.
_OF_NAMESPACES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request, in the words of the API. `resource` is the plural, with `.group` unless it is a core one.

    Paths that name no resource (/version, /readyz) keep an empty `resource` and their method as the verb.
    """

    number: int
    method: str
    target: str
    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    manager: str = ""
    user_agent: str = ""
    initial_events: bool = False
    dry_run: bool = False

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES and not self.dry_run

    def __str__(self) -> str:
        what = "/".join(part for part in (self.resource or self.target, self.namespace, self.name) if part)
        part = f" ({self.subresource})" if self.subresource else ""
        return f"#{self.number} {self.verb} {what}{part}"


def classify(number: int, method: str, target: str, headers: Mapping[str, str]) -> Request:
    """`headers` by lower-case name."""
    url = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    agent = headers.get("user-agent", "")
    where = _resource_path(url.path)
    if where is None:
        return Request(number, method, target, method.lower(), user_agent=agent)
    group, namespace, plural, name, subresource = where
    return Request(
        number=number,
        method=method,
        target=target,
        verb=_verb(method, name, query, headers.get("content-type", "")),
        resource=f"{plural}.{group}" if group else plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
        manager=query.get("fieldManager", ""),
        user_agent=agent,
        initial_events=_yes(query.get("sendInitialEvents")),
        dry_run="dryRun" in query,
    )


def _resource_path(path: str) -> tuple[str, str, str, str, str] | None:
    """Group, namespace, plural, name, subresource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    return group, namespace, rest[0], rest[1] if len(rest) > 1 else "", "/".join(rest[2:])


def _verb(method: str, name: str, query: Mapping[str, str], content_type: str) -> str:
    match method:
        case "GET" if _yes(query.get("watch")):
            return "watch"
        case "GET":
            return "get" if name else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "apply" if content_type.startswith(_APPLY) else "patch"
        case "DELETE":
            return "delete" if name else "deletecollection"
        case _:
            return method.lower()


def _yes(text: str | None) -> bool:
    return text is not None and text.lower() not in ("0", "false")
