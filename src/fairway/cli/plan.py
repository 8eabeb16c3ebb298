"""`fairway plan`: what an apply would change, object by object, and what it would mean."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairway.cli import typed
from fairway.cli.files import Files, objects_of
from fairway.cli.where import Where, as_json, somewhere

if TYPE_CHECKING:
    from fairway.cli.places import Place
    from fairway.controllers.rehearsal import Change, Verdict

Obj = Mapping[str, Any]
Entry = dict[str, Any]

_SIGNS = {"create": "+", "change": "~", "delete": "-", "none": " "}


def main(arguments: list[str]) -> int:
    return typed.run(plan, arguments, verb="plan")


@somewhere
async def plan(
    where: Where,
    files: Files,
    output: Annotated[
        Literal["table", "json", "yaml", "name"], typer.Option("--output", "-o", help="name lists what would change.")
    ] = "table",
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="As if fields that others own were taken over.")
    ] = False,
) -> int:
    """Shows what `fairway apply` of the same files would change, and writes nothing.

    Exit codes: 0 no difference, 1 a difference, 2 an error.
    """
    async with where.place() as place:
        objects = objects_of(files, place, namespace=where.namespace)
        entries = await entries_of(place, objects, force=force_conflicts)
    different = [entry for entry in entries if entry["what"] != "none" or entry["children"] or entry["says"]]
    match output:
        case "json":
            print(as_json(different))
        case "yaml":
            from fairway.api.crd import to_yaml

            print(to_yaml({"changes": different}), end="")
        case "name":
            for entry in different:
                parts = [entry] if entry["what"] != "none" else []
                for part in (*parts, *entry["children"]):
                    print(f"{part['what']} {part['kind']}/{part['name']}")
        case _:
            print(*(lines_of(different) or [f"no difference to {place.title}"]), sep="\n")
    return 1 if different else 0


async def entries_of(place: "Place", objects: Sequence[Obj], *, force: bool) -> list[Entry]:
    """One for each object of the files, and for each other that the controllers would treat differently."""
    before: dict[tuple[str, str, str], Obj | None] = {}
    after: dict[tuple[str, str, str], Obj] = {}
    for obj in objects:
        resource = await place.resource_of(obj)
        namespace = obj["metadata"].get("namespace") or ""
        key = _key(obj)
        before[key] = await place.get(resource, namespace if resource.namespaced else "", obj["metadata"]["name"])
        after[key] = await place.dry_run(dict(obj), force=force)
    now, then = await place.rehearse([dict(obj) for obj in after.values()])
    verdicts = {_key(verdict.owner): verdict for verdict in then}
    was = {_key(verdict.owner): verdict for verdict in now}
    entries = []
    for key, new in after.items():
        entries.append(_entry(key, before[key], new, verdicts.get(key), _tools(key, before[key], new, now, then)))
    for key, verdict in verdicts.items():
        if key not in after and _wants(verdict) != _wants(was.get(key)):
            entries.append(
                _entry(key, verdict.owner, verdict.owner, verdict, _tools(key, verdict.owner, verdict.owner, now, then))
            )
    return entries


def _key(obj: Obj) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _wants(verdict: "Verdict | None") -> Any:
    if verdict is None:
        return None
    return verdict.acts, [(c.ref, c.wanted) for c in verdict.changes], verdict.taken


def _entry(key: tuple[str, str, str], before: Obj | None, after: Obj, verdict: "Verdict | None", tools: Any) -> Entry:
    from fairway.cli.changes import fields, shown

    kind, namespace, name = key
    changed = [] if before is None else fields(before, after)
    secret = kind == "Secret"
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "what": "create" if before is None else "change" if changed else "none",
        "fields": [shown(field, secret=secret) for field in changed],
        "children": [] if verdict is None else [_child(change) for change in verdict.changes],
        "tools": {"added": list(tools.added), "removed": list(tools.removed), "unknown": tools.unknown}
        if tools
        else None,
        "says": "" if verdict is None else _says(verdict),
    }


def _child(change: "Change") -> Entry:
    from fairway.cli.changes import fields, meaning, shown

    changed = []
    if change.live is not None and change.wanted is not None:
        changed = fields(change.live, change.result or {**change.live, **_merged(change.live, change.wanted)})
    what = "create" if change.live is None else "delete" if change.wanted is None else "change"
    return {
        "kind": change.ref.resource.kind,
        "name": change.ref.name,
        "what": what,
        "fields": list(dict.fromkeys(shown(field) for field in changed)),
        "means": meaning(change, changed),
    }


def _merged(live: Any, wanted: Any) -> Any:
    """As an apply would leave it, where the server was not asked: what is not spoken of stays."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return {**live, **{key: _merged(live.get(key), value) for key, value in wanted.items()}}
    return wanted


def _says(verdict: "Verdict") -> str:
    """What stands in the way of its children."""
    if verdict.taken:
        return f"{', '.join(map(str, verdict.taken))} exists and belongs to somebody else"
    conditions = verdict.status.get("conditions") or ()
    ready: Obj = next((c for c in conditions if c["type"] == "Ready"), {})
    waits = ready.get("status") == "False" and (not verdict.acts or str(ready.get("reason")).endswith("Missing"))
    is_user = verdict.owner["kind"] == "MCPToolConfig" or waits
    return str(ready.get("message") or "") if is_user and ready.get("status") == "False" else ""


def _tools(key: tuple[str, str, str], before: Obj | None, after: Obj, now: Any, then: Any) -> Any:
    from fairway.cli.changes import ToolChange, tool_change

    if key[0] != "MCPServer":
        return ToolChange()
    return tool_change(before, after, _config_of(before, now), _config_of(after, then))


def _config_of(server: Obj | None, verdicts: "Sequence[Verdict]") -> Obj | None:
    from fairway.controllers.mcptoolconfig.reference import referenced_tool_config

    name = referenced_tool_config(server) if server is not None else None
    wanted = ("MCPToolConfig", server["metadata"].get("namespace") or "", name) if server is not None else None
    return next((v.owner for v in verdicts if name and _key(v.owner) == wanted), None)


def lines_of(entries: Sequence[Entry]) -> list[str]:
    """For people."""
    from fairway.cli.output import aligned

    lines = []
    for entry in entries:
        title = f"{_SIGNS[entry['what']]} {entry['kind']}/{entry['name']}"
        lines.append(f"{title}   {', '.join(entry['fields'])}".rstrip())
        if entry["says"]:
            lines.append(f"  ! {entry['says']}")
        rows = [
            [f"  {_SIGNS[c['what']]} {c['kind']}/{c['name']}", _short(c["fields"]), c["means"]]
            for c in entry["children"]
        ]
        lines += aligned(rows)
        if entry["tools"]:
            tools = entry["tools"]
            parts = [*(f"+ {name}" for name in tools["added"]), *(f"- {name}" for name in tools["removed"])]
            unknown = f"({tools['unknown']})" if tools["unknown"] else ""
            lines.append("   ".join(filter(None, ("  tools", *parts, unknown))))
    return lines


def _short(fields: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(fields) - limit} more" if len(fields) > limit else ""
    return ", ".join(fields[:limit]) + more
