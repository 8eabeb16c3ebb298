"""`fairway get`: the objects of a cluster or of local mode, with the columns that kubectl shows."""

from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.output import OutputOption, print_objects
from fairway.cli.where import Where, somewhere


def main(arguments: list[str]) -> int:
    return typed.run(get, arguments, verb="get")


@somewhere
async def get(
    where: Where,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="mcpservers (the default), mcps, ...; all; or a name.")
    ] = "",
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these.")] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of every namespace.")] = False,
    output: OutputOption = "table",
) -> int:
    """Lists servers, or objects of another kind: fairway get, fairway get hello, fairway get mcptoolconfigs

    Exit codes: 0 found, 1 a name that was asked for is not there, 2 could not ask.
    """
    from fairway.api.crd import KINDS
    from fairway.cli.kinds import DEFAULT, is_kind, kind_and_name, kind_named, resource_of, utc_now

    wanted = list(names or ())
    if "/" in kind:
        chosen, name = kind_and_name(kind)
        kinds = [chosen]
        wanted.insert(0, name)
    elif kind == "all":
        kinds = list(KINDS)
    elif kind and not is_kind(kind):
        kinds = [DEFAULT]
        wanted.insert(0, kind)
    else:
        kinds = [kind_named(kind) if kind else DEFAULT]
    if wanted and all_namespaces:
        raise Mistake("a name is in one namespace: leave out --all-namespaces, or the name")
    async with where.place() as place:
        objects = []
        for one in kinds:
            found = await place.list(resource_of(one), None if all_namespaces else place.namespace)
            objects += sorted(found, key=lambda o: (o["metadata"]["namespace"], o["metadata"]["name"]))
        there = {obj["metadata"]["name"] for obj in objects}
        missing = [name for name in wanted if name not in there]
        if wanted:
            objects = [obj for obj in objects if obj["metadata"]["name"] in wanted]
        if objects or output in ("json", "yaml"):
            print_objects(objects, output, now=utc_now(), several_namespaces=all_namespaces)
        _tell_missing(missing, there, place.namespace, place.title)
        if not objects and not missing and output not in ("json", "yaml"):
            typer.echo(f"nothing found {_in(all_namespaces, place.namespace)} of {place.title}", err=True)
    return 1 if missing else 0


def _in(everywhere: bool, namespace: str) -> str:
    return "in any namespace" if everywhere else f"in namespace {namespace}"


def _tell_missing(missing: list[str], there: set[str], namespace: str, title: str) -> None:
    from difflib import get_close_matches

    for name in missing:
        close = get_close_matches(name, there, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        typer.echo(f"fairway get: there is no {name} in namespace {namespace} of {title}{hint}", err=True)
