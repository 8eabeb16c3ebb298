"""Runs a typed function as a verb: typer reads its parameters, and what it returns is the exit code."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import typer

from fairway.cli.main import ERROR, INTERRUPTED, reader_has_enough
from fairway.cli.mistake import Mistake


def run(command: Callable[..., int], arguments: list[str], *, verb: str) -> int:
    """Plain text only: help and errors read the same in a log as on a terminal."""

    @functools.wraps(command)
    def ending(*args: Any, **options: Any) -> None:
        try:
            code = command(*args, **options)
            sys.stdout.flush()
        except Mistake as mistake:
            sys.stdout.flush()
            print(mistake if mistake.bare else f"fairway {verb}: {mistake}", file=sys.stderr)
            code = ERROR
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError:  # typer would make an error of it
            code = reader_has_enough()
        raise typer.Exit(code)

    try:
        application(ending, verb=verb)(arguments, prog_name=f"fairway {verb}")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 2
    return 0


def application(command: Callable[..., Any], *, verb: str) -> typer.Typer:
    """The verb as typer sees it."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(verb)(command)
    return app
