"""Manifests as people write them: YAML in, checked objects out, and errors that name file, line, column and the fix."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from fairway.api import yamlnode
from fairway.api.crd import KINDS, Kind
from fairway.api.names import API_VERSION, GROUP
from fairway.api.plaintext import on_one_line
from fairway.api.yamlnode import Fault, Path

_SHOWN_AT_MOST = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a manifest, and where."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return on_one_line(f"{self.file}:{self.line}:{self.column}  {self.message}")


class InvalidManifest(ValueError):
    """All that is wrong with the manifests, in the order of the files."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest, as written, and the model it was checked against if the kind is ours."""

    file: str
    node: yaml.Node
    object: dict[str, Any]
    model: BaseModel | None

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def problem(self, path: Path, message: str) -> Problem:
        """Something wrong at a path of the object."""
        return _problem(self.node, self.file, path, message)


_KIND_BY_NAME: Mapping[str, Kind] = {kind.kind: kind for kind in KINDS}


def parse(text: str, *, file: str) -> list[Document]:
    """Every object of one file, those in a List too; raises InvalidManifest with all problems at once."""
    problems: list[Problem] = []
    documents: list[Document] = []
    try:
        for node in yamlnode.documents(text):
            for item in _items(node):
                try:
                    documents.append(_document(item, file))
                except InvalidManifest as invalid:
                    problems += invalid.problems
    except Fault as fault:
        problems.append(Problem(file, fault.line, fault.column, fault.message))
    if problems:
        raise InvalidManifest(problems)
    return documents


def _items(node: yaml.Node) -> list[yaml.Node]:
    """What `kubectl get -o yaml` wraps in a List, one by one."""
    if isinstance(node, yaml.MappingNode):
        fields = {key.value: value for key, value in node.value}
        head = tuple(getattr(fields.get(name), "value", None) for name in ("apiVersion", "kind"))
        if head == ("v1", "List") and isinstance(fields.get("items"), yaml.SequenceNode):
            return list(fields["items"].value)
    return [node]


def _document(node: yaml.Node, file: str) -> Document:
    def problem(path: Path, message: str) -> InvalidManifest:
        return InvalidManifest([_problem(node, file, path, message)])

    if not isinstance(node, yaml.MappingNode):
        raise problem((), "not a Kubernetes object: expected apiVersion, kind, metadata and spec")
    value = yamlnode.value_of(node)
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str):
            raise problem((key,), f"{key}: {_missing(value, key)}")
    api_version, kind_name = value["apiVersion"], value["kind"]
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        held = metadata if isinstance(metadata, dict) else {}
        raise problem(("metadata", "name"), f"metadata.name: {_missing(held, 'name')}")
    if api_version.split("/")[0] != GROUP:
        if kind_name in _KIND_BY_NAME:
            raise problem(("apiVersion",), f"apiVersion: {kind_name} is in {API_VERSION}, not {api_version}")
        return Document(file, node, value, None)
    if api_version != API_VERSION:
        raise problem(("apiVersion",), f"apiVersion: {api_version} is not served; use {API_VERSION}")
    kind = _KIND_BY_NAME.get(kind_name)
    if kind is None:
        raise problem(("kind",), f"kind: {kind_name} is not a kind of {GROUP}{_hint(kind_name, _KIND_BY_NAME)}")
    body = {k: v for k, v in value.items() if k not in ("apiVersion", "kind")}
    try:
        model = kind.model.model_validate(body)
    except ValidationError as error:
        problems = [_explain(e, kind, node, file) for e in error.errors()]
        raise InvalidManifest(sorted(problems, key=lambda p: (p.line, p.column))) from None
    return Document(file, node, value, model)


def _problem(node: yaml.Node, file: str, path: Path, message: str) -> Problem:
    mark = yamlnode.mark_of(node, path)
    return Problem(file, mark.line + 1, mark.column + 1, message)


def _missing(held: Mapping[str, Any], key: str) -> str:
    if held.get(key) is None:
        return "required"
    return f"must be a string; put quotes around {_shown(held[key])}"


def _explain(error: Any, kind: Kind, node: yaml.Node, file: str) -> Problem:
    path: Path = tuple(error["loc"])
    name = _dotted(path)
    given = error.get("input")
    match error["type"]:
        case "extra_forbidden":
            fields = _fields_at(kind.model, path[:-1])
            message = f"{name}: unknown field{_hint(str(path[-1]), fields, prefix=_dotted(path[:-1]))}"
        case "missing":
            message = f"{name}: required"
        case "value_error":
            message = str(error["ctx"]["error"])
            if message.startswith("metadata.name "):
                path = ("metadata", "name")
            else:
                message = f"{name}: {message}" if name else message
        case "literal_error":
            message = f"{name}: {_shown(given)} is not one of {error['ctx']['expected']}"
        case "string_type":
            scalar = given is not None and not isinstance(given, dict | list)
            message = f"{name}: must be a string{'; put quotes around it' if scalar else ''}"
        case "model_type" | "dict_type" | "list_type":
            message = f"{name}: must be a {'list' if error['type'] == 'list_type' else 'map'}"
        case _:
            untold = given is None or isinstance(given, dict | list) or error["type"] == "string_too_long"
            shown = "" if untold else f", not {_shown(given)}"
            message = f"{name}: {error['msg'][0].lower()}{error['msg'][1:]}{shown}"
    return _problem(node, file, path, message)


def _shown(given: Any) -> str:
    return on_one_line(json.dumps(given) if isinstance(given, bool | None) else repr(given), at_most=_SHOWN_AT_MOST)


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _hint(wrong: str, known: Mapping[str, Any] | list[str], *, prefix: str = "") -> str:
    candidates = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), candidates, n=1, cutoff=0.5)
    if close:
        best = candidates[close[0]]
        return f"; did you mean {prefix + '.' if prefix else ''}{best}?"
    return f"; known: {', '.join(sorted(known))}" if len(known) <= 12 else ""


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The field names that a model knows at a path."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            return []
        if isinstance(part, int) or part == "[key]":
            continue
        field = next((f for n, f in current.model_fields.items() if (f.alias or n) == part), None)
        if field is not None:
            current = _model_in(field.annotation)
    return [f.alias or n for n, f in current.model_fields.items()] if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)
