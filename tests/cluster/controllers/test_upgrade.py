"""A newer operator takes over: what runs goes on, and only proxies follow."""

from tests.cluster.controllers.conftest import SERVERS, until
from tests.cluster.controllers.test_operator import TOOLS, deployment, ready_reason, server, settled

NEXT = "fairway:next"
WORKLOADS = {
    "tools": ("deployments", TOOLS),
    "fetched": ("deployments", {"package": {"pypi": "mcp-server-time", "version": "1.0"}, "transport": "http"}),
    "beside": ("deployments", {"image": "w:1", "proxy": {"mode": "sidecar"}}),
    "plain": ("deployments", {"image": "w:1"}),
    "lines": ("statefulsets", {"image": "w:1", "transport": "stdio"}),
}


def test_a_newer_version_with_a_newer_image_restarts_no_server(operator, rig_api, rig_namespace):
    for name, (_, spec) in WORKLOADS.items():
        rig_api.api.apply(server(name, **spec), namespace=rig_namespace)
    for name in WORKLOADS:
        until(name, lambda name=name: ready_reason(rig_api, rig_namespace, name) == "Unschedulable", seconds=60)
    settled(operator, rig_namespace)

    def workload(name):
        return rig_api.api.get(f"/apis/apps/v1/namespaces/{rig_namespace}/{WORKLOADS[name][0]}/{name}")

    def servers_pods():
        pods = rig_api.api.items(f"/api/v1/namespaces/{rig_namespace}/pods")
        return {p["metadata"]["uid"] for p in pods if p["metadata"]["labels"].get("fairway.dev/component") == "server"}

    def image_of(name, container=0):
        return rig_api.api.get(deployment(rig_namespace, name))["spec"]["template"]["spec"]["containers"][container][
            "image"
        ]

    before = {name: workload(name) for name in WORKLOADS}
    pods = servers_pods()
    assert len(pods) == len(WORKLOADS)
    operator.stop()
    operator.image, operator.version = NEXT, "99.0.0"
    operator.start()
    try:
        until("the newer proxies", lambda: image_of("tools-proxy") == image_of("lines-proxy") == NEXT, seconds=30)
        settled(operator, rig_namespace)
        for name, was in before.items():
            found = workload(name)
            assert found["metadata"]["generation"] == was["metadata"]["generation"], name
            assert found["spec"] == was["spec"], name
        assert servers_pods() == pods
        restarted = {"metadata": {"annotations": {"fairway.dev/restarted-at": "now"}}}
        rig_api.api.merge(f"{SERVERS.format(rig_namespace)}/beside", restarted)
        until("the newer sidecar", lambda: image_of("beside", 1) == NEXT)
    finally:
        operator.stop()
        operator.image, operator.version = "fairway:test", ""
        operator.start()
    until("the proxies as they were", lambda: image_of("tools-proxy") == "fairway:test", seconds=30)
