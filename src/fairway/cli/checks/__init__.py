"""What `fairway doctor` looks for: each check a small pure function of the facts that were gathered."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fairway.cli.checks.facts import Facts

Ailment = tuple[str, str]
"""What is wrong, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look for. `look` yields nothing where all is well, or where it does not apply."""

    name: str
    about: str
    look: Callable[[Facts], Iterable[Ailment]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    check: str
    what: str
    do: str


def checks() -> tuple[Check, ...]:
    """All of them, in the order in which a person would look: the machine, the place, then each server."""
    from fairway.cli.checks import cluster, laptop, machine, servers

    return (*machine.CHECKS, *laptop.CHECKS, *cluster.CHECKS, *servers.CHECKS)


def findings(facts: Facts, among: Iterable[Check] | None = None) -> Iterator[Finding]:
    for check in checks() if among is None else among:
        for what, do in check.look(facts):
            yield Finding(check.name, what, do)
