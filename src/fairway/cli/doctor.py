"""`fairway doctor`: looks for what is wrong, here or in a cluster, and says what to do."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, as_json, somewhere

if TYPE_CHECKING:
    from fairway.cli.checks import Finding
    from fairway.cli.checks.facts import Facts


def main(arguments: list[str]) -> int:
    return typed.run(doctor, arguments, verb="doctor")


@somewhere
async def doctor(
    where: Where,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Servers of every namespace.")] = False,
    output: Annotated[
        Literal["table", "json", "yaml", "name"], typer.Option("--output", "-o", help="name lists checks that found.")
    ] = "table",
    list_checks: Annotated[bool, typer.Option("--list", help="Only say what would be looked for.")] = False,
) -> int:
    """Looks for what is wrong with this machine, a running `fairway up` or a cluster, and with every server.

    Changes nothing. Exit codes: 0 nothing found, 1 something found, 2 could not look.
    """
    from fairway.cli.checks import checks, findings

    if list_checks:
        width = max(len(check.name) for check in checks())
        print(*(f"{check.name:<{width}}  {check.about}" for check in checks()), sep="\n")
        return 0
    facts = await facts_of(where, everywhere=all_namespaces)
    found = list(findings(facts))
    match output:
        case "json":
            print(as_json([{"check": f.check, "what": f.what, "do": f.do} for f in found]))
        case "yaml":
            from fairway.api.crd import to_yaml

            print(to_yaml({"findings": [{"check": f.check, "what": f.what, "do": f.do} for f in found]}), end="")
        case "name":
            print(*dict.fromkeys(f.check for f in found), sep="\n", end="\n" if found else "")
        case _:
            _tell(facts, found)
    return 1 if found else 0


def _tell(facts: "Facts", found: "list[Finding]") -> None:
    from fairway.api.plaintext import on_one_line
    from fairway.cli.checks import checks
    from fairway.cli.checks.gather import system

    for finding in found:
        print(f"{finding.check}  {on_one_line(finding.what)}")
        print(f"    do: {finding.do}")
    looked_at = "this machine"
    if facts.cluster is not None:
        looked_at += f", {facts.cluster.title}"
    elif facts.laptop is not None and facts.laptop.running:
        looked_at += f", the `fairway up` in {facts.laptop.directory}"
    count = len(facts.servers)
    print(system())
    print(
        f"looked at {looked_at}, {count} server{'' if count == 1 else 's'}: {len(checks())} checks, {len(found)} found"
    )


async def facts_of(where: Where, *, everywhere: bool) -> "Facts":
    """Everything that can be asked, from wherever the user means."""
    from dataclasses import replace

    from fairway.cli.checks import gather
    from fairway.cli.checks.facts import Cluster, Facts
    from fairway.cli.places.laptop import Laptop as LaptopPlace
    from fairway.kube.config import AccessError, load_access

    state: Path = where.state_dir
    to_cluster = bool(where.context or where.kubeconfig)
    if where.local and to_cluster:
        raise Mistake("--local is this machine; --context and --kubeconfig are a cluster: leave one of them out")
    machine, laptop = await asyncio.gather(gather.machine(state), gather.laptop(state))
    facts = Facts(machine=machine, laptop=None if to_cluster else laptop)
    running = laptop is not None and laptop.running
    if where.local or (running and not to_cluster):
        if running:
            return await gather.with_servers(facts, LaptopPlace(state, where.namespace), everywhere=everywhere)
        return facts
    try:
        access = load_access(kubeconfig=where.kubeconfig or None, context=where.context or None)
    except AccessError as error:
        if not to_cluster and "no cluster is configured" in str(error):
            return facts
        return replace(facts, cluster=Cluster(problem=("kubeconfig", str(error))))
    from fairway.cli.places.cluster import connected

    async with connected(access, where.namespace) as place:
        facts = replace(facts, cluster=await gather.cluster(place))
        if facts.cluster is None or facts.cluster.problem is not None:
            return facts
        facts = await gather.with_servers(facts, place, everywhere=everywhere)
        assert facts.cluster is not None
        held = await gather.certificates(place, facts.servers)
        return replace(facts, cluster=replace(facts.cluster, certificates=held))
