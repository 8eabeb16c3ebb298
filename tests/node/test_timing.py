"""How long things take on real pods, and what clients meet meanwhile. The short counts; the long ones are soak."""

import math
import statistics
import time

import anyio.to_thread
import pytest

from tests.installed import InstalledFairway, condition
from tests.node.calling import call, client, crowd, until
from tests.node.manifests import inline, tool_config

pytestmark = pytest.mark.anyio

TOOLS = "def add(a: int, b: int) -> int:\n    return a + b\n\n\ndef sub(a: int, b: int) -> int:\n    return a - b\n"
ENFORCED_WITHIN = 3.0
READY_WITHIN = 2.5
DEARER = 1.3


def p99(figures: list[float]) -> float:
    return sorted(figures)[math.ceil(0.99 * len(figures)) - 1]


async def enforced(fairway: InstalledFairway, namespace: str, *, times: int) -> list[float]:
    """Seconds from each of so many changes of policy until no proxy lets a removed tool pass, or all let it pass."""
    server = inline(code=TOOLS, proxy={"replicas": 2}, toolConfigRef={"name": "few"})
    await anyio.to_thread.run_sync(fairway.apply, namespace, tool_config("add", "sub"), server)
    await anyio.to_thread.run_sync(fairway.ready, namespace, "hello")
    proxies = fairway.pods(namespace, "hello", component="proxy")
    urls = [f"http://{pod['status']['podIP']}:8080/mcp" for pod in proxies]
    assert len(urls) == 2
    service = f"http://{fairway.address(namespace, 'hello')}/mcp"
    took, http = [], client()
    numbers = {"a": 2, "b": 3}
    async with crowd(service, *["add"] * 40, *["sub"] * 10, **numbers) as clients:
        for turn in range(times):
            removed = turn % 2 == 0
            wanted = ["add"] if removed else ["add", "sub"]
            began = time.monotonic()
            await anyio.to_thread.run_sync(fairway.apply, namespace, tool_config(*wanted))

            async def everywhere(removed: bool = removed) -> bool:
                return all([bool((await call(http, url, "sub", **numbers)).error) == removed for url in urls])

            done = await until(everywhere, seconds=30)
            took.append(done - began)
            await anyio.sleep(1.0)
            if removed:
                assert clients.good("sub", since=done) == []
            else:
                assert clients.good("sub", since=done)
    await http.aclose()
    assert clients.failed("add") == []
    assert len(clients.good("add")) > 40 * times
    assert {made.error for made in clients.failed("sub") if "nknown tool" not in made.error} == set()
    assert [pod["metadata"]["uid"] for pod in fairway.pods(namespace, "hello", component="proxy")] == [
        pod["metadata"]["uid"] for pod in proxies
    ], "policy is reloaded, not rolled out"
    print(f"policy enforced in every proxy: p99 {p99(took):.2f} s, median {statistics.median(took):.2f} s of {times}")
    return took


async def test_a_removed_tool_is_gone_from_every_proxy_soon_and_fifty_clients_notice_nothing_else(
    fairway: InstalledFairway, rig_node_namespace: str
) -> None:
    await enforced(fairway, rig_node_namespace, times=4)


@pytest.mark.soak
async def test_policy_is_enforced_within_three_seconds(fairway: InstalledFairway, rig_node_namespace: str) -> None:
    assert p99(await enforced(fairway, rig_node_namespace, times=100)) <= ENFORCED_WITHIN


async def started(fairway: InstalledFairway, namespace: str, *, times: int) -> tuple[list[float], float]:
    """Seconds from a server's first answer until it is Ready, and how much longer one with a proxy takes until that."""
    lags: list[float] = []
    took: dict[str, list[float]] = {"none": [], "standalone": []}
    http = client()
    for number in range(times):
        for mode, known in took.items():
            name = f"{mode}-{number}"
            began = time.monotonic()
            await anyio.to_thread.run_sync(fairway.apply, namespace, inline(name, code=TOOLS, proxy={"mode": mode}))

            async def answers(name: str = name, front: str = "server" if mode == "none" else "proxy") -> bool:
                """The very pod that clients will reach, and not their Service, which waits for a probe of its own."""
                found = await anyio.to_thread.run_sync(
                    lambda: fairway.pods(namespace, name, component=front), abandon_on_cancel=True
                )
                addresses = [address for pod in found if (address := pod["status"].get("podIP"))]
                return any([not (await call(http, f"http://{a}:8080/mcp", "add", a=1, b=1)).error for a in addresses])

            async def ready(name: str = name) -> bool:
                status = await anyio.to_thread.run_sync(fairway.status, namespace, name)
                return condition(status, "Ready")[0] == "True"

            answered = await until(answers, seconds=60)
            done = await until(ready, seconds=60)
            lags.append(done - answered)
            known.append(done - began)
            await anyio.to_thread.run_sync(fairway.rig.api.delete, fairway.path(namespace, name))
    await http.aclose()
    dearer = statistics.median(took["standalone"]) / statistics.median(took["none"])
    print(f"Ready after the first answer: p99 {p99(lags):.2f} s, median {statistics.median(lags):.2f} s of {len(lags)}")
    shown = ", ".join(f"{mode} {statistics.median(known):.2f} s" for mode, known in took.items())
    print(f"from apply to Ready: {shown}; standalone is {dearer:.2f} x none")
    return lags, dearer


async def test_a_server_that_answers_is_soon_ready_and_a_proxy_makes_it_little_later(
    fairway: InstalledFairway, rig_node_namespace: str
) -> None:
    lags, _ = await started(fairway, rig_node_namespace, times=2)
    assert max(lags) < 4 * READY_WITHIN


@pytest.mark.soak
async def test_ready_follows_the_first_answer_within_two_and_a_half_seconds(
    fairway: InstalledFairway, rig_node_namespace: str
) -> None:
    lags, dearer = await started(fairway, rig_node_namespace, times=15)
    assert p99(lags) <= READY_WITHIN
    assert dearer <= DEARER
