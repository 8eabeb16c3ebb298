"""Conditions, their reasons, and what to do about each: from the table that `fairway describe` and `doctor` read."""

from collections.abc import Mapping

from fairway.api.conditions import ConditionType, Phase, Reason
from fairway.cli.advice import NOTHING_TO_DO, advice
from fairway.cli.checks import checks
from handbook.table import cell, table

_ABOUT: Mapping[ConditionType, str] = {
    ConditionType.READY: "Available, and every copy that was asked for runs and is of the newest generation.",
    ConditionType.AVAILABLE: "At least one copy has answered an MCP handshake.",
    ConditionType.PROGRESSING: "Something is under way, such as a rollout.",
    ConditionType.DEGRADED: "It works, but not all of it.",
    ConditionType.WORKLOAD_READY: "The server's own pods.",
    ConditionType.SERVICE_READY: "The Service that clients dial, and an address where one was asked for.",
    ConditionType.PROXY_READY: "The pods of the proxy.",
    ConditionType.POLICY_APPLIED: "Every proxy enforces the newest policy.",
    ConditionType.TOOLS_DISCOVERED: "The tools are known, and those that the MCPToolConfig names are among them.",
    ConditionType.INGRESS_READY: "The Ingress is published. Only with `spec.ingress.enabled`.",
    ConditionType.ROUTE_READY: "The Gateway takes the route. Only with `spec.gatewayRoute.enabled`.",
    ConditionType.POD_SECURITY: "The pods keep to the restricted Pod Security standard.",
    ConditionType.PERMISSIONS_APPLIED: "All of the permission profile is in force. Only with `spec.permissionProfile`.",
    ConditionType.REPLICAS_CAPPED: "More copies were asked for than there can be.",
}
_PHASES: Mapping[Phase, str] = {
    Phase.PENDING: "On its way.",
    Phase.WAITING: "Something that it refers to is missing; once that is there, it goes on by itself.",
    Phase.PARTIALLY_READY: "It answers, but not every copy is as it should be.",
    Phase.READY: "Everything is as asked for.",
    Phase.FAILED: "Somebody has to correct something; `message` says what.",
    Phase.SUSPENDED: "`spec.suspend` is true.",
    Phase.TERMINATING: "It is being deleted.",
}
_INTRO = """\
# Conditions and what to do

Every object has the same list of conditions in `status.conditions`. `fairway describe NAME` shows them with what to
do, `fairway wait NAME --for TYPE` waits for one, and `kubectl wait --for=condition=Ready mcps/NAME` works as well.
Types and reasons are words to rely on: none is ever renamed. The message beside a reason names the object or the field.
"""

_ONE = {"metadata": {"name": "NAME"}}


def page() -> str:
    lines = [_INTRO, "## Types", ""]
    lines += table(("type", "what it is about"), [(f"`{each}`", _ABOUT[each]) for each in ConditionType])
    lines += ["", "`Progressing` and `Degraded` are good when they are False, all others when they are True.", ""]
    lines += ["## Reasons that ask for something", ""]
    lines += table(
        ("reason", "what to do"),
        [(f"`{each}`", cell(advice(each, about=_ONE))) for each in Reason if each not in NOTHING_TO_DO],
    )
    fine = ", ".join(f"`{each}`" for each in Reason if each in NOTHING_TO_DO)
    lines += ["", "## Reasons that ask for nothing", "", f"{fine}.", "", "## Phases", ""]
    lines += ["`status.phase` sums the conditions up in one word, for `kubectl get`.", ""]
    lines += table(("phase", "meaning"), [(f"`{each}`", _PHASES[each]) for each in Phase])
    lines += ["", "## What doctor looks for", ""]
    lines += [
        "`fairway doctor` has these checks; each names what is wrong and what to do. A healthy place has none.",
        "",
    ]
    lines += table(("check", "what should be"), [(f"`{each.name}`", cell(each.about)) for each in checks()])
    return "\n".join(lines) + "\n"
