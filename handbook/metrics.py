"""Every metric that operator and proxy expose, found in the code that exposes them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fairway
from handbook.table import cell, table

_SOURCE = Path(fairway.__file__).parent
_TYPES = {
    "Counter": "counter",
    "Histogram": "histogram",
    "Gauge": "gauge",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
}
_PREFIX = "fairway"
"""Stands where code says `prefix`: of the operator, it is this."""
_INTRO = """\
# Metrics

In the text format of Prometheus. The operator serves them at `/metrics` of its setting `metrics-bind-address`, a proxy
at `/metrics` of its admin port (8081). [Monitor with Prometheus](../how-to/monitor.md) shows how to collect them, and
which to watch.
"""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: str
    about: str


def page() -> str:
    lines = [_INTRO]
    for heading, folders, also in (
        ("The operator", ("runtime", "controllers"), "Besides, what `process_*` says of every program."),
        ("A proxy", ("proxy",), ""),
    ):
        found = sorted({family for folder in folders for family in families(_SOURCE / folder)}, key=lambda f: f.name)
        lines += [f"## {heading}", ""]
        lines += table(("metric", "kind", "what"), [(f"`{f.name}`", f.kind, cell(f.about)) for f in found])
        lines += ["", also, ""] if also else [""]
    return "\n".join(lines).rstrip() + "\n"


def families(folder: Path) -> Iterator[Family]:
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield from _family(node)


def _family(call: ast.Call) -> Iterator[Family]:
    match call:
        case ast.Call(func=ast.Name(id=word), args=[name, ast.Constant(value=str() as about), *_]) if word in _TYPES:
            kind = _TYPES[word]
            full = _text(name)
            if kind == "counter" and not full.endswith("_total"):
                full += "_total"  # as the client library writes it
            yield Family(full, kind, about)
        case ast.Call(func=ast.Attribute(attr="family"), args=[name, ast.Constant(value=str() as kind), about, *_]):
            yield Family(_text(name), kind, _text(about))
        case ast.Call(func=ast.Attribute(attr="histogram"), args=[name, about, *_]):
            yield Family(_text(name), "histogram", _text(about))


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(p.value if isinstance(p, ast.Constant) else _PREFIX for p in parts)  # type: ignore[misc]
    raise TypeError(f"line {node.lineno}: a metric's name or text that is not written out")
