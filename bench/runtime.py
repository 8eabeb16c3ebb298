"""What the controller runtime costs: a cold start on N objects, a restart, and repairs, against a bare client.

    python -m bench.runtime [--toys 1000] [--kubeconfig FILE]

Every Toy needs four writes: three children and a status. The bare client sends the same four as fast as it can, with
no cache, no queue and no look before a write; it runs before and after, and its mean counts. CPU is that of the whole
client process, start-up and imports included; the time of the operator ends with its last write. Memory is the most
that the process ever had, less what one with nothing to do has. The last line is JSON; the exit code is 1 past a
budget.
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.budget import finish
from bench.writer import client, in_parallel
from fairway.kube.client import Client
from fairway.kube.errors import AlreadyExists, NotFound
from fairway.kube.resource import CONFIG_MAP, CRD, NAMESPACE, WELL_KNOWN
from fairway.runtime.child import children
from rig.state import State
from rig.testcluster import run_rig
from tests.cluster.runtime import toys

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ran:
    """One phase of the operator: what it reported when it stopped, and how long the work took."""

    seconds: float
    report: dict[str, Any]

    @property
    def writes(self) -> int:
        return int(self.report["applied"] + self.report["statuses"] + self.report["deleted"])


class Operator:
    """The toy operator as a process of its own."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.runtime.toys", "--kubeconfig", kubeconfig, "--namespace", namespace],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_ready(self) -> None:
        """Until its caches are filled."""
        assert self._process.stdout is not None
        probes = self._process.stdout.readline().split()[-1]
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{probes}/readyz", timeout=5):
                return
            time.sleep(0.05)

    def stop(self) -> Ran:
        seconds = time.monotonic() - self._started
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=60)
        return Ran(seconds, json.loads(out.splitlines()[-1]))


async def prepare(made: Client, namespace: str, count: int) -> None:
    with contextlib.suppress(AlreadyExists):
        await made.create(CRD, toys.CRD)
    while True:
        with contextlib.suppress(NotFound):
            await made.list_page(toys.TOY)
            break
        await asyncio.sleep(0.1)
    await made.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await in_parallel(
        lambda number: made.create(toys.TOY, toys.toy(f"toy-{number:05}", namespace), namespace=namespace), range(count)
    )


async def bare(kubeconfig: Path, namespace: str) -> None:
    """The same writes, by a client that knows nothing and looks at nothing."""
    async with client(kubeconfig, field_manager=toys.FIELD_MANAGER) as made:
        catalogue = WELL_KNOWN.plus((toys.TOY,))

        async def write(owner: Any) -> None:
            for ref, child in children(owner, toys.desired(owner), catalogue, hash_annotation=toys.HASH):
                await made.apply(ref.resource, child, force=True)
            status = {"phase": "Ready", "observedGeneration": 1, "url": "http://toy"}
            metadata = {name: owner["metadata"][name] for name in ("name", "namespace")}
            await made.apply_status(
                toys.TOY,
                {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": metadata, "status": status},
            )

        owners = [owner async for owner in made.list(toys.TOY, namespace=namespace)]
        await in_parallel(write, owners)


def run_bare(kubeconfig: Path, namespace: str) -> tuple[float, float]:
    started = time.monotonic()
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "bench.runtime", "--kubeconfig", kubeconfig, "--bare", namespace],
        cwd=REPOSITORY,
        check=True,
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - started, cpu


async def converged(made: Client, namespace: str, count: int) -> None:
    """Until every Toy has its status (asked seldom, so as not to be in the way)."""
    while True:
        ready = 0
        async for owner in made.list(toys.TOY, namespace=namespace):
            ready += owner.get("status", {}).get("observedGeneration") == owner["metadata"]["generation"]
        if ready == count:
            return
        await asyncio.sleep(1)


async def repairs(made: Client, namespace: str, names: list[str]) -> list[float]:
    """Deletes or edits a child of each by hand; the seconds until each is what it was."""
    meant = {name: (await made.get(CONFIG_MAP, namespace, name))["data"] for name in names}
    acted: dict[str, float] = {}
    seconds: dict[str, float] = {}
    version = (await made.list_page(CONFIG_MAP, namespace=namespace, limit=1)).resource_version

    async def watch() -> None:
        async for event in made.watch(CONFIG_MAP, namespace=namespace, resource_version=version):
            name = event.object["metadata"].get("name")
            if event.type in ("ADDED", "MODIFIED") and name in acted and event.object.get("data") == meant[name]:
                seconds.setdefault(name, time.monotonic() - acted[name])

    async def spoil(name: str) -> None:
        acted[name] = time.monotonic()
        if names.index(name) % 2:
            await made.merge(CONFIG_MAP, namespace, name, {"data": {"config.json": "by hand"}})
        else:
            await made.delete(CONFIG_MAP, namespace, name)

    watching = asyncio.create_task(watch())
    await in_parallel(spoil, names)
    async with asyncio.timeout(60):
        while len(seconds) < len(names):  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.05)
    watching.cancel()
    return sorted(seconds.values())


async def measure(kubeconfig: Path, count: int) -> dict[str, Any]:
    tag = secrets.token_hex(3)
    namespaces = [f"bench-{tag}", f"bench-{tag}-bare-1", f"bench-{tag}-bare-2"]
    cold_namespace, *bare_namespaces = namespaces
    async with client(kubeconfig, field_manager=toys.FIELD_MANAGER) as made:
        try:
            for namespace in namespaces:
                await prepare(made, namespace, count)
            idle = Operator(kubeconfig, "default")
            await asyncio.to_thread(idle.wait_ready)
            await asyncio.sleep(1)
            idled = await asyncio.to_thread(idle.stop)
            bares = [await asyncio.to_thread(run_bare, kubeconfig, bare_namespaces[0])]

            operator = Operator(kubeconfig, cold_namespace)
            await converged(made, cold_namespace, count)
            await asyncio.sleep(2)
            cold = await asyncio.to_thread(operator.stop)
            bares.append(await asyncio.to_thread(run_bare, kubeconfig, bare_namespaces[1]))

            operator = Operator(kubeconfig, cold_namespace)
            await asyncio.to_thread(operator.wait_ready)
            await asyncio.sleep(3)
            restart_cpu = operator.cpu()
            repaired = await repairs(made, cold_namespace, [f"toy-{number:05}" for number in range(min(50, count))])
            await asyncio.sleep(1)
            restart = await asyncio.to_thread(operator.stop)
        finally:
            for namespace in namespaces:
                with contextlib.suppress(NotFound):
                    await made.delete(NAMESPACE, None, namespace)
    bare_seconds, bare_cpu = (sum(values) / len(values) for values in zip(*bares, strict=True))
    return {
        "toys": count,
        "cold_writes": cold.writes,
        "cold_noop": cold.report["noop"],
        "cold_cpu_s": cold.report["cpu"],
        "cold_s": cold.report["last_write_s"],
        "cold_rss_mb": cold.report["rss_mb"],
        "idle_cpu_s": idled.report["cpu"],
        "idle_rss_mb": idled.report["rss_mb"],
        "bare_cpu_s": round(bare_cpu, 2),
        "bare_s": round(bare_seconds, 1),
        "restart_writes": restart.writes - len(repaired),
        "restart_noop": restart.report["noop"],
        "restart_cpu_s": round(restart_cpu, 2),
        "repaired": len(repaired),
        "repair_p50_s": round(repaired[len(repaired) // 2], 2),
        "repair_p99_s": round(repaired[-1], 2),
        "loadavg": round(os.getloadavg()[0], 1),
    }


def budgeted(result: dict[str, Any]) -> dict[str, float | None]:
    return {
        "writes_too_many": result["cold_writes"] - 4 * result["toys"],
        "writes_without_effect": result["cold_noop"] + result["restart_noop"],
        "cpu_ratio": round(result["cold_cpu_s"] / result["bare_cpu_s"], 2),
        "wall_ratio": round(result["cold_s"] / result["bare_s"], 2),
        "memory_added_mb": round(result["cold_rss_mb"] - result["idle_rss_mb"], 1),
        "restart_writes": result["restart_writes"],
        "repair_p99_s": result["repair_p99_s"],
    }


def table(result: dict[str, Any]) -> Iterator[str]:
    rows = (
        ("objects", f"{result['toys']} toys, {4 * result['toys']} writes needed"),
        ("cold start", "{cold_writes} writes ({cold_noop} without effect), {cold_cpu_s} CPU s, {cold_s} s"),
        ("bare client, same writes", "{bare_cpu_s} CPU s, {bare_s} s"),
        ("ratio", "{cpu_ratio} x the bare client's CPU, {wall_ratio} x its time"),
        ("of that, starting up", "{idle_cpu_s} CPU s"),
        ("memory", "{cold_rss_mb} MB, {memory_added_mb} more than with nothing to do"),
        ("restart, all converged", "{restart_writes} writes, {restart_cpu_s} CPU s"),
        ("children spoilt by hand", "{repaired} repaired, p50 {repair_p50_s} s, p99 {repair_p99_s} s"),
    )
    for name, value in rows:
        yield f"{name:26} {value.format(**budgeted(result) | result)}"


@contextlib.contextmanager
def cluster(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as directory:
        state = State(root=Path(directory) / "rig")
        run_rig("up", "--quiet", "--owner", str(os.getpid()), state=state)
        try:
            yield state.kubeconfig
        finally:
            run_rig("down", "--wipe", state=state)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toys", type=int, default=1000)
    parser.add_argument("--kubeconfig", type=Path, help="an API server to use; default: a rig of its own")
    parser.add_argument("--bare", metavar="NAMESPACE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        uvloop.run(bare(arguments.kubeconfig, arguments.bare))
        return 0
    with cluster(arguments.kubeconfig) as kubeconfig:
        result = uvloop.run(measure(kubeconfig, arguments.toys))
    print("\n".join(table(result)))
    return finish("runtime", budgeted(result), result)


if __name__ == "__main__":
    sys.exit(main())
