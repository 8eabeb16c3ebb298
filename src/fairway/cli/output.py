"""Objects as a table, JSON, YAML or names: the same text on a terminal and in a log."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

Format = Literal["table", "wide", "json", "yaml", "name"]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="wide is a table with every column.")]

_GAP = "  "


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in which the cells of a column stand below each other."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [_GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def print_objects(
    objects: Sequence[Mapping[str, Any]], form: Format, *, now: datetime, several_namespaces: bool = False
) -> None:
    """All of one kind or of several, each kind with its own columns."""
    match form:
        case "json":
            from fairway.cli.where import as_json

            print(as_json(objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}))
        case "yaml":
            from fairway.api.crd import to_yaml

            print(to_yaml(*objects), end="")
        case "name":
            for obj in objects:
                print(f"{obj['kind'].lower()}.{obj['apiVersion'].split('/')[0]}/{obj['metadata']['name']}")
        case _:
            print(*tables(objects, wide=form == "wide", now=now, several_namespaces=several_namespaces), sep="\n")


def tables(
    objects: Sequence[Mapping[str, Any]], *, wide: bool, now: datetime, several_namespaces: bool = False
) -> list[str]:
    from fairway.cli.kinds import cell, kind_named

    lines: list[str] = []
    for kind_name in dict.fromkeys(obj["kind"] for obj in objects):
        columns = [c for c in kind_named(kind_name).columns if wide or c.priority == 0]
        where = ["NAMESPACE"] if several_namespaces else []
        rows = [[*where, "NAME", *(c.name.upper() for c in columns)]]
        for obj in (o for o in objects if o["kind"] == kind_name):
            metadata = obj["metadata"]
            row = [metadata["namespace"]] if several_namespaces else []
            rows.append([*row, metadata["name"], *(_one_line(cell(obj, c, now=now)) for c in columns)])
        lines += ["", *aligned(rows)] if lines else aligned(rows)
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
