"""API types as pages: every field of a kind, from its CustomResourceDefinition."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairway.api import crd
from fairway.api.names import API_VERSION
from handbook.table import cell, table

Schema = Mapping[str, Any]
Shown = Mapping[str, Sequence[str]]


def page(kind: crd.Kind, shown: Shown) -> str:
    """The reference of one kind. `shown` says for a field of its spec which examples have it."""
    document = crd.crd(kind)["spec"]["versions"][0]
    root = document["schema"]["openAPIV3Schema"]
    columns = ", ".join(f"`{column.name}`" for column in kind.columns)
    intro = [
        f"# {kind.kind}",
        "",
        root["description"],
        "",
        f"`apiVersion: {API_VERSION}`, `kind: {kind.kind}`, in a namespace. `kubectl get {', '.join(kind.short_names)}`"
        f" shows the columns {columns}.",
        "",
        "A field that is not here is refused, with the nearest one that is. A default is what the API server fills in;"
        " what depends on other fields is computed, and says so in its text.",
    ]
    return "\n".join([*intro, *_sections(root["properties"]["spec"], "spec", shown), *_status(root)]) + "\n"


def _status(root: Schema) -> Iterator[str]:
    status = root["properties"].get("status")
    if status is not None:
        yield from _sections(status, "status", {})


def _sections(schema: Schema, name: str, shown: Shown) -> Iterator[str]:
    """The object itself, and then each object in it."""
    yield from ("", f"## {name}", "", schema.get("description", ""), "")
    if files := shown.get(name.removeprefix("spec.").removesuffix("[]")):
        links = [f"[{file}](examples.md#{file.replace('/', '')})" for file in files]
        yield from (f"Shown in {', '.join(links)}.", "")
    required = set(schema.get("required", ()))
    rows = [
        (f"`{field}`", _type(part, f"{name}.{field}"), _default(part, required=field in required), cell(_about(part)))
        for field, part in schema["properties"].items()
    ]
    yield from table(("field", "type", "default", "what"), rows)
    rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield from ("", "What contradicts itself is refused, with these words:", "")
        yield from (f"- {rule}" for rule in rules)
    for field, part in schema["properties"].items():
        inner, suffix = _inside(part)
        if "properties" in inner:
            yield from _sections(inner, f"{name}.{field}{suffix}", shown)


def _inside(schema: Schema) -> tuple[Schema, str]:
    """The object that a field holds, a list of, or a map of."""
    if schema.get("type") == "array":
        return schema["items"], "[]"
    if isinstance(schema.get("additionalProperties"), dict):
        return schema["additionalProperties"], ".*"
    return schema, ""


def _type(schema: Schema, name: str) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{word}`" if word else '`""`' for word in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    inner, suffix = _inside(schema)
    if suffix:
        return f"{'list' if suffix == '[]' else 'map'} of {_type(inner, name + suffix)}"
    if "properties" in schema:
        anchor = name.replace(".", "").replace("[]", "").replace("*", "").lower()
        return f"[{name.rpartition('.')[2] if not name.endswith(']') else 'objects'}](#{anchor})"
    if schema.get("type") == "object":
        return "object"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = f" from {least} to {most}" if least is not None and most is not None else ""
    bounds = bounds or (f", at least {least}" if least is not None else "")
    return words.get(str(schema.get("type")), "anything") + bounds


def _default(schema: Schema, *, required: bool) -> str:
    if required:
        return "required"
    default = schema.get("default")
    if default is None or default in ({}, [], ""):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _about(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split())
