"""`fairway up`: manifests on this machine, without a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.local.ports import FIRST_PORT


def main(arguments: list[str]) -> int:
    return typed.run(up, arguments, verb="up")


def up(
    files: Annotated[
        list[str],
        typer.Option("--file", "-f", metavar="FILE_OR_DIR", help="Manifests; - for standard input. Repeatable."),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Follow changes of the manifests.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Wait for every server, list its tools, make the example calls, stop."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Go on in the background once all is ready; fairway down stops it.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="How long --check and --detach wait for the servers, in seconds.")
    ] = 60.0,
    port_base: Annotated[int, typer.Option(min=1, max=65535, help="Servers listen from this port on.")] = FIRST_PORT,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where logs, ports and running state are kept.", file_okay=False)
    ] = Path(".fairway"),
) -> int:
    """Runs manifests on this machine: the same objects, controllers and status as on a cluster, without one.

    Every server gets a lasting port on 127.0.0.1; nothing leaves this machine. Ctrl-c stops them all.
    """
    from fairway.local.up import Up, run

    if detach and check:
        raise Mistake("--check stops when it is through, so there is nothing to --detach: leave one of them out")
    wanted = Up(files=tuple(files), watch=watch, check=check, timeout=timeout, port_base=port_base, state=state_dir)
    if detach:
        from fairway.local.background import start

        return start(wanted)
    return run(wanted)
