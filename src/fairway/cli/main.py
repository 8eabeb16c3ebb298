"""The program: finds the verb and hands over to its module. Nothing is imported here that not every verb needs."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fairway import __version__
from fairway.cli.verbs import VERBS, Verb

ERROR = 2
INTERRUPTED = 130

_HELP = f"""\
fairway {__version__}  MCP servers and AI agents on Kubernetes, and the same manifests on a laptop without it

usage: fairway VERB [ARGUMENTS]        fairway VERB --help says more

{{verbs}}

exit codes: 0 done, 1 a difference or an unmet condition, 2 and up an error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The console scripts `fairway` and `kubectl-fairway`, and `python -m fairway`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _honour_leash()
    try:
        return _dispatch(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return reader_has_enough()


def reader_has_enough() -> int:
    """`fairway crds | head` is no error: the rest is written to nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def operator() -> int:
    """The console script `fairway-operator`."""
    return main(["operator", *sys.argv[1:]])


def proxyrunner() -> int:
    """The console script `fairway-proxyrunner`."""
    return main(["proxyrunner", *sys.argv[1:]])


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        return _help(given[1:])
    if given[0] in ("-V", "--version"):
        given = ["version", *given[1:]]
    name, *rest = given
    verb = VERBS.get(name)
    if verb is None:
        print(f"fairway: there is no verb {name!r}{_nearest(name)}; see fairway --help", file=sys.stderr)
        return ERROR
    return _run(verb, rest)


def _help(rest: list[str]) -> int:
    if rest and rest[0] in VERBS:
        return _run(VERBS[rest[0]], ["--help"])
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {verb.help}" for name, verb in VERBS.items()]
    print(_HELP.format(verbs="\n".join(lines)), end="")
    return 0


def _run(verb: Verb, arguments: list[str]) -> int:
    module = import_module(verb.module)
    entry: Callable[[list[str]], int] = getattr(module, verb.entry)
    code = entry(arguments)
    sys.stdout.flush()  # here, where a broken pipe is still caught
    return code


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, VERBS, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _honour_leash() -> None:
    """A process that local mode started must not outlive it."""
    parent = os.environ.pop("FAIRWAY_LEASH", None)
    if parent is not None and parent.isdecimal():
        from fairway.local import leash

        leash.put_on(int(parent))
