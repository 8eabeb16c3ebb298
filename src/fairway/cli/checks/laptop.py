"""Checks of local mode: the state directory and the `fairway up` that runs in it. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from fairway.cli.checks import Ailment, Check
from fairway.cli.checks.facts import Facts

_AHEAD = timedelta(minutes=2)


def _writable(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and not facts.laptop.writable:
        where = facts.laptop.directory
        yield f"{where} cannot be written", f"make it yours, or choose another: fairway up --state-dir DIR ({where})"


def _holder(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.holder:
        yield (
            f"process {facts.laptop.holder} holds {facts.laptop.directory}, and does not answer",
            f"if it is stopped (ctrl-z), let it go on; else end it: kill {facts.laptop.holder}",
        )


def _leftovers(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.leftovers:
        pids = ", ".join(map(str, facts.laptop.leftovers))
        yield f"processes of a run that was killed are still there: {pids}", "fairway down"


def _version(facts: Facts) -> Iterator[Ailment]:
    laptop = facts.laptop
    if laptop is not None and laptop.running and laptop.version != laptop.own_version:
        other = laptop.version or "an older version"
        yield (
            f"the `fairway up` that runs is {other}, and this program {laptop.own_version}",
            "stop it and start it anew",
        )


def _ports(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.ports_problem:
        where = f"{facts.laptop.directory}/ports.json"
        yield f"{where}: {facts.laptop.ports_problem}; servers get other ports than clients know", f"remove {where}"


def _clock(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.newest_file > facts.machine.now + _AHEAD:
        ahead = facts.laptop.newest_file - facts.machine.now
        yield (
            f"files in {facts.laptop.directory} are {int(ahead.total_seconds())} s from the future: the clock was set "
            "back, or is wrong",
            "set the clock; tokens are judged by it",
        )


def _token(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.token_problem:
        yield f"{facts.laptop.directory}/token {facts.laptop.token_problem}", "fairway up again writes a new one"


def _own_errors(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.errors:
        where = f"{facts.laptop.directory}/logs/fairway.log"
        yield (
            f"`fairway up` logged an error: {facts.laptop.errors[-1]}",
            f"read {where}; if it is a bug, report it with it",
        )


def _elsewhere(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is not None and facts.laptop.listening_elsewhere:
        where = ", ".join(facts.laptop.listening_elsewhere)
        yield (
            f"a server listens on {where}: others in your network reach it past the proxy",
            "let it listen on 127.0.0.1: many servers read HOST, some take --host",
        )


CHECKS = (
    Check("state-directory", "the state directory can be written", _writable),
    Check("up-silent", "the `fairway up` that holds the state directory answers", _holder),
    Check("leftovers", "nothing is left of a killed run", _leftovers),
    Check("up-version", "the `fairway up` that runs is of this version", _version),
    Check("ports-file", "the ports of servers are remembered", _ports),
    Check("clock-set-back", "the clock goes forward", _clock),
    Check("local-token", "the token for local servers is good", _token),
    Check("up-errors", "`fairway up` itself has no errors", _own_errors),
    Check("open-to-network", "servers listen on this machine only", _elsewhere),
)
