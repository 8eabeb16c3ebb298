"""Manifests as people write them: YAML in, checked objects out, and errors that name file, line, column and the fix."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from fairway.api.crd import KINDS, Kind
from fairway.api.names import API_VERSION, GROUP

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a manifest, and where."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}  {self.message}"


class InvalidManifest(ValueError):
    """All that is wrong with the manifests, in the order of the files."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest, as written, and the model it was checked against if the kind is ours."""

    file: str
    line: int
    object: dict[str, Any]
    model: BaseModel | None


_KIND_BY_NAME: Mapping[str, Kind] = {kind.kind: kind for kind in KINDS}


def parse(text: str, *, file: str) -> list[Document]:
    """Every object of one file; raises InvalidManifest with all problems at once."""
    problems: list[Problem] = []
    documents: list[Document] = []
    for node in _nodes(text, file):
        try:
            documents.append(_document(node, file))
        except InvalidManifest as invalid:
            problems += invalid.problems
    if problems:
        raise InvalidManifest(problems)
    return documents


def _nodes(text: str, file: str) -> Iterator[yaml.Node]:
    try:
        yield from (n for n in yaml.compose_all(text, Loader=yaml.SafeLoader) if not _is_empty(n))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = error.problem or error.context or "not YAML"
        raise InvalidManifest([Problem(file, line, column, f"not valid YAML: {what}")]) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - (before.rfind("\n") + 1) + 1
        message = f"not valid YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        raise InvalidManifest([Problem(file, before.count("\n") + 1, column, message)]) from None
    except RecursionError:
        raise InvalidManifest([Problem(file, 1, 1, "not a manifest: nested too deeply")]) from None


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


class _Constructor(yaml.SafeLoader):
    """Builds objects as Kubernetes reads YAML: a time stamp stays a string."""


_Constructor.add_constructor(
    "tag:yaml.org,2002:timestamp",
    lambda loader, node: loader.construct_scalar(node),  # type: ignore[arg-type]
)


def _document(node: yaml.Node, file: str) -> Document:
    def problem(path: Path, message: str) -> InvalidManifest:
        mark = _mark(node, path)
        return InvalidManifest([Problem(file, mark.line + 1, mark.column + 1, message)])

    if not isinstance(node, yaml.MappingNode):
        raise problem((), "not a Kubernetes object: expected apiVersion, kind, metadata and spec")
    duplicate = _duplicate_key(node)
    if duplicate is not None:
        mark = duplicate.start_mark
        raise InvalidManifest([Problem(file, mark.line + 1, mark.column + 1, f"{duplicate.value}: given twice")])
    try:
        value = _Constructor("").construct_document(node)
    except (yaml.MarkedYAMLError, RecursionError, ValueError) as error:
        raise problem((), f"not valid YAML: {getattr(error, 'problem', None) or error}") from None
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str):
            raise problem((key,) if key in value else (), f"{key}: missing or not a string")
    api_version, kind_name = value["apiVersion"], value["kind"]
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise problem(("metadata",) if metadata else (), "metadata.name: missing or not a string")
    line = node.start_mark.line + 1
    if api_version.split("/")[0] != GROUP:
        if kind_name in _KIND_BY_NAME:
            raise problem(("apiVersion",), f"apiVersion: {kind_name} is in {API_VERSION}, not {api_version}")
        return Document(file, line, value, None)
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
    return Document(file, line, value, model)


def _duplicate_key(root: yaml.Node) -> yaml.ScalarNode | None:
    """YAML libraries let the last one win in silence; a person who wrote a key twice wants to know."""
    waiting, visited = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:  # an alias may stand in many places, or in itself
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                        return key
                    seen.add(key.value)
                waiting.append(value)
    return None


def _mark(node: yaml.Node, path: Path) -> Any:
    """Where a path starts: the key if it exists, else the nearest part of it that does."""
    mark = node.start_mark
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == part), None)
            if pair is None:
                return mark
            mark, node = pair[0].start_mark, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
        else:
            return mark
    return mark


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
            message = f"{name}: {error['ctx']['error']}" if name else str(error["ctx"]["error"])
        case "literal_error":
            message = f"{name}: {given!r} is not one of {error['ctx']['expected']}"
        case _:
            shown = "" if isinstance(given, dict | list) else f", not {given!r}"
            message = f"{name}: {error['msg'][0].lower()}{error['msg'][1:]}{shown}"
    mark = _mark(node, path)
    return Problem(file, mark.line + 1, mark.column + 1, message)


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
