"""What each MCP method asks for: the Cedar action, the kind of resource, and where in `params` its name is.

One table for both eras. A method that is not in it is unknown, and whoever decides on rights refuses it: a new method
must be understood before it can be allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from fairway.mcp import exact
from fairway.mcp.protocol import Method

_Buffer = bytes | msgspec.Raw


class Access(StrEnum):
    """Who may send a method."""

    OPEN = "open"
    """Everybody who may come in at all: the handshake, and what only concerns the sender's own requests."""
    LIST = "list"
    """Everybody; the answer is reduced to what the sender may use."""
    AUTHORISED = "authorised"
    """Whom a policy permits the action on the named resource."""
    OWNED = "owned"
    """Who made the thing that is named."""


class Action(StrEnum):
    """Cedar actions."""

    CALL_TOOL = "call_tool"
    GET_PROMPT = "get_prompt"
    READ_RESOURCE = "read_resource"
    SUBSCRIBE = "subscribe"
    COMPLETE = "complete"


class Kind(StrEnum):
    """Types of what is acted on; in Cedar, entity types."""

    TOOL = "Tool"
    PROMPT = "Prompt"
    RESOURCE = "Resource"
    TASK = "Task"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one method is judged.

    `action` and `kind` of a list are those that its items are filtered by. `param` names the parameter that holds the
    resource's name; it is empty where the name must be looked for with `targets`.
    """

    access: Access
    action: Action | None = None
    kind: Kind | None = None
    param: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that a request acts on. A task has no action: it is its creator's, or nobody's."""

    action: Action | None
    kind: Kind
    name: str


class Unclear(ValueError):
    """The request does not say what it acts on in the one way that the specification has for it."""


_OPEN: Final = Rule(Access.OPEN)
_SUBSCRIBE: Final = Rule(Access.AUTHORISED, Action.SUBSCRIBE, Kind.RESOURCE, "uri")
_TASK: Final = Rule(Access.OWNED, None, Kind.TASK, "taskId")

TASKS_GET: Final = "tasks/get"
TASKS_RESULT: Final = "tasks/result"
TASKS_UPDATE: Final = "tasks/update"
TASKS_CANCEL: Final = "tasks/cancel"

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        # the handshake, and what concerns nobody but the sender
        Method.DISCOVER.value: _OPEN,
        Method.INITIALIZE.value: _OPEN,
        Method.INITIALIZED.value: _OPEN,
        Method.PING.value: _OPEN,
        Method.SET_LEVEL.value: _OPEN,
        Method.CANCELLED.value: _OPEN,
        Method.PROGRESS.value: _OPEN,
        Method.ROOTS_LIST_CHANGED.value: _OPEN,
        Method.TOOLS_LIST.value: Rule(Access.LIST, Action.CALL_TOOL, Kind.TOOL),
        Method.TOOLS_CALL.value: Rule(Access.AUTHORISED, Action.CALL_TOOL, Kind.TOOL, "name"),
        Method.PROMPTS_LIST.value: Rule(Access.LIST, Action.GET_PROMPT, Kind.PROMPT),
        Method.PROMPTS_GET.value: Rule(Access.AUTHORISED, Action.GET_PROMPT, Kind.PROMPT, "name"),
        Method.RESOURCES_LIST.value: Rule(Access.LIST, Action.READ_RESOURCE, Kind.RESOURCE),
        # a template is named by its own text: nobody can say beforehand which resources it will lead to
        Method.RESOURCES_TEMPLATES_LIST.value: Rule(Access.LIST, Action.READ_RESOURCE, Kind.RESOURCE),
        Method.RESOURCES_READ.value: Rule(Access.AUTHORISED, Action.READ_RESOURCE, Kind.RESOURCE, "uri"),
        Method.RESOURCES_SUBSCRIBE.value: _SUBSCRIBE,
        Method.RESOURCES_UNSUBSCRIBE.value: _OPEN,
        Method.SUBSCRIPTIONS_LISTEN.value: Rule(Access.AUTHORISED, Action.SUBSCRIBE, Kind.RESOURCE),
        Method.COMPLETE.value: Rule(Access.AUTHORISED, Action.COMPLETE),
        # tasks: experimental in 2025-11-25, an extension in 2026-07-28. There is no tasks/list: a server that does not
        # know the clients apart would show everybody's
        TASKS_GET: _TASK,
        TASKS_RESULT: _TASK,
        TASKS_UPDATE: _TASK,
        TASKS_CANCEL: _TASK,
    }
)
"""By method, for what clients send. What servers send (sampling, elicitation, roots) is not for clients to ask."""


class _Reference(msgspec.Struct):
    type: str
    name: str | msgspec.UnsetType = msgspec.UNSET
    uri: str | msgspec.UnsetType = msgspec.UNSET


class _Filter(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An unknown kind of subscription is refused: nobody could say whose news it brings."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


def targets(method: str, params: Mapping[str, _Buffer]) -> tuple[Target, ...]:
    """Everything that a request acts on, from the values of its params as they came. Raises Unclear."""
    rule = RULES.get(method)
    if rule is None or rule.access in (Access.OPEN, Access.LIST):
        return ()
    try:
        if rule.param:
            assert rule.kind is not None
            return (Target(rule.action, rule.kind, _required(params, rule.param, str)),)
        if method == Method.COMPLETE:
            return (_completed(_required(params, "ref", _Reference)),)
        return _subscribed(_required(params, "notifications", _Filter))
    except (exact.Ambiguous, msgspec.ValidationError) as error:
        raise Unclear(f"{method}: {error}") from None


_T = TypeVar("_T")


def _required(params: Mapping[str, _Buffer], name: str, shape: type[_T]) -> _T:
    value = params.get(name)
    if value is None:
        raise Unclear(f"params.{name} is missing")
    return msgspec.convert(exact.read(memoryview(value)), shape)


def _completed(reference: _Reference) -> Target:
    match reference:
        case _Reference(type="ref/prompt", name=str(name), uri=msgspec.UNSET):
            return Target(Action.COMPLETE, Kind.PROMPT, name)
        case _Reference(type="ref/resource", name=msgspec.UNSET, uri=str(uri)):
            return Target(Action.COMPLETE, Kind.RESOURCE, uri)
    raise Unclear("params.ref is neither a prompt with a name nor a resource with a uri")


def _subscribed(wanted: _Filter) -> tuple[Target, ...]:
    # news that a list has changed carries no names; who asks then gets the filtered list
    resources = (Target(Action.SUBSCRIBE, Kind.RESOURCE, uri) for uri in wanted.resource_subscriptions or ())
    tasks = (Target(None, Kind.TASK, task) for task in wanted.task_ids or ())
    return (*resources, *tasks)
