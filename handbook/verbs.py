"""The command line as a page: each verb with its arguments and options, from what it reads them by."""

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Literal, get_args, get_origin
from unittest import mock

import typer

from fairway.cli import typed
from fairway.cli.verbs import VERBS, Verb
from handbook.table import cell, table

_INTRO = """\
# Command line

`fairway VERB --help` says the same. `kubectl fairway` is the same program. Exit codes are 0 when done, 1 for a
difference or an unmet condition, 2 and up for something to fix, 130 when interrupted.

Verbs with `--context` and `--local` work on a cluster and on the `fairway up` of a folder alike: on the one that runs
in this folder if there is one, else on the cluster that kubectl would use.

`eval "$(fairway completion bash)"` completes verbs, options and names; zsh and fish are served too.
"""
_LISTS = Verb("fairway.cli.toollist", "list the tools of a server")
"""What `fairway tools SERVER` is; `fairway tools --file` is the verb of the same name."""


class _Caught(BaseException):
    """What a verb was about to read its arguments by."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader


def page() -> str:
    lines = [_INTRO, *table(("verb", "what it does"), [(f"[`{n}`](#{n})", cell(v.help)) for n, v in VERBS.items()])]
    for name, verb in VERBS.items():
        lines += ["", f"## {name}", ""]
        if name == "tools":
            lines += [*_verb(name, _LISTS), "", "With a file, it serves the functions in it instead:", ""]
        lines += _verb(name, verb)
    return "\n".join(lines) + "\n"


def _verb(name: str, verb: Verb) -> Iterator[str]:
    entry: Callable[[list[str]], int] = getattr(import_module(verb.module), verb.entry)
    reader = _reader(entry)
    if reader is None:
        yield from ("<!-- not run: this is what --help prints -->", "```text", _help(entry).strip(), "```")
    elif isinstance(reader, argparse.ArgumentParser):
        yield from _of_argparse(reader)
    else:
        yield from _of_typer(reader, name)


def _reader(entry: Callable[[list[str]], int]) -> Any:
    def caught(reader: Any, *_: Any, **__: Any) -> Any:
        raise _Caught(reader)

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", caught),
        mock.patch.object(typed, "run", caught),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            entry([])
        except _Caught as found:
            return found.reader
    return None


def _help(entry: Callable[[list[str]], int]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        entry(["--help"])
    return said.getvalue()


def _of_typer(command: Callable[..., int], name: str) -> Iterator[str]:
    read: Any = typer.main.get_command(typed.application(command, verb=name))
    arguments = [p for p in read.params if p.param_type_name == "argument"]
    options = [p for p in read.params if p.param_type_name == "option"]
    shown = " ".join(_argument(p) for p in arguments)
    yield f"`fairway {name} {shown}{' ' if shown else ''}[OPTIONS]`"
    yield ""
    yield cell(read.help or "").replace(" Exit codes:", "\n\nExit codes:")
    yield ""
    rows = [(f"`{_argument(p)}`", "", cell(p.help or "")) for p in arguments]
    rows += [(_option(p), _default(p), cell(p.help or "")) for p in options]
    yield from table(("argument", "default", "what"), rows)


def _argument(parameter: Any) -> str:
    word = str(parameter.metavar or parameter.name.upper())
    word = word if parameter.required else f"[{word}]"
    return word + ("..." if parameter.nargs == -1 else "")


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))
    if parameter.is_flag:
        return names
    wanted = parameter.type_descriptor.annotation
    choices = get_args(wanted) if get_origin(wanted) is Literal else ()
    value = "\\|".join(choices) or parameter.metavar or ("N" if wanted in (int, float) else "VALUE")
    return f"{names} {value}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if not default:
        return ""
    return f"`{f'{default:g}' if isinstance(default, float) else default}`"


def _of_argparse(parser: argparse.ArgumentParser) -> Iterator[str]:
    words = [_positional(a) for a in parser._actions if not a.option_strings]
    usage = parser.usage or " ".join([parser.prog, *words, "[OPTIONS]"])
    yield f"`{usage}`"
    yield ""
    yield cell(parser.description or "")
    yield ""
    rows = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        if isinstance(action, argparse._SubParsersAction):
            continue
        help_text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        rows.append((_names(action), "required" if action.required and action.option_strings else "", cell(help_text)))
    if rows:
        yield from table(("argument", "", "what"), rows)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield ""
                yield from _of_argparse(below)


def _positional(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction) or action.choices:
        return "|".join(str(choice) for choice in action.choices or ())
    return str(action.metavar or action.dest.upper()) + ("..." if action.nargs == "*" else "")


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_positional(action)}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.nargs == 0:
        return names
    value = "\\|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())
    return f"{names} {value}".replace("true|false", "true\\|false").replace("kubernetes|FILE", "kubernetes\\|FILE")
