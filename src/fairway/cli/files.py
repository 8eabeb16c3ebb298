"""Manifests for a place: read, checked, and in the order in which they can be applied."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli.mistake import Mistake

if TYPE_CHECKING:
    from fairway.cli.places import Place
    from fairway.kube.resource import Obj

Files = Annotated[
    list[str], typer.Option("--file", "-f", metavar="FILE_OR_DIR", help="Manifests; - for standard input. Repeatable.")
]

_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap", "MCPToolConfig")


def objects_of(files: Sequence[str], place: "Place", *, namespace: str) -> "list[Obj]":
    """Raises InvalidManifest, or Mistake where a manifest says another namespace than the user."""
    from fairway.local import manifests

    loaded = manifests.load(files, namespace=place.namespace, every_kind=not place.is_local)
    for note in loaded.skipped:
        typer.echo(note, err=True)
    objects = [dict(obj) for obj in loaded.objects.values()]
    for obj in objects:
        said = obj["metadata"]["namespace"]
        if namespace and said != namespace and obj["kind"] not in _FIRST[:2]:
            raise Mistake(f"{obj['kind']}/{obj['metadata']['name']} says namespace {said}, and --namespace {namespace}")
    return sorted(objects, key=lambda obj: _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST))
