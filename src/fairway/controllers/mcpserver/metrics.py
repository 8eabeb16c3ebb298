"""What a dashboard shows of MCPServers: how many there are, how they are, and what could not be made for them."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairway.api.conditions import Phase
from fairway.controllers.mcpserver.creation import COUNTED, CreationErrors
from fairway.controllers.resources import MCP_SERVER
from fairway.runtime.store import StoreView


class ServerMetrics(Collector):
    """Counted at the time of a scrape, so that it cannot drift from what there is."""

    def __init__(self, store: StoreView, errors: CreationErrors) -> None:
        self._store = store
        self._errors = errors

    def collect(self) -> Iterable[Metric]:
        servers = self._store.list(MCP_SERVER)
        total = GaugeMetricFamily("mcpserver_total", "MCPServers that there are")
        total.add_metric([], len(servers))
        phases = Counter(str((server.get("status") or {}).get("phase") or Phase.PENDING.value) for server in servers)
        by_phase = GaugeMetricFamily("mcpserver_phase", "MCPServers by phase", labels=["phase"])
        for phase in dict.fromkeys((*(each.value for each in Phase), *phases)):
            by_phase.add_metric([phase], phases[phase])
        yield from (total, by_phase)
        for kind in COUNTED:
            word = kind.kind.lower()
            failed = CounterMetricFamily(
                f"mcpserver_{word}_creation_errors", f"{kind.kind}s of MCPServers that could not be made"
            )
            failed.add_metric([], self._errors.by_kind[kind])
            yield failed
