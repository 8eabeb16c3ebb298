"""Readiness probes."""

import asyncio
import socket

import pytest

from fairway.local import readiness as module
from fairway.local.readiness import Probe, probe_of, readiness
from fairway.mcp.http import HttpClient
from fairway.mcp.http_server import HttpServer, Response

pytestmark = pytest.mark.anyio

POD = {"spec": {"containers": [{"ports": [{"name": "mcp", "containerPort": 8080, "hostPort": 20001}]}]}}


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (None, Probe()),
        (
            {"tcpSocket": {"port": "mcp"}, "periodSeconds": 1, "failureThreshold": 2, "initialDelaySeconds": 4},
            Probe(port=20001, period=1.0, failures=2, delay=4.0),
        ),
        ({"httpGet": {"port": 8080, "path": "/x"}, "timeoutSeconds": 7}, Probe(port=20001, path="/x", timeout=7.0)),
        ({"httpGet": {"port": 8080}}, Probe(port=20001, path="/")),
        ({"exec": {"command": ["true"]}}, Probe()),
    ],
)
def test_a_probe_dials_where_the_port_is_on_this_machine(probe, expected):
    assert probe_of(POD, {"readinessProbe": probe} if probe else {}) == expected


@pytest.fixture
async def http():
    client = HttpClient()
    yield client
    await client.aclose()


async def first(changes):
    async with asyncio.timeout(10):
        return await anext(changes)


async def test_a_port_that_opens_later_makes_it_ready_soon_after(http):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        changes = readiness(Probe(port=listener.getsockname()[1], period=10), http)
        waiting = asyncio.create_task(first(changes))
        await asyncio.sleep(module.FIRST_PERIOD * 3)
        assert not waiting.done()
        listener.listen()
        assert await waiting is True  # long before the probe's own period
    await changes.aclose()


async def test_it_is_unready_only_after_as_many_failures_as_the_probe_says(http):
    listener = socket.create_server(("127.0.0.1", 0))
    changes = readiness(Probe(port=listener.getsockname()[1], period=0.01, failures=3), http)
    assert await first(changes) is True
    listener.close()
    assert await first(changes) is False
    await changes.aclose()


async def test_without_a_probe_running_is_ready(http):
    changes = readiness(Probe(), http)
    assert [ready async for ready in changes] == [True]


@pytest.mark.parametrize(("status", "succeeds"), [(200, True), (302, True), (404, False), (503, False)])
async def test_an_http_probe_goes_by_the_status(http, status, succeeds):
    server = HttpServer(lambda _: Response(status=status, content_type="text/plain", body=b""))
    port = await server.listen(host="127.0.0.1", port=0)
    assert await Probe(port=port, path="/").succeeds(http) is succeeds
    await server.stop(grace=1)


async def test_an_http_probe_of_a_closed_port_fails(http):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not await Probe(port=bound.getsockname()[1], path="/").succeeds(http)
