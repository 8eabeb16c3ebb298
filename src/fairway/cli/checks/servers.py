"""Checks of servers and tool configurations, by what their status says. Pure, and the same everywhere."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

from fairway.api.conditions import Reason
from fairway.cli.advice import advice, in_command
from fairway.cli.checks import Ailment, Check
from fairway.cli.checks.facts import Facts, Obj, condition, is_fresh, key_of, time_of, title_of

PATIENCE = timedelta(seconds=60)
"""What is on its way may take this long."""
FLAPPING = 3

_FAMILIES: Mapping[str, tuple[str, frozenset[str]]] = {
    "server-spec": (
        "what servers ask for can be done",
        frozenset({Reason.INVALID_SPEC, Reason.INLINE_TOOLS_INVALID, Reason.REJECTED}),
    ),
    "server-name": ("names of servers are free", frozenset({Reason.NAME_TAKEN})),
    "server-tools": (
        "tool configurations are there and valid",
        frozenset({Reason.TOOL_CONFIG_NOT_FOUND, Reason.TOOL_CONFIG_INVALID, Reason.TOOL_CONFLICT}),
    ),
    "server-references": (
        "Secrets and ConfigMaps of servers are there",
        frozenset({Reason.SECRET_MISSING, Reason.CONFIG_MAP_MISSING, Reason.CONTAINER_CONFIG_ERROR}),
    ),
    "server-image": (
        "images of servers can run",
        frozenset({Reason.IMAGE_PULL_BACK_OFF, Reason.IMAGE_NEEDS_ROOT, Reason.NEEDS_CONTAINER_RUNTIME}),
    ),
    "server-runtime": (
        "runtimes that servers name are in the catalogue",
        frozenset({Reason.RUNTIME_NOT_FOUND, Reason.RUNTIME_INVALID}),
    ),
    "server-package": ("packages of servers can be had", frozenset({Reason.PACKAGE_NOT_FETCHED})),
    "server-crashes": ("servers go on running", frozenset({Reason.CRASH_LOOP_BACK_OFF, Reason.OOM_KILLED})),
    "server-port": ("ports of servers are free", frozenset({Reason.PORT_TAKEN})),
    "server-handshake": (
        "servers speak MCP",
        frozenset(
            {
                Reason.HANDSHAKE_FAILED,
                Reason.NOT_MCP,
                Reason.HOST_REFUSED,
                Reason.LISTENS_ON_LOOPBACK,
                Reason.HANDSHAKE_UNREACHABLE,
            }
        ),
    ),
    "server-policy": ("policies are in force", frozenset({Reason.POLICY_REJECTED})),
    "server-scheduling": ("pods of servers find a node", frozenset({Reason.UNSCHEDULABLE})),
}
_AS_WISHED = frozenset({Reason.SUSPENDED, Reason.SCALED_TO_ZERO})
_IN_A_FAMILY = frozenset().union(*(reasons for _, reasons in _FAMILIES.values()))
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\]):(?P<port>\d{2,5})")
# a number on its own, and no part of an address
_LISTENS = re.compile(r"(?i)(?:listen|running|started|serving)[^\n]{0,60}?[: ](?P<port>\d{2,5})(?![\d.])")


def _told(server: Obj, facts: Facts, ready: Obj) -> Ailment:
    words = facts.words.get(key_of(server)) or ()
    said = f"; it said last: {words[-1]}" if words and ready["reason"] in _FAMILIES["server-crashes"][1] else ""
    message = " ".join((ready.get("message") or "").split())
    todo = advice(ready["reason"], about=server) or f"fairway describe {in_command(server)}"
    return f"{title_of(server)}: {ready['reason']}: {message}{said}", todo


def _family(name: str) -> Check:
    about, reasons = _FAMILIES[name]

    def look(facts: Facts) -> Iterator[Ailment]:
        for server in facts.servers:
            ready = condition(server, "Ready")
            if is_fresh(server) and ready.get("status") in ("False", "Unknown") and ready["reason"] in reasons:
                yield _told(server, facts, ready)

    return Check(name, about, look)


def _stuck(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        ready = condition(server, "Ready")
        if not ready or not is_fresh(server) or ready["status"] == "True":
            continue
        since = facts.machine.now - time_of(ready.get("lastTransitionTime", ""))
        if ready["reason"] not in _IN_A_FAMILY | _AS_WISHED and since > PATIENCE:
            yield _told(server, facts, ready)


def _behind(facts: Facts) -> Iterator[Ailment]:
    for server in (*facts.servers, *facts.tool_configs):
        age = facts.machine.now - time_of(str(server["metadata"].get("creationTimestamp") or ""))
        if age > PATIENCE and not is_fresh(server):
            what = f"{title_of(server)}: nobody has looked at its newest generation"
            yield (
                what,
                "does an operator run, and may it see this namespace? fairway doctor --all-namespaces, and its log",
            )


def _degraded(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        degraded, ready = condition(server, "Degraded"), condition(server, "Ready")
        again = degraded.get("reason") == ready.get("reason") and ready.get("status") != "True"
        if degraded.get("status") == "True" and not again:
            yield _told(server, facts, degraded)


def _policy(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        applied, ready = condition(server, "PolicyApplied"), condition(server, "Ready")
        if applied.get("status") == "False" and ready.get("status") == "True":
            since = facts.machine.now - time_of(applied.get("lastTransitionTime", ""))
            if since > PATIENCE or applied["reason"] == Reason.POLICY_REJECTED:
                yield _told(server, facts, applied)


def _unknown_tools(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        discovered = condition(server, "ToolsDiscovered")
        if discovered.get("reason") == Reason.UNKNOWN_TOOL:
            yield _told(server, facts, discovered)


def _no_tools(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        ready = condition(server, "Ready").get("status") == "True"
        tools = (server.get("status") or {}).get("tools")
        if ready and tools is not None and tools.get("count") == 0:
            hides = "toolConfigRef" in server["spec"]
            yield (
                f"{title_of(server)} is ready, and clients see no tool",
                "loosen the MCPToolConfig" if hides else "does the server need a setting before it offers tools?",
            )


def _flaps(facts: Facts) -> Iterator[Ailment]:
    for pod in facts.pods:
        metadata = pod["metadata"]
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            count = container.get("restartCount", 0)
            if count >= FLAPPING and "running" in (container.get("state") or {}) and container.get("ready"):
                owner = {**metadata, "name": (metadata.get("labels") or {}).get("fairway.dev/server", "NAME")}
                yield (
                    f"{metadata['name']} runs, and was restarted {count} times",
                    f"why it ended: fairway logs {in_command({'metadata': owner})}",
                )


def _loopback(facts: Facts) -> Iterator[Ailment]:
    if facts.cluster is None:  # on one machine, loopback is where it should listen
        return
    for server, words in _silent(facts):
        found = next((m for line in reversed(words) if (m := _LOOPBACK.search(line))), None)
        if found:
            yield (
                f"{title_of(server)} listens on {found[0]}, which nobody outside its container reaches",
                "let it listen on all addresses: many servers read HOST=0.0.0.0, some take --host",
            )


def _wrong_port(facts: Facts) -> Iterator[Ailment]:
    for server, words in _silent(facts):
        wanted = int(server["spec"].get("port", 8080))
        found = next((m for line in reversed(words) if (m := _LISTENS.search(line))), None)
        if facts.cluster is not None and found and int(found["port"]) != wanted:
            yield f"{title_of(server)} says that it listens on {found['port']}", f"set spec.port to {found['port']}"


def _silent(facts: Facts) -> Iterator[tuple[Obj, tuple[str, ...]]]:
    """Servers on whose port nothing answers, with what they said."""
    for server in facts.servers:
        if condition(server, "Ready").get("reason") in (Reason.NOT_LISTENING, Reason.HANDSHAKE_PENDING):
            yield server, facts.words.get(key_of(server)) or ()


def _open_doors(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        spec = server["spec"]
        published = [
            field
            for field, on in (
                ("spec.ingress", (spec.get("ingress") or {}).get("enabled")),
                ("spec.gatewayRoute", (spec.get("gatewayRoute") or {}).get("enabled")),
                ("spec.service.type", (spec.get("service") or {}).get("type") in ("NodePort", "LoadBalancer")),
            )
            if on
        ]
        if published and not spec.get("auth") and facts.cluster is not None:
            yield (
                f"{title_of(server)} is published ({published[0]}) and asks nobody who they are",
                "set spec.auth, or publish it inside only",
            )


def _pod_security(facts: Facts) -> Iterator[Ailment]:
    for server in facts.servers:
        for name in ("PodSecurity", "PermissionsApplied"):
            said = condition(server, name)
            if said.get("status") == "False" and said.get("reason") in (Reason.NOT_RESTRICTED, Reason.NOT_GRANTED):
                yield _told(server, facts, said)


def _tool_configs(facts: Facts) -> Iterator[Ailment]:
    for config in facts.tool_configs:
        ready = condition(config, "Ready")
        if ready.get("status") == "False":
            yield f"MCPToolConfig {_told(config, facts, ready)[0]}", advice(ready["reason"], about=config)


CHECKS = (
    *(_family(name) for name in _FAMILIES),
    Check("server-stuck", "servers get ready in time", _stuck),
    Check("status-old", "statuses are about the newest generation", _behind),
    Check("server-degraded", "servers work in full", _degraded),
    Check("policy-waits", "changed policies reach every proxy", _policy),
    Check("tools-unknown", "tools that are configured exist", _unknown_tools),
    Check("tools-none", "servers offer tools", _no_tools),
    Check("server-flaps", "servers stay up", _flaps),
    Check("loopback-only", "servers listen where their proxy reaches them", _loopback),
    Check("wrong-port", "servers listen on the port that was named", _wrong_port),
    Check("open-doors", "what is published asks who comes", _open_doors),
    Check("pod-security", "pods keep to what their namespace admits", _pod_security),
    Check("tool-configs", "tool configurations are valid", _tool_configs),
)
