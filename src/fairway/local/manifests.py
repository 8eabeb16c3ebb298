"""The manifests that `fairway up` runs: found, read, checked as a whole, and watched for changes."""

import base64
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api import manifest
from fairway.api.manifest import Document, InvalidManifest, Problem
from fairway.api.names import GROUP
from fairway.api.yamlnode import Path as FieldPath
from fairway.local.environment import ConfigMissing, data_of

Key = tuple[str, str, str]
"""Kind, namespace and name."""

Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Path, time, size and inode of every file."""

DEFAULT_NAMESPACE = "default"
READ_AT_MOST = 16 << 20
STDIN = "-"

_SUFFIXES = (".yaml", ".yml", ".json")
_CORE_KINDS = frozenset({"ConfigMap", "Secret"})
_OF_THE_USER = frozenset({"name", "namespace", "labels", "annotations"})
_SILENTLY_SKIPPED = frozenset({"Namespace"})
_QUOTES = "put quotes around numbers and true or false"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Manifests:
    """Checked objects in the order of the files, by kind, namespace and name."""

    objects: Mapping[Key, Mapping[str, Any]]
    skipped: tuple[str, ...] = ()
    """Objects that mean something on a cluster and nothing here, in words."""


def load(
    paths: Sequence[str],
    *,
    stdin: Callable[[], bytes] = lambda: sys.stdin.buffer.read(),
    namespace: str = DEFAULT_NAMESPACE,
    every_kind: bool = False,
) -> Manifests:
    """Everything in the files and directories; raises InvalidManifest with all that is wrong anywhere.

    `namespace` is for objects that name none; `every_kind` takes those too that mean nothing in local mode.
    """
    problems: list[Problem] = []
    documents: list[Document] = []
    for path in paths:
        for file, content in _contents(path, stdin, problems):
            try:
                documents += manifest.parse(content, file=file)
            except InvalidManifest as invalid:
                problems += invalid.problems
    loaded = _collect(documents, problems, namespace, every_kind=every_kind)
    if not loaded.objects and not problems:
        problems.append(Problem(paths[0] if paths else ".", 1, 1, f"nothing to run: no object of {GROUP} in it"))
    if problems:
        raise InvalidManifest(problems)
    return loaded


def files_of(path: str) -> list[Path]:
    """The file itself, or the manifests right in the directory, in order of name."""
    place = Path(path)
    if not place.is_dir():
        return [place]
    return sorted(p for p in place.iterdir() if p.suffix in _SUFFIXES and not p.is_dir())


def fingerprint(paths: Sequence[str]) -> Fingerprint:
    """Differs when a file came, went or was written; cheap enough to ask for twice a second."""
    marks = []
    for file in (f for path in paths if path != STDIN for f in _listed(path)):
        try:
            stat = file.stat()
        except OSError:
            marks.append((str(file), 0, 0, 0))
        else:
            marks.append((str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(marks)


def _listed(path: str) -> list[Path]:
    try:
        return files_of(path)
    except OSError:
        return []


def _contents(path: str, stdin: Callable[[], bytes], problems: list[Problem]) -> Iterator[tuple[str, str]]:
    try:
        files = [] if path == STDIN else files_of(path)
        if not files and path != STDIN:
            problems.append(Problem(path, 1, 1, _no_manifest_in(path)))
    except OSError as error:
        problems.append(Problem(path, 1, 1, _in_words(error)))
        return
    sources = (
        [("stdin", stdin)] if path == STDIN else [(str(file), lambda file=file: _bytes_of(file)) for file in files]
    )
    for name, read in sources:
        try:
            yield name, read().decode()
        except UnicodeDecodeError as error:
            problems.append(Problem(name, 1, 1, f"not UTF-8 text: byte {error.start} cannot be read"))
        except OSError as error:
            problems.append(Problem(name, 1, 1, _in_words(error)))


def _bytes_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(READ_AT_MOST + 1)
    if len(content) > READ_AT_MOST:
        raise OSError(f"larger than {READ_AT_MOST >> 20} MiB")
    return content


def _no_manifest_in(path: str) -> str:
    endings = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
    below = "; directories in it are not read" if any(p.is_dir() for p in Path(path).iterdir()) else ""
    return f"the directory has no manifest ({endings}){below}"


def _in_words(error: OSError) -> str:
    return error.strerror.lower() if error.strerror else str(error)


def _collect(documents: Iterable[Document], problems: list[Problem], namespace: str, *, every_kind: bool) -> Manifests:
    objects: dict[Key, Mapping[str, Any]] = {}
    places: dict[Key, Document] = {}
    skipped: list[str] = []
    for document in documents:
        obj = _as_stored(document.object, namespace)
        kind, name = obj["kind"], obj["metadata"]["name"]
        key = (kind, obj["metadata"]["namespace"], name)
        complaint = _complaint(obj)
        if complaint is None and key in objects:
            first = places[key]
            complaint = (), f"{kind} {name} is there twice; the first is at {first.file}:{first.line}"
        if complaint is not None:
            problems.append(document.problem(*complaint))
        elif every_kind or _runs_here(obj):
            objects[key], places[key] = _with_plain_data(obj), document
        elif kind not in _SILENTLY_SKIPPED:
            skipped.append(f"{document.file}:{document.line}  {kind} {name} means nothing in local mode")
    return Manifests(objects, tuple(skipped))


def _as_stored(obj: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """As an API server would store it: in a namespace, without what only a server writes."""
    metadata = {k: v for k, v in obj["metadata"].items() if k in _OF_THE_USER}
    stored = {**obj, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
    stored.pop("status", None)
    return stored


def _with_plain_data(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Secret's stringData is only ever read as data."""
    if obj["kind"] != "Secret" or "stringData" not in obj:
        return obj
    given = {k: base64.b64encode(v.encode()).decode() for k, v in (obj["stringData"] or {}).items()}
    return {**{k: v for k, v in obj.items() if k != "stringData"}, "data": {**(obj.get("data") or {}), **given}}


def _runs_here(obj: Mapping[str, Any]) -> bool:
    if str(obj["apiVersion"]).split("/")[0] == GROUP:
        return True
    return obj["apiVersion"] == "v1" and obj["kind"] in _CORE_KINDS


def _complaint(obj: Mapping[str, Any]) -> tuple[FieldPath, str] | None:
    """What is wrong with the parts that the API types leave to Kubernetes, and at which path."""
    metadata = obj["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if not isinstance(namespace, str) or not _DNS_LABEL.fullmatch(namespace):
        what = f"{namespace!r} is no namespace (lower-case letters, digits and '-')"
        return ("metadata", "namespace"), f"metadata.namespace: {what}"
    if not _DNS_NAME.fullmatch(name):
        return ("metadata", "name"), f"metadata.name: {name!r} is no name (lower-case letters, digits, '-' and '.')"
    for field in ("labels", "annotations"):
        if not _is_text_by_key(metadata.get(field)):
            return ("metadata", field), f"metadata.{field}: every value must be a string; {_QUOTES}"
    if obj["kind"] in _CORE_KINDS and _runs_here(obj):
        return _data_complaint(obj)
    return None


def _data_complaint(obj: Mapping[str, Any]) -> tuple[FieldPath, str] | None:
    for field in ("data", "stringData", "binaryData"):
        if not _is_text_by_key(obj.get(field)):
            return (field,), f"{field}: every value of a {obj['kind']} must be a string; {_QUOTES}"
    try:
        data_of(obj)
    except ConfigMissing as wrong:
        return ("data",), f"data: {wrong}"
    return None


def _is_text_by_key(values: object) -> bool:
    return values is None or (isinstance(values, dict) and all(isinstance(v, str) for v in values.values()))
