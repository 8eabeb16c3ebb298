"""The two contracts between operator and proxy as pages: what each structure holds, and what it is for."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from fairway.api import policy, proxystatus, runconfig
from handbook.table import cell, table

Schema = Mapping[str, Any]


def page(module: ModuleType, *, title: str, intro: str, schema: Schema, file: str) -> str:
    """Every structure, the outermost one first."""
    structures: Mapping[str, Schema] = schema["$defs"]
    root = schema["$ref"].rpartition("/")[2]
    lines = [f"# {title}", "", intro, "", f"The JSON Schema is `docs/contracts/{file}`.", ""]
    for name in _in_order(root, structures):
        lines += _structure(name, structures[name], module)
    return "\n".join(lines).rstrip() + "\n"


def run_config() -> str:
    return page(
        runconfig,
        title="RunConfig",
        intro="What the operator tells a proxy: a JSON file per server, in a ConfigMap whose name begins with "
        "`NAME-runconfig`. A field that a proxy does not know is refused, since ignoring a policy would widen access. "
        "Secrets are never in it, only paths of files. `fairway proxy --config FILE` takes the same file by hand.",
        schema=runconfig.json_schema(),
        file="runconfig-v1.schema.json",
    )


def proxy_status() -> str:
    return page(
        proxystatus,
        title="Status of a proxy",
        intro="What a proxy answers at `GET /v1/status` of its admin port (8081). A field that an operator does not "
        "know is skipped.",
        schema=proxystatus.json_schema(),
        file="proxystatus-v1.schema.json",
    )


def _in_order(root: str, structures: Mapping[str, Schema]) -> list[str]:
    found: list[str] = []
    waiting = [root]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += [other for other in _named_in(structures[name]) if other in structures]
    return found


def _named_in(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for value in node.values():
            yield from _named_in(value)
    elif isinstance(node, list):
        for item in node:
            yield from _named_in(item)


def _structure(name: str, schema: Schema, module: ModuleType) -> list[str]:
    about = _said(module)
    lines = [f"## {name}", "", *([inspect.cleandoc(schema["description"]), ""] if "description" in schema else [])]
    if "enum" in schema:
        return [*lines, "One of " + ", ".join(f"`{word}`" for word in schema["enum"]) + ".", ""]
    required = set(schema.get("required", ()))
    rows = [
        (
            f"`{field}`",
            _type(part),
            "required" if field in required else _default(part),
            cell(about.get((name, _snake(field)), "")),
        )
        for field, part in schema.get("properties", {}).items()
    ]
    return [*lines, *table(("field", "type", "default", "what"), rows), ""]


def _type(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " \\| ".join(f"`{word}`" for word in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items') or {})}"
        case "object":
            return f"map of {_type(schema.get('additionalProperties') or {})}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return words.get(str(schema.get("type")), "anything")


def _default(schema: Schema) -> str:
    default = schema.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


@cache
def _said(module: ModuleType) -> Mapping[tuple[str, str], str]:
    """What stands below each attribute in the source: a schema has no place for it."""
    found: dict[tuple[str, str], str] = {}
    for source in (policy, module):
        for node in ast.walk(ast.parse(inspect.getsource(source))):
            if isinstance(node, ast.ClassDef):
                found |= {(node.name, field): text for field, text in _below(node)}
    return found


def _below(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for attribute, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str() as said)):
                    yield attribute.target.id, said
