"""One reconcile of an MCPToolConfig: is it valid, and who uses it."""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from fairway.api.conditions import Condition, ConditionType, Reason, merge
from fairway.api.mcptoolconfig import MCPToolConfig
from fairway.api.toolview import ToolConflict
from fairway.controllers.mcptoolconfig.reference import referenced_tool_config
from fairway.controllers.mcptoolconfig.view import ToolConfigTooLarge, checked_tools_of
from fairway.controllers.resources import MCP_SERVER, MCP_TOOL_CONFIG
from fairway.kube.resource import Obj
from fairway.runtime.controller import Controller
from fairway.runtime.outcome import Outcome
from fairway.runtime.store import StoreView
from fairway.runtime.world import World


def status_of(config: Obj, users: Iterable[str], *, now: str) -> dict[str, Any]:
    generation = config["metadata"].get("generation", 0)
    before = (config.get("status") or {}).get("conditions") or ()
    return {
        "observedGeneration": generation,
        "conditions": merge(before, [_ready(config)], generation=generation, now=now),
        "users": sorted(users),
    }


def _ready(config: Obj) -> Condition:
    body = {key: value for key, value in config.items() if key in ("metadata", "spec")}
    try:
        checked_tools_of(MCPToolConfig.model_validate(body, extra="ignore").spec)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Condition(ConditionType.READY, "False", Reason.INVALID_SPEC, f"{where}: {first['msg']}")
    except ToolConflict as conflict:
        return Condition(ConditionType.READY, "False", Reason.TOOL_CONFLICT, f"spec.override: {conflict}")
    except ToolConfigTooLarge as large:
        return Condition(ConditionType.READY, "False", Reason.INVALID_SPEC, f"spec: {large}")
    return Condition(ConditionType.READY, "True", Reason.VALID)


class Reconciler:
    """Reads its users from the store; writes nothing but status."""

    def __init__(self, *, now: Callable[[], str]) -> None:
        self._now = now

    async def __call__(self, config: Obj, world: World) -> Outcome:
        metadata = config["metadata"]
        users = (
            server["metadata"]["name"]
            for server in world.store.list(MCP_SERVER, metadata["namespace"])
            if referenced_tool_config(server) == metadata["name"]
        )
        return Outcome(status=status_of(config, users, now=self._now()))


def _referred_to(server: Obj, _: StoreView) -> Iterable[tuple[str, str]]:
    name = referenced_tool_config(server)
    return ((server["metadata"]["namespace"], name),) if name else ()


def controller(reconciler: Reconciler) -> Controller:
    return Controller(resource=MCP_TOOL_CONFIG, reconcile=reconciler, watches={MCP_SERVER: _referred_to})
