"""What the handshakes say: whether the server answers, what it offers, and which policy its proxies enforce. Pure."""

from fairway.api.conditions import Condition, ConditionType, Reason, shortened
from fairway.api.proxystatus import ConfigState, Endpoint, EndpointState
from fairway.controllers.mcpserver import pods, shape
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.observation import Observation

T = ConditionType

_REASONS = {
    EndpointState.NOT_MCP: Reason.NOT_MCP,
    EndpointState.HOST_REFUSED: Reason.HOST_REFUSED,
    EndpointState.FAILED: Reason.HANDSHAKE_FAILED,
    EndpointState.UNREACHABLE: Reason.HANDSHAKE_FAILED,
}
"""What a handshake that has failed is called, the most telling one first."""
_UNKNOWN_SHOWN = 10
_NAME_LIMIT = 256


def available(live: Live, workload: Condition, *, proxied: bool, apart: bool = False) -> Condition:
    """`apart`: whether the proxies' word counts even while no pod of the server is ready, or there is none."""
    answer = live.answer
    endpoints = live.endpoints
    good = [e for e in endpoints if e.state is EndpointState.OK]
    if good and answer is not None:
        who = f"{answer.server.name} {answer.server.version}".strip() if answer.server else "the server"
        return Condition(T.AVAILABLE, "True", Reason.HANDSHAKE_SUCCEEDED, f"{who} answers")
    if not apart and not any(map(pods.is_ready, live.server_pods)):
        if workload.status == "True":
            return Condition(T.AVAILABLE, "False", Reason.PENDING, "no server pod is ready")
        return Condition(T.AVAILABLE, "False", workload.reason, workload.message)
    if proxied and not any(map(pods.is_running, live.proxy_pods)):
        trouble = pods.problem(live.proxy_pods)
        reason, message = (
            (trouble.reason, f"proxy: {trouble.message}") if trouble else (Reason.PENDING, "no proxy runs")
        )
        return Condition(T.AVAILABLE, "False", reason, message)
    for state in _REASONS:
        bad = next((e for e in endpoints if e.state is state), None)
        if bad is not None:
            return Condition(T.AVAILABLE, "False", *_verdict(bad, live))
    errors = [o.error for o in live.observations if o.error and o.target.ready]
    if errors and len(errors) == len(live.observations):  # a pod that is not ready yet may well not answer yet
        return Condition(T.AVAILABLE, "Unknown", Reason.HANDSHAKE_UNREACHABLE, errors[0])
    return Condition(T.AVAILABLE, "False", Reason.HANDSHAKE_PENDING, "waiting for the first MCP handshake")


def every_endpoint(inputs: Inputs, live: Live) -> Condition:
    """Not a condition of its own: Ready wants every endpoint, Available one."""
    endpoints = live.endpoints
    bad = next((e for e in endpoints if e.state not in (EndpointState.OK, EndpointState.PENDING)), None)
    if bad is None:
        proven = {e.uid for e in endpoints if e.state is EndpointState.OK}
        unproven = [pod for pod in live.server_pods if pods.is_ready(pod) and pod["metadata"]["uid"] not in proven]
        if unproven and "" not in proven and not shape.attached(inputs):
            name = unproven[0]["metadata"]["name"]
            return Condition(T.READY, "False", Reason.HANDSHAKE_PENDING, f"pod {name} has not answered a handshake yet")
        return Condition(T.READY, "True", Reason.HEALTHY)
    return Condition(T.READY, "False", *_verdict(bad, live))


def _verdict(bad: Endpoint, live: Live) -> tuple[Reason, str]:
    """What is wrong with an endpoint, in a word and a sentence."""
    pod = next((pod for pod in live.server_pods if pod["metadata"]["uid"] == bad.uid), None)
    if bad.state is EndpointState.UNREACHABLE and pod is not None and pods.is_well_within(pod):
        said = "the server is well by its own readiness probe, and nobody reaches it: it seems to listen on 127.0.0.1"
        return Reason.LISTENS_ON_LOOPBACK, f"{bad.message}; {said}"
    return _REASONS[bad.state], bad.message


def degraded(live: Live, available: Condition) -> Condition:
    if available.status != "True":
        return Condition(T.DEGRADED, "False", available.reason)
    bad = next((e for e in live.endpoints if e.state not in (EndpointState.OK, EndpointState.PENDING)), None)
    if bad is not None:
        return Condition(T.DEGRADED, "True", *_verdict(bad, live))
    answer = live.answer
    if answer is not None and answer.tools is not None and answer.tools.shadowed:
        hidden = ", ".join(answer.tools.shadowed)
        return Condition(T.DEGRADED, "True", Reason.TOOL_CONFLICT, f"hidden, since a rename took their name: {hidden}")
    return Condition(T.DEGRADED, "False", Reason.HEALTHY)


def policy(live: Live) -> Condition:
    running = [pod for pod in live.proxy_pods if pods.is_running(pod)]
    if not running:
        return Condition(T.POLICY_APPLIED, "False", Reason.PENDING, "no proxy runs yet")
    by_uid = {o.target.uid: o for o in live.observations}
    seen = [by_uid.get(pod["metadata"]["uid"]) for pod in running]
    refused = next(
        (o for o in seen if o is not None and o.config.state is ConfigState.INVALID and not _serves(o)), None
    )
    if refused is not None:
        return Condition(
            T.POLICY_APPLIED, "False", Reason.POLICY_REJECTED, f"proxy {refused.target.pod}: {refused.config.error}"
        )
    current = sum(o is not None and o.hash_matches for o in seen)
    if current == len(running):
        return Condition(T.POLICY_APPLIED, "True", Reason.APPLIED, f"{current} of {len(running)} proxies")
    unreachable = next((o for o in seen if o is not None and o.error), None)
    if unreachable is not None:
        return Condition(T.POLICY_APPLIED, "Unknown", Reason.HANDSHAKE_UNREACHABLE, unreachable.error)
    return Condition(T.POLICY_APPLIED, "False", Reason.PENDING, f"{current} of {len(running)} proxies")


def unruled(inputs: Inputs) -> Condition | None:
    missing = inputs.unruled
    return None if missing is None else Condition(T.POLICY_APPLIED, "False", missing.reason, missing.message)


def _serves(seen: Observation) -> bool:
    """Whether the proxy serves this very route: one that it shares with others may be wrong about another's."""
    return seen.hash_matches and seen.route is not None and bool(seen.route.listen)


def tools(live: Live, available: Condition) -> Condition:
    answer = live.answer
    tools = answer.tools if answer else None
    if tools is None:
        return Condition(T.TOOLS_DISCOVERED, "False", Reason.HANDSHAKE_PENDING, available.message)
    if tools.error:
        return Condition(T.TOOLS_DISCOVERED, "False", Reason.HANDSHAKE_FAILED, tools.error)
    count = f"{tools.count} tool{'' if tools.count == 1 else 's'}"
    if tools.unknown:
        more = len(tools.unknown) - _UNKNOWN_SHOWN
        named = [_with_nearest(name, tools.nearest.get(name)) for name in tools.unknown[:_UNKNOWN_SHOWN]]
        unknown = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return Condition(
            T.TOOLS_DISCOVERED,
            "True",
            Reason.UNKNOWN_TOOL,
            f"{count}; the MCPToolConfig names tools that the server does not offer: {unknown}",
        )
    return Condition(T.TOOLS_DISCOVERED, "True", Reason.DISCOVERED, count)


def _with_nearest(name: str, nearest: str | None) -> str:
    shown = shortened(name, _NAME_LIMIT)
    return f"{shown} (did you mean {shortened(nearest, _NAME_LIMIT)}?)" if nearest else shown
