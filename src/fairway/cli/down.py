"""`fairway down`: stops the `fairway up` of this folder."""

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import STATE_DIR


def main(arguments: list[str]) -> int:
    return typed.run(down, arguments, verb="down")


def down(
    state_dir: Annotated[Path, typer.Option(metavar="DIR", help="State directory of `fairway up`.")] = STATE_DIR,
) -> int:
    """Stops the `fairway up` of this folder and every process of it, and waits until they are gone.

    Ports and logs are kept. Exit codes: 0 nothing runs any more, 2 it could not be stopped.
    """
    from fairway.local.background import stop

    try:
        ended = stop(state_dir)
    except TimeoutError as error:
        raise Mistake(str(error)) from None
    except OSError as error:
        raise Mistake(f"{error.filename or state_dir}: {(error.strerror or str(error)).lower()}") from None
    print("stopped" if ended else f"nothing runs in {state_dir}")
    return 0
