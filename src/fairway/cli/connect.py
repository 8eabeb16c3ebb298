"""`fairway connect`: writes a server into the settings of an MCP client."""

import difflib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere


def main(arguments: list[str]) -> int:
    return typed.run(connect, arguments, verb="connect")


@somewhere
async def connect(
    where: Where,
    client: Annotated[str, typer.Argument(help="claude, cursor, vscode, windsurf, zed, goose, gemini or codex.")],
    server: Annotated[str, typer.Argument(help="Name of a server, or a URL.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="What the client calls it; default: its name.")] = "",
    client_id: Annotated[
        str, typer.Option(metavar="ID", help="OAuth client that is registered already, where none can register itself.")
    ] = "",
    token_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Send the token in this variable; the file names only the variable.")
    ] = "",
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in another place than usual.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
) -> int:
    """Makes a server known to an MCP client: fairway connect claude hello

    Shows the difference first and asks. Exit codes: 0 written or nothing to change, 1 not written, 2 an error.
    """
    from fairway.cli.address import address_of, is_url
    from fairway.cli.clients import Entry, Places, client_named
    from fairway.cli.found import the_object

    chosen = client_named(client)
    asks = False
    if is_url(server):
        if not name:
            raise Mistake("a URL has no name; say what the client shall call it with --name")
        url = server
    else:
        async with where.place() as place:
            url = await address_of(place, server)
            _, obj = await the_object(place, server)
            asks = "auth" in (obj.get("spec") or {})
    entry = Entry(name or server.rpartition("/")[2], url, token_env, client_id)
    path = file or chosen.file(Places(home=Path.home(), here=Path.cwd(), macos=sys.platform == "darwin"))
    before = _text_of(path)
    try:
        after = chosen.edit(before, entry)
    except ValueError as error:
        raise Mistake(f"{path}: {error}") from None
    if after == before:
        print(f"{chosen.title} knows {entry.name} already ({path})")
        return 0
    print(*difference(before, after, str(path)), sep="\n")
    if not yes and not _agreed(path):
        return 1
    _write(path, after)
    print(f"written; now {chosen.afterwards}")
    if asks and not token_env and not client_id:
        print(f"note: {entry.name} wants a token; where {chosen.title} cannot log in, --token-env names the variable")
    if token_env and token_env not in os.environ:
        print(f"note: {token_env} is not set here; set it where {chosen.title} is started")
    return 0


def difference(before: str, after: str, path: str) -> list[str]:
    """What would change, in the way of `diff -u`."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, n=2, lineterm="")
    return list(lines)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None


def _agreed(path: Path) -> bool:
    if not sys.stdin.isatty():
        print(f"not written: nobody is there to ask; --yes writes {path}", file=sys.stderr)
        return False
    answer = input(f"write {path}? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _write(path: Path, text: str) -> None:
    """As a whole, with the rights that the file had; a link is followed, as people keep such files elsewhere."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        scratch = target.with_name(f".{target.name}.fairway-new")
        scratch.unlink(missing_ok=True)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        scratch.replace(target)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror or error}") from None
