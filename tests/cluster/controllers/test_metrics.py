"""What a running operator counts of MCPServers, as they come, change and go."""

import urllib.request

from tests.cluster.controllers.conftest import HANDS_OFF, SERVERS, Operator, free_port, mcp_server, played, until
from tests.cluster.controllers.test_operator import TOOLS, server, status_of


def test_servers_are_counted_by_phase_and_by_what_could_not_be_made(
    operator, rig_api, rig_namespace, tmp_path, request
):
    config, source = tmp_path / "operator.yaml", tmp_path / "tools.py"
    config.touch()
    source.write_text(TOOLS["inlineTools"]["python"])
    port = free_port()
    only = ("--selector", HANDS_OFF, "--namespaces", rig_namespace)
    counting = Operator(rig_api, operator.kubeconfig, tmp_path / "log", config, metrics_port=port, options=only)
    request.addfinalizer(counting.kill)

    def counted():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = {
            name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if x.startswith("mcpserver_"))
        }
        phases = {name.split('"')[1]: int(n) for name, n in found.items() if name.startswith("mcpserver_phase{") and n}
        return int(found["mcpserver_total"]), phases, int(found["mcpserver_service_creation_errors_total"])

    def put(name, **spec):
        obj = server(name, **spec)
        obj["metadata"]["labels"] = {HANDS_OFF: "true"}
        rig_api.api.apply(obj, namespace=rig_namespace)

    def counts(*wanted):
        until(f"{wanted}", lambda: counted() == wanted, seconds=60)

    with mcp_server(source) as mcp_port:
        counting.start()
        until(
            "the operator",
            lambda: counting.log.exists() and "caches are filled" in counting.log.read_text(),
            seconds=60,
        )
        assert counted() == (0, {}, 0)
        put("good", **TOOLS, port=mcp_port, proxy={"mode": "none"})
        put("bad", inlineTools={"python": "def ("})
        put("asleep", **TOOLS, suspend=True)
        played(rig_api, rig_namespace, "good", component="server", address="127.0.0.1")
        counts(3, {"Ready": 1, "Failed": 1, "Suspended": 1}, 0)
        put("bad", **TOOLS)
        counts(3, {"Ready": 1, "Pending": 1, "Suspended": 1}, 0)
        rig_api.api.delete(f"{SERVERS.format(rig_namespace)}/asleep")
        counts(2, {"Ready": 1, "Pending": 1}, 0)
        ports = [{"port": 1, "targetPort": 1, "protocol": "TCP"}]
        taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "late"}, "spec": {"ports": ports}}
        rig_api.api.apply(taken, namespace=rig_namespace)
        put("late", **TOOLS)
        until("NameTaken", lambda: "Service/late" in status_of(rig_api, rig_namespace, "late").get("message", ""))
        total, phases, errors = counted()
        assert (total, phases["Failed"]) == (3, 1)
        assert errors >= 1
        for name in ("good", "bad", "late"):
            rig_api.api.delete(f"{SERVERS.format(rig_namespace)}/{name}")
        until("nothing", lambda: counted()[:2] == (0, {}))
    counting.stop()
