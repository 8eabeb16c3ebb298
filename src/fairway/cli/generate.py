"""`fairway generate`: what Fairway makes, as text: objects of a manifest, the install manifest, schemas."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake


class What(StrEnum):
    """Kinds of output."""

    OBJECTS = "objects"
    INSTALL = "install"
    SCHEMA = "schema"


def main(arguments: list[str]) -> int:
    return typed.run(generate, arguments, verb="generate")


def generate(
    what: Annotated[
        What,
        typer.Argument(
            help="objects: what a manifest becomes; install: the operator; schema: JSON Schema for editors."
        ),
    ],
    files: Annotated[
        list[str] | None, typer.Option("--file", "-f", metavar="FILE_OR_DIR", help="Manifests, for objects.")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME")] = "",
    image: Annotated[str, typer.Option(metavar="REF", help="Fairway image that the objects name.")] = "",
    kind: Annotated[str, typer.Option(metavar="KIND", help="Of the schema.")] = "MCPServer",
) -> int:
    """Prints YAML or JSON and asks no cluster: fairway generate objects -f hello.yaml

    Exit codes: 0 printed, 2 an error.
    """
    import asyncio

    from fairway.api.crd import to_yaml
    from fairway.api.manifest import InvalidManifest
    from fairway.controllers.operator import DEFAULT_IMAGE

    if (what is What.OBJECTS) != bool(files):
        raise Mistake("objects are those of manifests: give --file with it, and with nothing else")
    match what:
        case What.INSTALL:
            from fairway.controllers import install

            made = install.objects(image=image or DEFAULT_IMAGE, namespace=namespace or install.NAMESPACE)
            print(to_yaml(*made), end="")
        case What.SCHEMA:
            print(json.dumps(schema(kind), indent=2))
        case What.OBJECTS:
            try:
                made = asyncio.run(objects(files or (), namespace=namespace or "default", image=image or DEFAULT_IMAGE))
            except InvalidManifest as invalid:
                raise Mistake(str(invalid), bare=True) from None
            print(to_yaml(*made), end="")
    return 0


def schema(kind: str) -> dict[str, Any]:
    """For `# yaml-language-server: $schema=...` and its like: strict, so that a typo is underlined."""
    from fairway.api.crd import schema_of
    from fairway.api.names import API_VERSION
    from fairway.cli.kinds import kind_named

    found = kind_named(kind)
    described = _strict(schema_of(found.model))
    described["properties"] = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": found.kind},
        **described["properties"],
        "metadata": {"type": "object", "required": ["name"]},
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": found.kind, **described}


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _strict(value) for key, value in node.items() if not key.startswith("x-kubernetes-")}
    if "properties" in node and not node.get("x-kubernetes-preserve-unknown-fields"):
        kept.setdefault("additionalProperties", False)
    return kept


async def objects(files: Sequence[str], *, namespace: str, image: str) -> list[dict[str, Any]]:
    """What the operator would make in an empty cluster. Raises Mistake where it would make nothing."""
    from fairway.controllers.contents import ContentReader
    from fairway.controllers.rehearsal import rehearse
    from fairway.controllers.resources import CATALOGUE
    from fairway.controllers.settings import Settings
    from fairway.kube.resource import CONFIG_MAP, SECRET, Resource
    from fairway.local import manifests

    catalogue = CATALOGUE.plus((SECRET,))
    given = {
        catalogue.ref(obj): {**obj, "metadata": {**obj["metadata"], "uid": "not-yet", "generation": 1}}
        for obj in manifests.load(files, namespace=namespace).objects.values()
    }

    async def fetch(resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        return given.get(resource.ref(namespace, name))

    verdicts = await rehearse(
        given.values(),
        settings=Settings(image=image),
        contents=ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=fetch),
        catalogue=catalogue,
        hash_annotation=None,
    )
    made: list[dict[str, Any]] = []
    for verdict in verdicts:
        if not verdict.acts and verdict.status.get("message"):
            raise Mistake(f"{verdict.owner['kind']} {verdict.owner['metadata']['name']}: {verdict.status['message']}")
        # the key that proxies seal sessions with is made in the cluster, at random, and is nothing to print
        wanted = [c.wanted for c in verdict.changes if c.wanted is not None and c.ref.resource != SECRET]
        made += map(_bare, wanted)
    return made


def _bare(obj: dict[str, Any]) -> dict[str, Any]:
    """Without an owner, which is known only in the cluster."""
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}}
