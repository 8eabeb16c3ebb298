"""What the rig costs: building it, bringing it up with and without a node, making a pod ready, and memory.

    python -m bench.rig [--runs 3] [--api-only]

Times are medians of cold starts: an empty state directory, the binaries built before. The last line is JSON;
the exit code is 1 past a budget.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.budget import finish
from rig.binary import KUBERNETES, POLICY_ENFORCER, ensure_binaries, ensure_policy_enforcer
from rig.machine import require_node
from rig.progress import Progress
from rig.pyimage import python_image
from rig.state import State
from rig.status import status
from rig.testcluster import RigCluster, run_rig

IMAGE = "localhost/fairway-rig-bench:1"
PODS = 5


@contextmanager
def rig(*, node: bool) -> Iterator[tuple[State, float]]:
    """A fresh rig, and how long `up` took."""
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as directory:
        state = State(root=Path(directory) / "rig")
        began = time.monotonic()
        try:
            run_rig("up", *(["--node"] if node else []), "--quiet", "--owner", str(os.getpid()), state=state)
            yield state, time.monotonic() - began
        finally:
            run_rig("down", "--wipe", state=state)


def memory(state: State) -> dict[str, float]:
    return {component.name: round(component.megabytes, 1) for component in status(state).components}


def pod_seconds(state: State) -> list[float]:
    """From the POST to Ready, one pod after the other."""
    cluster = RigCluster.at(state.kubeconfig, directory=state.root / "bench", owned=True)
    cluster.load_image(python_image(reference=IMAGE, entrypoint=["python", "-c"]))
    namespace = cluster.namespace()
    took = []
    for number in range(PODS):
        container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": ["input()"], "stdin": True}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        began = time.monotonic()
        cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": f"p{number}"}, "spec": spec})
        cluster.wait_for_pod(namespace, f"p{number}")
        took.append(time.monotonic() - began)
    return took


def measure(*, runs: int, node: bool) -> dict[str, Any]:
    progress = Progress()
    ensure_binaries(progress=progress)
    figures: dict[str, Any] = {"kubernetes": KUBERNETES.version, "build": KUBERNETES.figures()}
    up, sizes = [], {}
    for _ in range(runs):
        with rig(node=False) as (state, seconds):
            up.append(seconds)
            sizes = memory(state)
    figures["api_up_seconds"] = round(statistics.median(up), 2)
    figures["api_megabytes"] = sizes
    if not node:
        return figures
    require_node(progress=progress)
    ensure_policy_enforcer(progress=progress)
    figures["build_policy"] = POLICY_ENFORCER.figures()
    up, pods = [], []
    for _ in range(runs):
        with rig(node=True) as (state, seconds):
            up.append(seconds)
            pods += pod_seconds(state)
            sizes = memory(state)
    figures["node_up_seconds"] = round(statistics.median(up), 2)
    figures["pod_ready_seconds"] = round(statistics.median(pods), 2)
    figures["pod_ready_seconds_worst"] = round(max(pods), 2)
    figures["node_megabytes"] = sizes
    return figures


def show(figures: dict[str, Any]) -> None:
    table = Table(title=f"rig, Kubernetes {figures['kubernetes']}")
    table.add_column("what")
    table.add_column("cost", justify="right")
    for name, title in (("build", "build Kubernetes"), ("build_policy", "build policy enforcement")):
        if built := figures.get(name):
            size = built["bytes"] / 1e6
            table.add_row(title, f"{built['cpu_seconds']} CPU-s, {built['wall_seconds']} s, {size:.0f} MB")
    table.add_row("up, API tier", f"{figures['api_up_seconds']} s")
    if "node_up_seconds" in figures:
        table.add_row("up, node tier", f"{figures['node_up_seconds']} s")
        table.add_row("pod ready", f"{figures['pod_ready_seconds']} s, worst {figures['pod_ready_seconds_worst']} s")
    sizes = figures.get("node_megabytes") or figures["api_megabytes"]
    for name, megabytes in sorted(sizes.items(), key=lambda item: -item[1]):
        table.add_row(f"  {name}", f"{megabytes:.0f} MB")
    table.add_row("memory in all", f"{sum(sizes.values()):.0f} MB")
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rig", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--api-only", action="store_true", help="no node: needs no root")
    options = parser.parse_args()
    figures = measure(runs=max(1, options.runs), node=not options.api_only)
    show(figures)
    budgeted = {name: figures.get(name) for name in ("api_up_seconds", "node_up_seconds", "pod_ready_seconds")}
    return finish("rig", budgeted, figures)


if __name__ == "__main__":
    sys.exit(main())
