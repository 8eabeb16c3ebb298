"""`fairway apply`: manifests, checked here and then applied."""

from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.files import Files, objects_of
from fairway.cli.where import Where, somewhere


def main(arguments: list[str]) -> int:
    return typed.run(apply, arguments, verb="apply")


@somewhere
async def apply(
    where: Where,
    files: Files,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that others own, such as kubectl or Argo CD.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check; `fairway plan` shows more.")] = False,
) -> int:
    """Applies manifests to a cluster, or to the running `fairway up`: server-side, so that others' fields stay theirs.

    Every file is checked before anything is written. Exit codes: 0 applied, 2 an error.
    """
    async with where.place() as place:
        objects = objects_of(files, place, namespace=where.namespace)
        if dry_run:
            for obj in objects:
                await place.dry_run(obj, force=force_conflicts)
                print(f"valid      {obj['kind']}/{obj['metadata']['name']}")
            return 0
        async for obj, outcome in place.apply(objects, force=force_conflicts):
            print(f"{outcome:<10} {obj['kind']}/{obj['metadata']['name']}", flush=True)
    return 0
