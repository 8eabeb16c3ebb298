"""The files in examples/: what each shows, where it runs, and the pages that list them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from handbook.table import cell, table

CLUSTER_ONLY = "Cluster only: "
_TELLING = 6
"""A field that more examples have is shown by all of them."""
EXAMPLE_CALL = "fairway.dev/example-call"
_FOLDERS = {
    "quickstart": "The quickstart: `make up` runs it",
    "sources": "Where a server comes from",
    "tools": "Which tools clients see",
    "access": "Who may come in, and what they may do",
    "traffic": "What happens to requests",
    "proxy": "What stands in front of the server",
    "publishing": "How it is reached from outside",
    "pods": "The server's pods",
}
_INTRO = """\
# Examples

One file for each source and feature, as short as it can be. `fairway up -f FILE` runs it on this machine; with
`--check` it also makes the example call and compares the answer. `kubectl apply -f FILE` runs it on a cluster, and
`fairway plan -f FILE` says what would be made of it.

Each is checked: against the CRDs in a real API server, by the controllers for what they make of it, and where it can
run on one machine, by running it.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One file."""

    path: Path
    """Below examples/."""
    about: str
    """The sentences of the comment that it begins with."""
    cluster_only: str
    """Why it cannot run on one machine; empty if it can."""
    text: str
    objects: tuple[dict[str, Any], ...]

    @property
    def servers(self) -> list[dict[str, Any]]:
        return [obj for obj in self.objects if obj["kind"] == "MCPServer"]


def examples(folder: Path) -> list[Example]:
    """In the order of the index. Raises ValueError for a file that does not begin by saying what it is."""
    found = [_read(file, folder) for file in sorted(folder.rglob("*.yaml"))]
    return sorted(found, key=lambda e: (list(_FOLDERS).index(e.path.parts[0]), e.path))


def _read(file: Path, folder: Path) -> Example:
    text = file.read_text()
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    if not comment:
        raise ValueError(f"{file}: begin with a comment that says what it shows")
    about, _, only = " ".join(comment).partition(CLUSTER_ONLY)
    objects = tuple(obj for obj in yaml.safe_load_all(text) if obj)
    return Example(file.relative_to(folder), about.strip(), only.strip(), text, objects)


def shown_in(folder: Path, kind: str) -> dict[str, list[str]]:
    """For each field of a spec the examples that have it, by their headings on the page."""
    found: dict[str, list[str]] = {}
    for example in examples(folder):
        for field in {field for obj in example.objects if obj["kind"] == kind for field in obj["spec"]}:
            found.setdefault(field, []).append(example.path.with_suffix("").as_posix())
    return {field: files for field, files in found.items() if len(files) <= _TELLING}


def index(folder: Path) -> str:
    """examples/README.md."""
    lines = [_INTRO]
    for heading, found in _by_folder(folder):
        lines += [f"## {heading}", ""]
        rows = [(f"[{e.path}]({e.path})", cell(e.about), _where(e)) for e in found]
        lines += [*table(("file", "what it shows", "on a laptop"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def page(folder: Path) -> str:
    """All of them with their text, for the site."""
    lines = [_INTRO.replace("# Examples\n", "# Examples\n\nThe files are in `examples/` of the repository.\n", 1)]
    for heading, found in _by_folder(folder):
        lines += [f"## {heading}", ""]
        for e in found:
            note = f" On a laptop: {_where(e)}"
            lines += [f"### {e.path.with_suffix('').as_posix()}", "", f"{_body(e.about)}{note}", ""]
            lines += [f'```yaml title="{e.path.name}"', _without_comment(e.text).strip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _by_folder(folder: Path) -> Iterator[tuple[str, list[Example]]]:
    everything = examples(folder)
    for name, heading in _FOLDERS.items():
        yield heading, [e for e in everything if e.path.parts[0] == name]


def _where(example: Example) -> str:
    return f"no: {_body(example.cluster_only)}" if example.cluster_only else "runs."


def _body(text: str) -> str:
    return cell(text).replace("\\|", "|")


def _without_comment(text: str) -> str:
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(lines[first:])
