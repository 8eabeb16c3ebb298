"""`fairway inspect`: opens the MCP Inspector on a server."""

import os
import shutil
import sys
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere

PACKAGE = "@modelcontextprotocol/inspector"


def main(arguments: list[str]) -> int:
    return typed.run(inspect, arguments, verb="inspect")


@somewhere
async def inspect(
    where: Where,
    server: Annotated[str, typer.Argument(help="Name of a server, or a URL.")],
    text: Annotated[bool, typer.Option("--cli", help="List the tools as JSON in this terminal instead.")] = False,
    version: Annotated[str, typer.Option(metavar="VERSION", help="Of the Inspector.")] = "latest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command only.")] = False,
) -> int:
    """Opens the MCP Inspector on a server; it comes through npx, and needs Node.js: fairway inspect hello

    Exit codes: those of the Inspector; 2 if it cannot be started.
    """
    from fairway.cli.address import address_of, is_url

    url = server
    if not is_url(server):
        async with where.place() as place:
            url = await address_of(place, server)
    words = command(url, text=text, version=version)
    if dry_run:
        print(*words)
        return 0
    program = shutil.which(words[0])
    if program is None:
        raise Mistake(
            f"the MCP Inspector needs Node.js, and npx is not in PATH; install Node.js 22 or newer, or use "
            f"fairway tools {server} and fairway call {server}"
        )
    print("starting the MCP Inspector; ctrl-c ends it", file=sys.stderr, flush=True)
    # npx takes over this process, its signals and its exit code
    raise SystemExit(os.execv(program, [program, *words[1:]]))  # noqa: S606


def command(url: str, *, text: bool, version: str) -> list[str]:
    """What is run."""
    words = ["npx", "--yes", f"{PACKAGE}@{version}"]
    if text:
        return [*words, "--cli", url, "--transport", "http", "--method", "tools/list"]
    return [*words, "--transport", "http", "--server-url", url]
