"""`fairway describe`: what is wrong with an object, why, and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from fairway.cli import typed
from fairway.cli.where import Where, as_json, somewhere

_LOG_LINES = 8
_NOTE = "--- fairway:"
"""Begins what local mode itself writes into a log."""


def main(arguments: list[str]) -> int:
    return typed.run(describe, arguments, verb="describe")


@somewhere
async def describe(
    where: Where,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="A server, or KIND/NAME.")],
    output: Annotated[
        Literal["table", "json", "yaml", "name"],
        typer.Option("--output", "-o", help="json and yaml have each object, its pods, and what they said last."),
    ] = "table",
) -> int:
    """Says how an object is: its conditions with what to do, its pods with exit codes and last words.

    Pods and logs are read with your own rights. Exit codes: 0 described, 2 it is not there or cannot be asked.
    """
    from fairway.api.crd import to_yaml
    from fairway.cli.found import pods_of, the_object
    from fairway.cli.kinds import utc_now
    from fairway.cli.output import print_objects
    from fairway.kube.errors import Forbidden

    described: list[Described] = []
    async with where.place() as place:
        for name in names:
            kind, obj = await the_object(place, name)
            try:
                pods = await pods_of(place, kind, obj)
            except Forbidden as error:
                described.append(Described(obj, (), error.message))
                continue
            looks = [PodLook(pod, await _last_words(place, pod)) for pod in pods]
            described.append(Described(obj, tuple(looks)))
    match output:
        case "table":
            print("\n\n".join("\n".join(text_of(one, now=utc_now())) for one in described))
        case "name":
            print_objects([one.obj for one in described], "name", now=utc_now())
        case "json":
            print(as_json([one.to_object() for one in described]))
        case "yaml":
            print(to_yaml(*(one.to_object() for one in described)), end="")
    return 0


@dataclass(frozen=True, slots=True)
class PodLook:
    """A pod, and what its troubled containers said last."""

    pod: Mapping[str, Any]
    words: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Described:
    """One object with the pods that run for it, or why those are not shown."""

    obj: Mapping[str, Any]
    pods: Sequence[PodLook]
    not_shown: str = ""

    def to_object(self) -> dict[str, Any]:
        pods = [
            {**look.pod, "lastWords": {name: list(said) for name, said in look.words.items()}} for look in self.pods
        ]
        return {"object": self.obj, "pods": pods, **({"podsNotShown": self.not_shown} if self.not_shown else {})}


def text_of(described: Described, *, now: datetime) -> list[str]:
    """For people."""
    below = (
        ["  pods:", f"  not shown: {described.not_shown}"]
        if described.not_shown
        else pod_lines(described.pods, now=now)
    )
    return [*summary(described.obj, now=now), *below]


def summary(obj: Mapping[str, Any], *, now: datetime) -> list[str]:
    """Everything that the object itself says."""
    from fairway.cli.advice import advice
    from fairway.cli.kinds import age
    from fairway.cli.output import aligned

    metadata, status = obj["metadata"], obj.get("status") or {}
    name = metadata["name"]
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None:
        return [f"{name}  no status yet", "  nobody has looked at it: does an operator run? `fairway doctor` knows"]
    verdict = status.get("phase") or ("Ready" if ready["status"] == "True" else "Failed")
    lines = [f"{name}  {verdict}  for {age(ready['lastTransitionTime'], now=now)}"]
    generation, seen = metadata.get("generation", 0), status.get("observedGeneration", 0)
    if seen < generation:
        lines.append(f"  the status is of generation {seen}, and the object is at {generation}: the operator is behind")
    facts = [["  " + what, said] for what, said in _facts(obj).items() if said]
    rows = aligned([[f"  {c['type']}={c['status']}", c["reason"], _message(c, ready)] for c in conditions])
    for row, condition in zip(rows, conditions, strict=True):
        lines.append(row)
        todo = advice(condition["reason"], about=obj) if _is_trouble(condition) else ""
        follows = condition["reason"] in (ready["reason"], "Pending", "HandshakePending", "RollingOut")
        if todo and (condition is ready or not follows):
            lines.append(f"      do: {todo}")
    return [*lines, *aligned(facts)]


def _message(condition: Mapping[str, Any], ready: Mapping[str, Any]) -> str:
    """On one line, and not over and over again."""
    message = " ".join((condition.get("message") or "").split())
    again = condition is not ready and message and message == " ".join((ready.get("message") or "").split())
    return "as above" if again else message


def _is_trouble(condition: Mapping[str, Any]) -> bool:
    good = "False" if condition["type"] in ("Progressing", "Degraded") else "True"
    if condition["type"] == "Progressing":
        return False  # the other conditions say it better
    return bool(condition["status"] != good or condition["reason"] == "UnknownTool")


def _facts(obj: Mapping[str, Any]) -> dict[str, str]:
    """What is worth a line of everything else, whatever the kind."""
    from fairway.local.view import source_of

    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    tools, server = status.get("tools") or {}, status.get("server") or {}
    listed = ", ".join(tools.get("names") or ())
    shown = {
        "source": source_of(spec) if obj.get("kind") == "MCPServer" else "",
        "url": str(status.get("url") or status.get("endpoint") or ""),
        "also": ", ".join(status.get("externalURLs") or ()),
        "tools": f"{tools.get('count')}: {listed}" if listed else "",
        "server": " ".join(filter(None, (server.get("name"), server.get("version")))),
        "speaks": ", ".join(server.get("protocolVersions") or ()),
        "ready": str(status.get("ready") or ""),
        "used by": ", ".join(status.get("users") or ()),
    }
    return {what: " ".join(said.split()) for what, said in shown.items()}


def pod_lines(looks: Sequence[PodLook], *, now: datetime) -> list[str]:
    from fairway.cli.kinds import age
    from fairway.cli.output import aligned

    if not looks:
        return []
    rows, below = [], []
    for look in looks:
        metadata, status = look.pod["metadata"], look.pod.get("status") or {}
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        state = "going" if metadata.get("deletionTimestamp") else "ready" if ready else "not ready"
        since = metadata.get("creationTimestamp")
        rows.append([f"  {metadata['name']}", state, age(since, now=now) if since else ""])
        lines = [f"      {text}" for text in _unscheduled(status)]
        for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
            lines += [f"      {text}" for text in _story(container)]
            lines += [f"      | {line}" for line in look.words.get(container["name"], ())]
        below.append(lines)
    return ["  pods:", *(line for row, lines in zip(aligned(rows), below, strict=True) for line in (row, *lines))]


def _unscheduled(status: Mapping[str, Any]) -> list[str]:
    return [
        str(c.get("message") or "not scheduled")
        for c in status.get("conditions") or ()
        if c.get("type") == "PodScheduled" and c.get("status") == "False"
    ]


def _story(container: Mapping[str, Any]) -> list[str]:
    """How a container is, if that is worth a line."""
    state, name = container.get("state") or {}, container["name"]
    waiting, ended = state.get("waiting"), state.get("terminated")
    last = (container.get("lastState") or {}).get("terminated")
    restarts = container.get("restartCount", 0)
    lines = []
    if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        message = " ".join((waiting.get("message") or "").split())
        lines.append(f"{name}: {waiting['reason']}" + (f": {message}" if message else ""))
    for run, when in ((ended, "ended"), (last, "the run before ended")):
        if run is not None and (run.get("exitCode") or run.get("signal")):
            how = f"signal {run['signal']}" if run.get("signal") else f"exit code {run.get('exitCode')}"
            why = run.get("reason")
            again = f", restarted {restarts} time{'' if restarts == 1 else 's'}" if restarts else ""
            lines.append(f"{name}: {when} with {how}{f' ({why})' if why and why != 'Error' else ''}{again}")
    return lines


async def _last_words(place: Any, pod: Mapping[str, Any]) -> dict[str, list[str]]:
    from fairway.api.names import COMPONENT_PROXY
    from fairway.cli.found import component_of, containers_of
    from fairway.kube.errors import KubeError

    by_name = {c["name"]: c for c in (pod.get("status") or {}).get("containerStatuses") or ()}
    found = {}
    for source in containers_of(dict(pod)):
        status = by_name.get(source.container)
        if status is None or not _wants_words(status, proxy=component_of(pod) == COMPONENT_PROXY):
            continue
        restarted = bool(status.get("restartCount")) and "running" not in (status.get("state") or {})
        previous = restarted and not place.is_local
        try:
            lines = [line async for line in place.log(source, previous=previous, tail=2 * _LOG_LINES) if line.strip()]
        except KubeError:
            continue  # it has none yet, or we may not read it: the states above say enough
        # a server that fails in the same way again and again says so once
        found[source.container] = list(dict.fromkeys(x for x in lines if not x.startswith(_NOTE)))[-_LOG_LINES:]
    return found


def _wants_words(container: Mapping[str, Any], *, proxy: bool) -> bool:
    """Whether its log may say why it is not well; a proxy that runs only waits for its server."""
    if "running" in (container.get("state") or {}) and not container.get("restartCount"):
        return not container.get("ready") and not proxy
    return not container.get("ready") or bool(container.get("restartCount"))
