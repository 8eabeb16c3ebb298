"""`fairway wait`: until a condition holds, for scripts."""

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere

_LOOK_EVERY = 0.25


def main(arguments: list[str]) -> int:
    return typed.run(wait, arguments, verb="wait")


@somewhere
async def wait(
    where: Where,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Default: every server of the namespace.")
    ] = None,
    what: Annotated[
        str,
        typer.Option("--for", metavar="WHAT", help="A condition, as Ready or Degraded=False; phase=WORD; delete."),
    ] = "Ready",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds; 0 looks once.")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing; the exit code tells.")] = False,
) -> int:
    """Waits until objects are as they should be: fairway wait hello --for Ready --timeout 30

    A condition counts only if it was observed of the newest generation. Exit codes: 0 all are, 1 not in time, 2 error.
    """
    from fairway.cli.kinds import DEFAULT, kind_and_name, resource_of

    holds = _meaning_of(what)
    deadline = time.monotonic() + timeout
    async with where.place() as place:
        targets = [kind_and_name(name) for name in names or ()]
        if not targets:
            everything = await place.list(resource_of(DEFAULT), place.namespace)
            targets = [(DEFAULT, obj["metadata"]["name"]) for obj in everything]
            if not targets:
                raise Mistake(f"there is no {DEFAULT.kind} in namespace {place.namespace} of {place.title}")
        while True:
            found = [(f"{k.kind}/{n}", await place.get(resource_of(k), place.namespace, n)) for k, n in targets]
            missing = [(title, obj) for title, obj in found if not holds(obj)]
            if not missing:
                if not quiet:
                    print(*(f"{title}  {what}" for title, _ in found), sep="\n")
                return 0
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(_LOOK_EVERY)
    if not quiet:
        for title, obj in missing:
            typer.echo(f"{title}  not {what} after {timeout:g} s: {_instead(obj)}", err=True)
    return 1


def _meaning_of(what: str) -> Any:
    """A function of the object, or of None where there is none."""
    name, equals, value = what.removeprefix("condition=").partition("=")
    if what == "delete":
        return lambda obj: obj is None
    if name == "phase" and value:
        return lambda obj: obj is not None and _fresh(obj) and (obj.get("status") or {}).get("phase") == value
    wanted = value if equals else "True"
    if not name or wanted.capitalize() not in ("True", "False", "Unknown"):
        raise Mistake(f"--for {what!r}: expected a condition such as Ready or Degraded=False, phase=WORD, or delete")

    def holds(obj: Mapping[str, Any] | None) -> bool:
        return obj is not None and _fresh(obj) and _condition(obj, name).get("status") == wanted.capitalize()

    return holds


def _fresh(obj: Mapping[str, Any]) -> bool:
    seen = (obj.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= obj["metadata"].get("generation", 0))


def _condition(obj: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"].lower() == name.lower()), {})


def _instead(obj: Mapping[str, Any] | None) -> str:
    if obj is None:
        return "it does not exist"
    ready = _condition(obj, "Ready")
    if not ready:
        return "it has no status yet; does an operator run?"
    if not _fresh(obj):
        return "the operator has not seen its newest generation yet"
    return f"Ready={ready['status']} {ready['reason']} {ready.get('message', '')}".strip()
