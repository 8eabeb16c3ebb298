"""A real autoscaler decides how many copies of a server run, and the operator lets it."""

import threading
from pathlib import Path

from rig.api import wait_for
from tests.installed import InstalledFairway, condition
from tests.node.manifests import inline
from tests.node.metricsapi import metrics_api

REQUESTED = 64
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 900, "periodSeconds": 1}]}


class Watched:
    """Every number of replicas that a Deployment was seen with."""

    def __init__(self, fairway: InstalledFairway, path: str) -> None:
        self.seen: list[int] = []
        self._fairway, self._path, self._stop = fairway, path, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            now = self._fairway.rig.api.get(self._path)["spec"]["replicas"]
            if now not in self.seen[-1:]:
                self.seen.append(now)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def until(self, replicas: int) -> None:
        wait_for(f"{replicas} replicas", lambda: self.seen[-1:] == [replicas], seconds=60)


def test_an_autoscaler_takes_over_five_copies_and_leads_them_where_it_wants(
    fairway: InstalledFairway, rig_node_namespace: str, tmp_path: Path
) -> None:
    fairway.apply(rig_node_namespace, inline(replicas=5, proxy={"mode": "none"}))
    fairway.ready(rig_node_namespace, "hello", seconds=120)
    deployment = f"/apis/apps/v1/namespaces/{rig_node_namespace}/deployments/hello"
    scaling = {
        "minReplicas": 1,
        "maxReplicas": 5,
        "targetMemoryUtilization": 50,
        "behavior": {"scaleDown": AT_ONCE, "scaleUp": AT_ONCE},
    }
    half, little, much = REQUESTED // 2, REQUESTED // 20, REQUESTED * 3 // 2
    with metrics_api(fairway.rig, tmp_path, mebibytes=half) as metrics, Watched(fairway, deployment) as watched:
        spec = {"spec": {"autoscaling": scaling}}
        fairway.rig.api.merge(fairway.path(rig_node_namespace, "hello"), spec)
        scaler = f"/apis/autoscaling/v2/namespaces/{rig_node_namespace}/horizontalpodautoscalers/hello"
        wait_for(
            "the autoscaler to see the pods",
            lambda: (fairway.rig.api.find(scaler) or {}).get("status", {}).get("currentMetrics"),
            seconds=60,
        )
        watched.until(5)
        for used, replicas in ((little, 1), (much, 3), (little, 1)):
            metrics.mebibytes = used
            watched.until(replicas)
            # three that use as much as one did would be too few again
            metrics.mebibytes = half
        status = fairway.until(
            rig_node_namespace, "hello", "1/1", lambda s: s.get("ready") == "1/1" and condition(s, "Ready")[0] == "True"
        )
        assert status["phase"] == "Ready"
    assert watched.seen == [5, 1, 3, 1]
    managers = fairway.rig.api.get(deployment)["metadata"]["managedFields"]
    owners = {m["manager"] for m in managers if "f:replicas" in (m.get("fieldsV1") or {}).get("f:spec", {})}
    assert "fairway" not in owners
    assert owners
