"""`fairway init`: writes a manifest to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake


def main(arguments: list[str]) -> int:
    return typed.run(init, arguments, verb="init")


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the server; default: after what it runs.")] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGUMENT", help="Arguments of the server.")
    ] = None,
    image: Annotated[str, typer.Option(metavar="REF", help="A container image.")] = "",
    pypi: Annotated[str, typer.Option(metavar="NAME==VERSION", help="A Python package.")] = "",
    npm: Annotated[str, typer.Option(metavar="NAME@VERSION", help="A package for Node.")] = "",
    command: Annotated[str, typer.Option(metavar="'WORDS'", help="A command that speaks MCP over stdio.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port that the image listens on; default 8080.")] = 0,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Default NAME.yaml; - prints it.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> int:
    """Writes a commented manifest that applies as it is: fairway init time --pypi mcp-server-time==2026.10.19

    Without a source, it has a tool in Python to change. Exit codes: 0 written, 2 an error.
    """
    from fairway.api.manifest import InvalidManifest, parse
    from fairway.cli.starter import Wish, manifest

    if port and not image:
        raise Mistake("--port goes with --image")
    wish = Wish(name, image, pypi, npm, command, port, tuple(arguments or ()))
    name, text = manifest(wish)
    path = Path(output or f"{name}.yaml")
    try:
        parse(text, file=str(path))
    except InvalidManifest as invalid:  # something in the user's words that the kind does not take
        raise Mistake("; ".join(problem.message for problem in invalid.problems)) from None
    if output == "-":
        print(text, end="")
        return 0
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Mistake(f"{path} is there already; choose another --output, or --force to replace it") from None
    except OSError as error:
        raise Mistake(f"{path}: {(error.strerror or str(error)).lower()}") from None
    print(f"written {path}; try: fairway up -f {path}")
    return 0
