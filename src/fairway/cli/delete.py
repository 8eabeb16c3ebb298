"""`fairway delete`: objects by manifest or by name."""

import sys
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.files import objects_of
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere


def main(arguments: list[str]) -> int:
    return typed.run(delete, arguments, verb="delete")


@somewhere
async def delete(
    where: Where,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="A server, or KIND/NAME.")] = None,
    files: Annotated[
        list[str] | None, typer.Option("--file", "-f", metavar="FILE_OR_DIR", help="Everything in these manifests.")
    ] = None,
) -> int:
    """Deletes objects, and with them all that was made for them: fairway delete hello, fairway delete -f hello.yaml

    Exit codes: 0 deleted, 1 something was not there, 2 an error.
    """
    from fairway.cli.kinds import kind_and_name, resource_of

    if not names and not files:
        raise Mistake("name what to delete, or give manifests with --file")
    async with where.place() as place:
        refs = [resource_of(kind).ref(place.namespace, name) for kind, name in map(kind_and_name, names or ())]
        if files:
            objects = objects_of(files, place, namespace=where.namespace)
            for obj in reversed(objects):
                resource = await place.resource_of(obj)
                refs.append(resource.ref(obj["metadata"].get("namespace"), obj["metadata"]["name"]))
        missing = 0
        async for ref, was_there in place.delete(refs):
            if was_there:
                print(f"deleted    {ref}", flush=True)
            else:
                missing += 1
                print(f"not there  {ref}", file=sys.stderr)
    return 1 if missing else 0
