"""`fairway completion`: what a shell needs to complete verbs, options, kinds and names of servers."""

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence

from fairway.cli.verbs import VERBS

_SHELLS = {
    "bash": """\
_fairway() {
    local IFS=$'\\n'
    COMPREPLY=($(fairway completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _fairway fairway
""",
    "zsh": """\
#compdef fairway
_fairway() {
    local -a found
    found=("${(@f)$(fairway completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -- $found || _files
}
compdef _fairway fairway
""",
    "fish": """\
complete -c fairway -f -a '(fairway completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
complete -c fairway -s f -l file -r -F
""",
}
_HELP = """\
usage: fairway completion bash|zsh|fish

prints a script that completes verbs, options and names of servers:

  bash   eval "$(fairway completion bash)"                 in ~/.bashrc
  zsh    eval "$(fairway completion zsh)"                  in ~/.zshrc
  fish   fairway completion fish | source                  in ~/.config/fish/config.fish

for `kubectl fairway`, put a program kubectl_complete-fairway into PATH that runs: fairway completion words -- "$@"
"""
_NAMES_OF_SERVERS = frozenset({"describe", "logs", "wait", "call", "tools", "inspect", "delete", "get"})


def main(arguments: list[str]) -> int:
    match arguments:
        case ["-h"] | ["--help"]:
            print(_HELP, end="")
        case [shell] if shell in _SHELLS:
            print(_SHELLS[shell], end="")
        case ["words", "--", *given]:
            print(*words(given), sep="\n")
        case _:
            print(f"fairway completion: expected one of {', '.join(_SHELLS)}", file=sys.stderr)
            return 2
    return 0


def words(given: Sequence[str]) -> list[str]:
    """What the last of these words could become."""
    *before, last = given or [""]
    if not before:
        candidates: Iterator[str] = iter(VERBS)
    elif before[0] == "help" or before[0] not in VERBS:
        candidates = iter(VERBS if before == ["help"] else ())
    elif last.startswith("-"):
        candidates = options_of(before[0])
    else:
        candidates = iter(_values(before))
    return sorted(word for word in set(candidates) if word.startswith(last))


def options_of(verb: str) -> Iterator[str]:
    """The long options that typer would read."""
    if not VERBS[verb].module.startswith("fairway.cli."):
        return
    from typer.models import OptionInfo

    module = importlib.import_module(VERBS[verb].module)
    command = getattr(module, verb, None)
    if not callable(command):
        return
    yield "--help"
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        for about in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(about, OptionInfo):
                # typer sorts out later that what looks like a default is a name
                given = (about.default, *(about.param_decls or ()))
                declared = [d for d in given if isinstance(d, str) and d.startswith("--")]
                yield from declared or [f"--{name.replace('_', '-')}"]


def _values(before: Sequence[str]) -> list[str]:
    verb = before[0]
    if verb == "connect" and len(before) == 1:
        from fairway.cli.clients import CLIENTS

        return [client.name for client in CLIENTS]
    if verb == "get" and len(before) == 1:
        from fairway.api.crd import KINDS

        return [*(kind.plural for kind in KINDS), *_servers()]
    if verb in _NAMES_OF_SERVERS or verb == "connect":
        return _servers()
    return []


def _servers() -> list[str]:
    """Of the `fairway up` of this folder: a cluster is not asked at every press of a key."""
    from fairway.cli.servers import UnknownServer, known_servers
    from fairway.cli.where import STATE_DIR

    try:
        return [name.removeprefix("default/") for name in known_servers(STATE_DIR)]
    except UnknownServer:
        return []
