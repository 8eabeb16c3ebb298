"""What the operator costs on N servers, against a bare client that does the same writes, and next to others' objects.

    python -m bench.operator [--servers 1000] [--foreign 2000]

The operator runs as installed, under its own account and rights. Nine of ten servers have a proxy of their own, one of
ten has none, so that the operator itself shakes hands with it. Pods are scripted (bench/scripted.py); the MCP server
behind all of them is real. The bare client sends the same objects and as many statuses as fast as it can, with no
cache, no queue, no look before a write and no handshakes; it runs twice, and its mean counts. CPU is that of the whole
process, start-up and imports included. Memory is the most that the process ever had, less what one with nothing to do
has, and that is measured next to a cluster full of others' objects too. The last line is JSON; the exit code is 1 past
a budget.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from bench.budget import finish
from bench.programs import free_port
from bench.scripted import ScriptedNode, foreign
from bench.writer import client, in_parallel
from fairway.api import names
from fairway.controllers.install import NAME, NAMESPACE, objects
from fairway.controllers.mcpserver.desired import desired, made_once
from fairway.controllers.mcpserver.inputs import Inputs, gather
from fairway.controllers.mcpserver.rules import rules_of
from fairway.controllers.mcpserver.workload import needs_of
from fairway.controllers.resources import CATALOGUE, MCP_SERVER
from fairway.controllers.settings import Settings
from fairway.kube.client import Client
from fairway.kube.resource import Obj
from fairway.runtime.child import children
from rig.process import ProcessTable
from rig.state import State
from rig.testcluster import RigCluster, run_rig

REPOSITORY: Final = Path(__file__).resolve().parent.parent
IMAGE: Final = "fairway:bench"
TOOLS: Final = (
    "def add(a: int, b: int) -> int:\n    return a + b\n\n\ndef subtract(a: int, b: int) -> int:\n    return a - b\n"
)
_KINDS: Final = {(r.api_version, r.kind): r for r in CATALOGUE.values()}


class Operator:
    """The operator as a process of its own, under its own account."""

    def __init__(self, kubeconfig: Path, *, namespaces: str = "") -> None:
        self._metrics = free_port()
        self._probes = free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fairway", "operator", "--kubeconfig", str(kubeconfig), "--image", IMAGE),
                *("--reach-pods", "direct", "--log-format", "json", "--namespaces", namespaces),
                *("--metrics-bind-address", f"127.0.0.1:{self._metrics}"),
                *("--health-probe-bind-address", f"127.0.0.1:{self._probes}"),
            ],
            cwd=REPOSITORY,
            stdout=self._log,
            stderr=self._log,
        )
        self._started = time.monotonic()

    def wait_ready(self) -> None:
        while True:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self._probes}/readyz", timeout=5),
            ):
                return
            if self._process.poll() is not None:
                raise SystemExit(f"the operator ended:\n{self._said()}")
            time.sleep(0.05)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, *, peak: bool = False) -> float:
        """MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) * 1024 / 1e6

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def writes(self) -> float:
        return sum(value for name, value in self.metrics().items() if name.startswith("fairway_writes_total"))

    def lag_p99_ms(self) -> float:
        """The upper end of the bucket that 99 of 100 looks at the loop were within."""
        found = [
            (float(match.group(1)), value)
            for name, value in self.metrics().items()
            if (match := re.fullmatch(r'fairway_event_loop_lag_seconds_bucket\{le="([0-9.]+|\+Inf)"\}', name))
        ]
        enough = 0.99 * max(count for _, count in found)
        return min(bound for bound, count in found if count >= enough) * 1000

    def stop(self) -> dict[str, Any]:
        """What it said of its writes."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        said = self._said()
        if "Traceback" in said:
            raise SystemExit(said)
        stopped: dict[str, Any] = json.loads(next(x for x in reversed(said.splitlines()) if '"stopped"' in x))
        return stopped

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()


async def servers(made: Client, namespace: str, *, count: int, port: int) -> list[Obj]:
    """Every tenth without a proxy."""
    found: list[Obj] = []

    async def write(number: int) -> None:
        spec: Obj = {"inlineTools": {"python": TOOLS}, "port": port}
        if number % 10 == 0:
            spec["proxy"] = {"mode": "none"}
        head = {"apiVersion": MCP_SERVER.api_version, "kind": MCP_SERVER.kind}
        metadata = {"name": f"server-{number:05}", "namespace": namespace}
        found.append(await made.create(MCP_SERVER, {**head, "metadata": metadata, "spec": spec}, namespace=namespace))

    await in_parallel(write, range(count))
    return found


def wanted(owner: Obj) -> list[Obj]:
    """The objects of one server, ready to be sent."""
    settings = Settings(image=IMAGE)
    gathered = gather(owner, None)
    assert isinstance(gathered, Inputs), gathered
    known = replace(gathered, needs=needs_of(gathered, settings))
    rules, _ = rules_of(known, settings)
    known = replace(known, rules=rules)
    made = [*made_once(known), *desired(known, settings)]
    return [child for _, child in children(owner, made, CATALOGUE, hash_annotation=names.ANNOTATION_APPLIED_HASH)]


async def bare(kubeconfig: Path, plan: bytes) -> None:
    """The writes of a plan, by a client that knows nothing and looks at nothing."""
    async with client(kubeconfig, field_manager=names.FIELD_MANAGER) as made:

        async def write(line: bytes) -> None:
            one = orjson.loads(line)
            for child in one["children"]:
                await made.apply(_KINDS[child["apiVersion"], child["kind"]], child, force=True)
            for number in range(one["statuses"]):
                status = {**one["owner"]["status"], "message": f"{number}"}
                await made.apply_status(MCP_SERVER, {**one["owner"], "status": status})

        await in_parallel(write, plan.splitlines())


def run_bare(kubeconfig: Path, plan: Path) -> tuple[float, float]:
    started, before = time.monotonic(), os.times()
    command = [sys.executable, "-m", "bench.operator", "--kubeconfig", str(kubeconfig), "--bare", str(plan)]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - started, cpu


def planned(owners: list[Obj], statuses: dict[str, Obj], written: int, plan: Path) -> None:
    """One line a server; `written` statuses in all, as evenly as they can be."""
    lines = []
    for position, owner in enumerate(owners):
        mine = written * (position + 1) // len(owners) - written * position // len(owners)
        head = {"apiVersion": MCP_SERVER.api_version, "kind": MCP_SERVER.kind}
        metadata = {name: owner["metadata"][name] for name in ("name", "namespace")}
        told = {**head, "metadata": metadata, "status": statuses[owner["metadata"]["name"]]}
        lines.append(orjson.dumps({"children": wanted(owner), "owner": told, "statuses": mine}))
    plan.write_bytes(b"\n".join(lines))


async def all_ready(made: Client, namespace: str, count: int) -> dict[str, Obj]:
    """The statuses once every server is Ready (asked seldom, so as not to be in the way)."""
    phases: Counter[str] = Counter()
    for _ in range(600):
        found = {o["metadata"]["name"]: o.get("status") or {} async for o in made.list(MCP_SERVER, namespace=namespace)}
        phases = Counter(status.get("phase", "") for status in found.values())
        if phases == {"Ready": count}:
            return found
        await asyncio.sleep(1)
    raise SystemExit(f"not all servers became Ready: {dict(phases)}")


async def measure(cluster: RigCluster, kubeconfig: Path, port: int, arguments: argparse.Namespace) -> dict[str, Any]:
    assert cluster.state is not None
    count = arguments.servers
    cold_namespace, others = cluster.namespace("cold"), cluster.namespace("others")
    bare_namespaces = [cluster.namespace("bare"), cluster.namespace("bare")]
    # from here on, Deployments are the scripted node's business
    for daemon in ("kube-controller-manager", "kube-scheduler"):
        pid = ProcessTable(run=cluster.state.run, logs=cluster.state.logs).pid(daemon)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    async with client(cluster.kubeconfig, field_manager=names.FIELD_MANAGER) as made:
        idle = Operator(kubeconfig)
        await asyncio.to_thread(idle.wait_ready)
        await asyncio.sleep(3)
        idle_memory = idle.memory()
        await foreign(made, others, arguments.foreign)
        await asyncio.sleep(3)
        foreign_memory, idle_peak = idle.memory(), idle.memory(peak=True)
        idle_cpu = idle.cpu()
        idled = await asyncio.to_thread(idle.stop)

        owners = [await servers(made, namespace, count=count, port=port) for namespace in bare_namespaces]
        await servers(made, cold_namespace, count=count, port=port)
        needed = sum(len(wanted(owner)) for owner in owners[0])
        node = asyncio.create_task(ScriptedNode(made, cold_namespace, port=port).run())
        await asyncio.sleep(0.5)
        operator = Operator(kubeconfig, namespaces=cold_namespace)
        ready = asyncio.create_task(all_ready(made, cold_namespace, count))
        await asyncio.wait((ready, node), return_when=asyncio.FIRST_COMPLETED)
        if node.done():
            node.result()
        statuses, cold_seconds = await ready, operator.seconds
        await asyncio.sleep(5)  # what was held back
        lag, writes, cpu = operator.lag_p99_ms(), operator.writes(), operator.cpu()
        memory = operator.memory(peak=True)
        await asyncio.sleep(10)
        idle_writes = operator.writes() - writes
        cold = await asyncio.to_thread(operator.stop)
        node.cancel()

        bares = []
        for namespace_owners in owners:
            with tempfile.NamedTemporaryFile(suffix=".json") as plan:
                planned(namespace_owners, statuses, cold["statuses"], Path(plan.name))
                bares.append(await asyncio.to_thread(run_bare, cluster.kubeconfig, Path(plan.name)))
    bare_seconds, bare_cpu = (sum(values) / len(values) for values in zip(*bares, strict=True))
    return {
        "servers": count,
        "objects": needed,
        "cold_applied": cold["applied"],
        "cold_statuses": cold["statuses"],
        "cold_noop": cold["noop"],
        "cold_conflicts": cold["conflicts"],
        "cold_cpu_s": round(cpu, 2),
        "cold_s": round(cold_seconds, 1),
        "cold_mb": round(memory, 1),
        "idle_mb": round(idle_memory, 1),
        "idle_peak_mb": round(idle_peak, 1),
        "idle_cpu_s": round(idle_cpu, 2),
        "idle_applied": idled["applied"],
        "foreign": arguments.foreign,
        "foreign_mb": round(foreign_memory, 1),
        "bare_cpu_s": round(bare_cpu, 2),
        "bare_cpu_each_s": [round(used, 2) for _, used in bares],
        "bare_s": round(bare_seconds, 1),
        "lag_p99_ms": round(lag, 1),
        "idle_writes": idle_writes,
        "loadavg": round(os.getloadavg()[0], 1),
    }


def budgeted(result: dict[str, Any]) -> dict[str, float | None]:
    added = (result["cold_mb"] - result["idle_mb"]) * 1e6
    return {
        "writes_too_many": result["cold_applied"] - result["objects"],
        "statuses_per_server": round(result["cold_statuses"] / result["servers"], 2),
        "writes_without_effect": result["cold_noop"],
        "idle_writes": result["idle_writes"],
        "cpu_ratio": round(result["cold_cpu_s"] / result["bare_cpu_s"], 2),
        "memory_per_object_kb": round(added / result["objects"] / 1000, 2),
        "lag_p99_ms": result["lag_p99_ms"],
        "foreign_memory_mb": round(result["foreign_mb"] - result["idle_mb"], 1),
    }


def table(result: dict[str, Any]) -> Iterator[str]:
    rows = (
        ("objects", "{servers} servers, {objects} objects"),
        (
            "cold start",
            "{cold_applied} writes and {cold_statuses} of status, {cold_cpu_s} CPU s, {cold_s} s to all Ready",
        ),
        ("bare client, same writes", "{bare_cpu_s} CPU s, {bare_s} s"),
        ("ratio", "{cpu_ratio} x the bare client's CPU"),
        ("memory", "{cold_mb} MB, {idle_mb} with nothing to do: {memory_per_object_kb} KB an object"),
        ("event loop", "p99 {lag_p99_ms} ms late at most"),
        ("others' objects", "{foreign} ConfigMaps, Secrets and pods each: {foreign_memory_mb} MB"),
        ("idle", "{idle_writes} writes in 10 s"),
    )
    for name, value in rows:
        yield f"{name:26} {value.format(**budgeted(result) | result)}"


@contextlib.contextmanager
def cluster() -> Iterator[tuple[RigCluster, Path]]:
    """A rig of its own with the operator's kinds and rights, and a way in as the operator."""
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as directory:
        state = State(root=Path(directory) / "rig")
        run_rig("up", "--quiet", "--owner", str(os.getpid()), state=state)
        try:
            made = RigCluster.at(state.kubeconfig, directory=state.root / "bench", owned=True)
            for obj in objects(image=IMAGE):
                if obj["kind"] != "Deployment":
                    made.api.apply(obj)
            yield made, made.service_account_kubeconfig(NAMESPACE, NAME)
        finally:
            run_rig("down", "--wipe", state=state)


@contextlib.contextmanager
def mcp_server(directory: Path) -> Iterator[int]:
    """The real server behind all the scripted pods."""
    source, port = directory / "tools.py", free_port()
    source.write_text(TOOLS)
    command = [*(sys.executable, "-m", "fairway", "tools", "--file", str(source)), "--port", str(port)]
    process = subprocess.Popen([*command, "--host", "0.0.0.0"], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--foreign", type=int, default=2000)
    parser.add_argument("--kubeconfig", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=Path, metavar="PLAN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        uvloop.run(bare(arguments.kubeconfig, arguments.bare.read_bytes()))
        return 0
    with (
        tempfile.TemporaryDirectory() as directory,
        mcp_server(Path(directory)) as port,
        cluster() as (made, kubeconfig),
    ):
        result = uvloop.run(measure(made, kubeconfig, port, arguments))
    print("\n".join(table(result)))
    return finish("operator", budgeted(result), result)


if __name__ == "__main__":
    sys.exit(main())
