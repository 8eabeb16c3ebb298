"""What to do about each reason that a condition can have. A word of `Reason` without an entry here fails a test."""

from collections.abc import Mapping
from typing import Any

from fairway.api.conditions import Reason

NOTHING_TO_DO = frozenset(
    {
        Reason.READY,
        Reason.HANDSHAKE_SUCCEEDED,
        Reason.ROLLED_OUT,
        Reason.APPLIED,
        Reason.DISCOVERED,
        Reason.HEALTHY,
        Reason.VALID,
        Reason.NOT_USED,
        Reason.RESTRICTED,
        Reason.RUNS_ONCE,
    }
)

ADVICE: Mapping[str, str] = {
    Reason.PENDING: "wait a moment; if it stays, `fairway doctor` looks for what holds it up",
    Reason.ROLLING_OUT: "wait until the new pods are ready: fairway wait {name}",
    Reason.HANDSHAKE_PENDING: "wait a moment; if it stays, read what the server says: fairway logs {name}",
    Reason.NOT_LISTENING: "set spec.port to the port that the server listens on; what it says: fairway logs {name}",
    Reason.SUSPENDED: "set spec.suspend to false",
    Reason.SCALED_TO_ZERO: "set spec.replicas to 1 or more",
    Reason.INVALID_SPEC: "correct the named field; `fairway plan -f FILE` checks it before it is applied",
    Reason.INLINE_TOOLS_INVALID: "correct the named line of the source",
    Reason.RUNTIME_NOT_FOUND: "correct spec.runtime.name, or have the runtime added to the named ConfigMap",
    Reason.RUNTIME_INVALID: "have the named entry of the catalogue corrected",
    Reason.PACKAGE_NOT_FETCHED: "check spec.package for a typo, and the operator's --package-index and its like",
    Reason.TOOL_CONFIG_NOT_FOUND: "apply that MCPToolConfig, or take spec.toolConfigRef out",
    Reason.TOOL_CONFIG_INVALID: "correct the MCPToolConfig: fairway describe mcptoolconfig/NAME",
    Reason.TOOL_CONFLICT: "give every tool a name of its own in spec.override of the MCPToolConfig",
    Reason.UNKNOWN_TOOL: "take the name out of the MCPToolConfig, or correct it: fairway tools {name}",
    Reason.NO_ADDRESS: "wait for the load balancer; where there is none, set spec.service.type to another",
    Reason.INGRESS_NOT_PUBLISHED: "check spec.ingress.className and that its controller runs: kubectl get ingressclass",
    Reason.ROUTE_NOT_ACCEPTED: "check spec.gatewayRoute.parentRefs and what the Gateway allows",
    Reason.KIND_NOT_SERVED: "install the CRDs that the message names, or take the field out",
    Reason.NOT_SUPPORTED_HERE: "run it on a cluster; local mode publishes on this machine only",
    Reason.NOT_RESTRICTED: "take that out of the spec, or run it in a namespace that admits it",
    Reason.NOT_GRANTED: "correct the permission profile; what it cannot grant stays forbidden",
    Reason.NAME_TAKEN: "rename this object, or delete the one in its way if nobody needs it",
    Reason.REJECTED: "the message says which object was refused and why: a quota, a policy, or a field to correct",
    Reason.IMAGE_PULL_BACK_OFF: "check spec.image for a typo, and that the nodes may pull it",
    Reason.IMAGE_NEEDS_ROOT: "choose a user other than root in the image, or in spec.securityContext.runAsUser",
    Reason.SECRET_MISSING: "create the named Secret or key, or correct the reference to it",
    Reason.CONFIG_MAP_MISSING: "create the named ConfigMap or key, or correct the reference to it",
    Reason.CRASH_LOOP_BACK_OFF: "the server ends by itself; why is in its last lines: fairway logs {name}",
    Reason.OOM_KILLED: "raise the container's memory limit",
    Reason.CONTAINER_CONFIG_ERROR: "create the named Secret, ConfigMap or key, or correct the reference to it",
    Reason.UNSCHEDULABLE: "no node takes the pod: free resources, add a node, or ask for less",
    Reason.PORT_TAKEN: "end the program that holds the port; the server then starts by itself",
    Reason.NEEDS_CONTAINER_RUNTIME: "run this server on a cluster, or use spec.inlineTools here",
    Reason.HANDSHAKE_FAILED: "check spec.port, and that the server speaks spec.transport; it says: fairway logs {name}",
    Reason.NOT_MCP: "what answers on spec.port is no MCP server: check the image, spec.port and the server's MCP path",
    Reason.HOST_REFUSED: "set spec.upstreamHost to a Host that the server accepts, or have it accept this one",
    Reason.LISTENS_ON_LOOPBACK: "have the server listen on 0.0.0.0 (spec.args, spec.env), or set proxy.mode to sidecar",
    Reason.HANDSHAKE_UNREACHABLE: "nobody could ask: is the network between operator and proxy pods open?",
    Reason.POLICY_REJECTED: "the proxy refused its configuration and keeps the last good one; correct what it names",
}


def advice(reason: str, *, about: Mapping[str, Any]) -> str:
    """One line, or nothing where nothing has to be done. `about` is the object that the commands in it name."""
    return ADVICE.get(reason, "").format(name=in_command(about))


def in_command(obj: Mapping[str, Any]) -> str:
    """An object as a person names it behind a verb."""
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace") or "default"
    return str(name) if namespace == "default" else f"{name} -n {namespace}"
