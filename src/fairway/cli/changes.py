"""What a change means: which fields, which pods, which tools. Pure."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fairway.api import names
from fairway.api.mcptoolconfig import MCPToolConfig
from fairway.api.toolview import ToolConflict, ToolView
from fairway.controllers.mcptoolconfig.view import tools_of
from fairway.controllers.rehearsal import Change
from fairway.runtime.drift import differences

Obj = Mapping[str, Any]

_BOOKKEEPING = (
    "resourceVersion", "generation", "uid", "creationTimestamp", "managedFields", "selfLink", "ownerReferences",
)  # fmt: skip
_SHOWN = 48
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Field:
    """One place that differs; None where there is nothing."""

    path: str
    before: Any
    after: Any


def fields(before: Obj, after: Obj) -> list[Field]:
    """Where two states of one object differ, status and bookkeeping apart."""
    old, new = _said(before), _said(after)
    changed = [Field(d.path, d.found, d.wanted) for d in differences(new, old)]
    known = {field.path for field in changed}
    gone = (Field(d.path, d.wanted, None) for d in differences(old, new) if d.found is None and d.path not in known)
    return sorted((*changed, *gone), key=lambda field: field.path)


def _said(obj: Obj) -> dict[str, Any]:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in _BOOKKEEPING}
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(names.ANNOTATION_APPLIED_HASH, None)
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    annotations.pop("deployment.kubernetes.io/revision", None)
    if annotations:
        metadata["annotations"] = annotations
    return {**{k: v for k, v in obj.items() if k not in ("status", "metadata")}, "metadata": metadata}


def shown(field: Field, *, secret: bool = False) -> str:
    """A field in a few words. What a Secret holds is nobody's to read."""
    path = field.path
    if path.startswith("spec.template.metadata.annotations"):
        return "what the pods take in at their start"
    if secret and path.startswith(("data", "stringData")):
        return path
    if any(isinstance(value, dict | list) for value in (field.before, field.after)):
        sign = "+" if field.before is None else "-" if field.after is None else "~"
        return f"{path} {sign}" if sign != "~" else path
    before, after = _value(field.before), _value(field.after)
    if "\n" in before + after or max(len(before), len(after)) > _SHOWN:
        return path
    return f"{path} {before} -> {after}"


def _value(value: Any) -> str:
    return _NOTHING if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def meaning(change: Change, changed: Sequence[Field]) -> str:
    """What becomes of what runs."""
    obj = change.wanted or change.live or {}
    kind = change.ref.resource.kind
    who = (obj["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) or "server"
    if change.wanted is None:
        return f"goes, and the {who} with it" if kind in ("Deployment", "StatefulSet") else "goes"
    if change.live is None:
        return f"starts the {who}" if kind in ("Deployment", "StatefulSet") else ""
    if kind in ("Deployment", "StatefulSet"):
        return _rollout(change.live, change.wanted, changed, who)
    if kind == "ConfigMap":
        reloads = names.RUNCONFIG_KEY in (obj.get("data") or {})
        return "reloads the proxy, no restart" if reloads else "changes files of the pods"
    return {
        "NetworkPolicy": "changes who may connect, no restart",
        "Service": "changes how clients reach it, no restart",
        "HorizontalPodAutoscaler": "changes when it scales, no restart",
    }.get(kind, "no restart")


def _rollout(live: Obj, wanted: Obj, changed: Sequence[Field], who: str) -> str:
    replicas = wanted["spec"].get("replicas", live["spec"].get("replicas", 1))
    if any(field.path.startswith("spec.template") for field in changed):
        if not live["spec"].get("replicas", 1):
            return "nothing runs that could roll"
        return f"rolls the {who}, {_gap(wanted, replicas)}"
    if any(field.path == "spec.replicas" for field in changed):
        before = live["spec"].get("replicas", 1)
        return f"scales the {who} from {before} to {replicas}, rolls nothing"
    return "no restart"


def _gap(wanted: Obj, replicas: int) -> str:
    if wanted["kind"] == "StatefulSet":
        return "with a gap" if replicas < 2 else "pod by pod"
    strategy = wanted["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return "with a gap"
    return (
        "no gap"
        if (strategy.get("rollingUpdate") or {}).get("maxUnavailable", "25%") in (0, "0", "0%")
        else "pod by pod"
    )


@dataclass(frozen=True, slots=True)
class ToolChange:
    """Tools that clients would see come and go, and what nobody can know before it runs."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unknown: str = ""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.unknown)


def tool_change(before: Obj | None, after: Obj, config_before: Obj | None, config_after: Obj | None) -> ToolChange:
    """`before` and `after` are an MCPServer, with the MCPToolConfig that each refers to, if there is one."""
    old_view, new_view = _view(config_before), _view(config_after)
    if old_view is None or new_view is None:
        return ToolChange()  # broken: the plan says so elsewhere
    source = _source(after["spec"])
    same_source = before is not None and _source(before["spec"]) == source
    old_names, complete = _offered(before, old_view)
    inline = (after["spec"].get("inlineTools") or {}).get("python")
    if inline is not None:
        new_names, complete = inline_tools(inline), True
    elif before is None:
        return ToolChange(unknown="its tools are unknown until it runs")
    else:
        new_names = old_names
        if not complete:  # hidden ones are known by name only where the configuration names them
            new_names = new_names | {n for n in new_view.named if _hidden(old_view, n)}
    seen_before = {name for n in old_names if (name := old_view.exposed(n)) is not None}
    seen_after = {name for n in new_names if (name := new_view.exposed(n)) is not None}
    unknown = (
        ""
        if same_source or inline is not None
        else f"whether {_title(after['spec'])} has others is unknown until it runs"
    )
    if same_source and not complete and old_view.allowed is not None and new_view.allowed is None:
        unknown = "and whatever else it has, which was hidden so far"
    if not seen_before and not seen_after and same_source:
        unknown = ""
    return ToolChange(tuple(sorted(seen_after - seen_before)), tuple(sorted(seen_before - seen_after)), unknown)


def _hidden(view: ToolView, backend: str) -> bool:
    return view.exposed(backend) is None


def _view(config: Obj | None) -> ToolView | None:
    if config is None:
        return ToolView()
    try:
        model = MCPToolConfig.model_validate(
            {k: config[k] for k in ("metadata", "spec") if k in config}, extra="ignore"
        )
        return tools_of(model.spec).view()
    except (ValidationError, ToolConflict):
        return None


def _offered(server: Obj | None, view: ToolView) -> tuple[set[str], bool]:
    """The server's own names of its tools as far as they are known, and whether that is all of them."""
    if server is None:
        return set(), False
    inline = (server["spec"].get("inlineTools") or {}).get("python")
    if inline is not None:
        return inline_tools(inline), True
    tools = (server.get("status") or {}).get("tools") or {}
    listed = tools.get("names") or ()
    found = {name for exposed in listed if (name := view.backend(exposed)) is not None}
    return found, view.allowed is None and len(listed) == tools.get("count")


def inline_tools(source: str) -> set[str]:
    """The public functions that a source defines, without running it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    listed = _all_of(tree)
    defined = {node.name for node in _definitions(tree.body)}
    return listed & defined if listed is not None else {name for name in defined if not name.startswith("_")}


def _definitions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(node.body)


def _all_of(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            try:
                return set(ast.literal_eval(node.value))
            except (ValueError, TypeError):
                return None
    return None


_NOT_THE_SOURCE = frozenset(
    {
        *("toolConfigRef", "replicas", "proxy", "auth", "authz", "rateLimit", "audit", "suspend"),
        *("cors", "headers", "timeouts", "limits", "upstreamHost", "service", "ingress", "gatewayRoute", "autoscaling"),
    }
)
"""Fields of an MCPServer that cannot change which tools the server itself has."""


def _source(spec: Obj) -> Obj:
    return {key: value for key, value in spec.items() if key not in _NOT_THE_SOURCE}


def _title(spec: Obj) -> str:
    package = spec.get("package") or {}
    return str(spec.get("image") or package.get("pypi") or package.get("npm") or "the new one")
