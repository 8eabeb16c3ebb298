"""Condition types and reasons: the words that status speaks. A word is never renamed once released."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from fairway.api.schema import Model

ConditionStatus = Literal["True", "False", "Unknown"]
MESSAGE_LIMIT = 4096


class ConditionType(StrEnum):
    """What a condition is about."""

    READY = "Ready"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    WORKLOAD_READY = "WorkloadReady"
    SERVICE_READY = "ServiceReady"
    PROXY_READY = "ProxyReady"
    POLICY_APPLIED = "PolicyApplied"
    TOOLS_DISCOVERED = "ToolsDiscovered"
    INGRESS_READY = "IngressReady"
    ROUTE_READY = "RouteReady"
    POD_SECURITY = "PodSecurity"
    PERMISSIONS_APPLIED = "PermissionsApplied"
    REPLICAS_CAPPED = "ReplicasCapped"


class Reason(StrEnum):
    """Why a condition is what it is."""

    # fine
    READY = "Ready"
    HANDSHAKE_SUCCEEDED = "HandshakeSucceeded"
    ROLLED_OUT = "RolledOut"
    APPLIED = "Applied"
    DISCOVERED = "Discovered"
    HEALTHY = "Healthy"
    VALID = "Valid"
    NOT_USED = "NotUsed"
    RESTRICTED = "Restricted"
    RUNS_ONCE = "RunsOnce"
    # on the way
    PENDING = "Pending"
    ROLLING_OUT = "RollingOut"
    HANDSHAKE_PENDING = "HandshakePending"
    NOT_LISTENING = "NotListening"
    NO_ADDRESS = "NoAddress"
    INGRESS_NOT_PUBLISHED = "IngressNotPublished"
    ROUTE_NOT_ACCEPTED = "RouteNotAccepted"
    SCALED_TO_ZERO = "ScaledToZero"
    SUSPENDED = "Suspended"
    SECRET_MISSING = "SecretMissing"  # noqa: S105  a word, no secret
    CONFIG_MAP_MISSING = "ConfigMapMissing"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    # the user has something to fix
    INVALID_SPEC = "InvalidSpec"
    INLINE_TOOLS_INVALID = "InlineToolsInvalid"
    RUNTIME_INVALID = "RuntimeInvalid"
    PACKAGE_NOT_FETCHED = "PackageNotFetched"
    TOOL_CONFIG_NOT_FOUND = "ToolConfigNotFound"
    TOOL_CONFIG_INVALID = "ToolConfigInvalid"
    TOOL_CONFLICT = "ToolConflict"
    UNKNOWN_TOOL = "UnknownTool"
    KIND_NOT_SERVED = "KindNotServed"
    NOT_SUPPORTED_HERE = "NotSupportedHere"
    NOT_RESTRICTED = "NotRestricted"
    NOT_GRANTED = "NotGranted"
    NAME_TAKEN = "NameTaken"
    REJECTED = "Rejected"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    OOM_KILLED = "OOMKilled"
    IMAGE_NEEDS_ROOT = "ImageNeedsRoot"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    UNSCHEDULABLE = "Unschedulable"
    PORT_TAKEN = "PortTaken"
    NEEDS_CONTAINER_RUNTIME = "NeedsContainerRuntime"
    HANDSHAKE_FAILED = "HandshakeFailed"
    NOT_MCP = "NotMCP"
    HOST_REFUSED = "HostRefused"
    LISTENS_ON_LOOPBACK = "ListensOnLoopback"
    # nobody knows
    HANDSHAKE_UNREACHABLE = "HandshakeUnreachable"
    POLICY_REJECTED = "PolicyRejected"


class Phase(StrEnum):
    """One word for `kubectl get`; the conditions say the rest."""

    PENDING = "Pending"
    WAITING = "Waiting"
    PARTIALLY_READY = "PartiallyReady"
    READY = "Ready"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    TERMINATING = "Terminating"


class ConditionModel(Model):
    """One observed fact about the object."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition is about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """One stable word that says why."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """What a person needs to know: the field or object to fix, when there is one."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The metadata.generation that this was computed from."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as decided, before it is merged with what stands in status."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str = ""


def merge(
    old: Iterable[Mapping[str, Any]], decided: Sequence[Condition], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """The whole list for status: a transition time is kept for as long as the condition's status does not flip."""
    before = {c["type"]: c for c in old}
    merged = []
    for condition in decided:
        previous = before.get(condition.type.value)
        flipped = previous is None or previous.get("status") != condition.status
        merged.append(
            {
                "type": condition.type.value,
                "status": condition.status,
                "reason": condition.reason.value,
                "message": shortened(condition.message, MESSAGE_LIMIT),
                "lastTransitionTime": now if flipped or previous is None else previous["lastTransitionTime"],
                "observedGeneration": generation,
            }
        )
    return merged


def shortened(text: str, limit: int) -> str:
    """What others say may be of any length; a status may not."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
