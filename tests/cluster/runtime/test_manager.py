"""The manager as a process: its own rights, probes, a clean stop, leadership; and what it says when it cannot start."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairway.kube.client import Client
from fairway.kube.resource import LEASE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Obj
from fairway.runtime.endpoints import Address
from rig.testcluster import RigCluster
from tests.cluster.runtime import toys
from tests.cluster.runtime.conftest import Operate
from tests.cluster.runtime.toys import TOY, toy
from tests.cluster.runtime.waiting import eventually, ready

pytestmark = pytest.mark.anyio


class Process:
    """A toy operator as a process of its own, its log read as it comes."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.log: list[dict[str, Any]] = []
        self.out: list[str] = []
        self._readers = [asyncio.create_task(self._read_log()), asyncio.create_task(self._read_out())]

    @property
    def events(self) -> list[str]:
        return [entry["event"] for entry in self.log]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        code = await asyncio.wait_for(self.child.wait(), 30)
        await asyncio.gather(*self._readers)
        return code

    async def wait_for(self, event: str) -> None:
        async def look() -> bool:
            return event in self.events

        await eventually(look)

    async def _read_log(self) -> None:
        assert self.child.stderr is not None
        async for line in self.child.stderr:
            self.log.append(json.loads(line) if line.startswith(b"{") else {"event": line.decode()})

    async def _read_out(self) -> None:
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            self.out.append(line.decode().strip())


@asynccontextmanager
async def process(kubeconfig: Path, namespace: str, *arguments: str) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cluster.runtime.toys", "--kubeconfig", str(kubeconfig), "--namespace", namespace,
        *arguments,
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    made = Process(child)
    try:
        yield made
    finally:
        if child.returncode is None:
            await made.stop(signal.SIGKILL)


def rule(resources: list[str], verbs: list[str], group: str) -> Obj:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


LOOK, WRITE = ["get", "list", "watch"], ["create", "patch", "delete"]
RULES = [
    rule(["toys"], LOOK, toys.GROUP),
    rule(["toys/status"], ["patch"], toys.GROUP),
    # Owner references with blockOwnerDeletion ask for this, where that admission plugin runs.
    rule(["toys/finalizers"], ["update"], toys.GROUP),
    rule(["configmaps", "services"], [*LOOK, *WRITE], ""),
    rule(["deployments"], [*LOOK, *WRITE], "apps"),
    rule(["events"], ["create", "patch"], "events.k8s.io"),
    rule(["leases"], ["get", "create", "update"], "coordination.k8s.io"),
]


@pytest.fixture
async def own_rights(rig_api: RigCluster, client: Client, namespace: str) -> Path:
    """A kubeconfig of a ServiceAccount that may do what the operator needs, in its namespace, and nothing more."""
    name = "toy-operator"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.create(SERVICE_ACCOUNT, account, namespace=namespace)
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name}, "rules": RULES}
    await client.create(ROLE, role, namespace=namespace)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    await client.create(ROLE_BINDING, binding, namespace=namespace)
    return rig_api.service_account_kubeconfig(namespace, name)


async def make(client: Client, namespace: str, name: str = "t", **spec: Any) -> Obj:
    return await client.create(TOY, toy(name, namespace, **spec), namespace=namespace)


async def test_it_works_with_its_own_few_rights_and_stops_cleanly(
    client: Client, namespace: str, own_rights: Path
) -> None:
    await make(client, namespace)
    async with process(own_rights, namespace, "--lease") as operator:
        await ready(client, namespace)
        await client.merge(TOY, namespace, "t", {"spec": {"withoutService": True}})
        await ready(client, namespace, generation=2)
        assert await operator.stop() == 0
    assert not [entry for entry in operator.log if entry.get("level") in ("warning", "error")]
    report = json.loads(operator.out[-1])
    assert (report["deleted"], report["noop"]) == (1, 0)


async def test_it_is_ready_when_its_caches_are_and_says_what_is_missing(
    client: Client, namespace: str, own_rights: Path
) -> None:
    role = await client.get(ROLE, namespace, "toy-operator")
    without = [rule for rule in role["rules"] if rule["apiGroups"] != ["apps"]]
    await client.merge(ROLE, namespace, "toy-operator", {"rules": without})
    async with process(own_rights, namespace) as operator, aiohttp.ClientSession() as http:
        await eventually(_async(lambda: operator.out))
        address = operator.out[0].removeprefix("probes ")

        async def probe(path: str) -> tuple[int, str]:
            async with http.get(f"http://{address}{path}") as response:
                return response.status, await response.text()

        async def refused() -> bool:
            return "deployments.apps is not listed yet: 403 Forbidden" in (await probe("/readyz"))[1]

        await eventually(refused)
        assert (await probe("/readyz"))[0] == 503
        assert (await probe("/healthz"))[0] == 200
        await client.merge(ROLE, namespace, "toy-operator", {"rules": role["rules"]})

        async def is_ready() -> bool:
            return (await probe("/readyz"))[0] == 200

        await eventually(is_ready)
        assert await operator.stop() == 0


def _async(look: Any) -> Any:
    async def looking() -> Any:
        return look()

    return looking


async def test_metrics_of_a_running_manager(client: Client, namespace: str, operate: Operate) -> None:
    await make(client, namespace)
    async with operate(metrics=Address("127.0.0.1", 0)) as manager, aiohttp.ClientSession() as http:
        await ready(client, namespace)
        async with http.get(f"http://{manager.addresses['metrics']}/metrics") as response:
            text = await response.text()
    for line in (
        "toys_apply_noop_total 0.0",
        'toys_store_objects{resource="deployments.apps"} 1.0',
        'toys_lists_total{resource="configmaps"} 1.0',
        'controller_runtime_reconcile_errors_total{controller="toy"} 0.0',
    ):
        assert line in text
    assert 'method="PATCH"' in text


async def test_a_second_replica_takes_over_at_once_after_a_clean_stop(
    client: Client, namespace: str, own_rights: Path
) -> None:
    async with process(own_rights, namespace, "--lease") as first:
        await first.wait_for("leading")
        async with process(own_rights, namespace, "--lease") as second:
            await second.wait_for("waiting for the leader to go")
            await make(client, namespace, "one")
            await ready(client, namespace, "one")
            assert await first.stop() == 0
            started = asyncio.get_running_loop().time()
            await second.wait_for("leading")
            assert asyncio.get_running_loop().time() - started < 2.5
            await make(client, namespace, "two")
            await ready(client, namespace, "two")
            assert await second.stop() == 0
    lease = await client.get(LEASE, namespace, "toy-operator")
    assert lease["spec"]["leaseTransitions"] == 1
    assert json.loads(second.out[-1])["applied"] == 3, "the first one's work was not done again"


async def test_a_killed_leader_is_replaced_when_its_lease_runs_out(
    client: Client, namespace: str, own_rights: Path
) -> None:
    async with process(own_rights, namespace, "--lease") as first:
        await first.wait_for("leading")
        async with process(own_rights, namespace, "--lease") as second:
            await second.wait_for("waiting for the leader to go")
            await first.stop(signal.SIGKILL)
            started = asyncio.get_running_loop().time()
            await second.wait_for("leading")
            assert asyncio.get_running_loop().time() - started < 12.5
            await make(client, namespace)
            await ready(client, namespace)


async def test_a_leader_that_slept_through_its_lease_stops_without_another_write(
    client: Client, namespace: str, own_rights: Path
) -> None:
    async with process(own_rights, namespace, "--lease") as first:
        await first.wait_for("leading")
        async with process(own_rights, namespace, "--lease") as second:
            await second.wait_for("waiting for the leader to go")
            first.child.send_signal(signal.SIGSTOP)
            await second.wait_for("leading")
            await make(client, namespace)
            await ready(client, namespace)
            first.child.send_signal(signal.SIGCONT)
            assert await asyncio.wait_for(first.child.wait(), 20) == 1
            await asyncio.sleep(0.1)
            report = json.loads(first.out[-1])
            assert (report["applied"], report["statuses"]) == (0, 0)
            assert "lost the lease" in first.events


async def test_a_clean_stop_gives_the_lease_back(client: Client, namespace: str, own_rights: Path) -> None:
    async with process(own_rights, namespace, "--lease") as operator:
        await operator.wait_for("leading")
        lease = await client.get(LEASE, namespace, "toy-operator")
        assert lease["spec"]["leaseDurationSeconds"] == 10
        assert await operator.stop() == 0
    lease = await client.get(LEASE, namespace, "toy-operator")
    assert lease["spec"]["holderIdentity"] == ""
