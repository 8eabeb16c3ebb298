"""How a rig is: what runs, with how much memory, and whether its API answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from rig.api import Api
from rig.process import ProcessTable
from rig.state import State


@dataclass(frozen=True)
class Component:
    """One daemon as `status` shows it."""

    name: str
    pid: int | None
    megabytes: float


@dataclass(frozen=True)
class Status:
    """What of a rig runs, and whether its API answers."""

    server: str
    ready: bool
    components: Sequence[Component]


def status(state: State) -> Status:
    table = ProcessTable(run=state.run, logs=state.logs)
    sizes = table.resident_megabytes()
    components = [Component(name, table.pid(name), sizes.get(name, 0.0)) for name in table.names()]
    if not components or not state.kubeconfig.exists():
        return Status(server="", ready=False, components=[])
    api = Api.from_kubeconfig(state.kubeconfig)
    ready = all(component.pid for component in components) and api.is_ready()
    return Status(server=api.access.server, ready=ready, components=components)
