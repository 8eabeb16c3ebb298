"""A server behind a Unix socket, as clients see it through the proxy."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from fairway.api.runconfig import Attach, Upstream
from fairway.local.stdio import SOCKET, StdioSocket
from fairway.proxy.topology import FileTopology
from tests.unit.proxy.serving import proxy, route, until
from tests.unit.proxy.test_stdio import Client

pytestmark = pytest.mark.anyio
SERVER = str(Path(__file__).parent / "bridge" / "line_server.py")
ATTACHED = Upstream(transport="stdio", attach=Attach(namespace="default", pod="a-0"))


def topology(path, **pods):
    known = {"listen": {"default/a": "127.0.0.1:0"}, "attach": pods}
    path.write_text(json.dumps(known))
    return FileTopology(path)


async def server():
    return await asyncio.create_subprocess_exec(
        sys.executable, SERVER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def test_it_is_greeted_listed_and_called(tmp_path):
    process = await server()
    place = {"default/a-0": {"socket": str(tmp_path / SOCKET), "pod": "a-x", "uid": "u"}}
    async with (
        StdioSocket(tmp_path, process),
        proxy(route(upstream=ATTACHED), topology=topology(tmp_path / "t.json", **place)) as running,
    ):
        client = await Client.open(running)
        assert (await client.call("echo", a=1)).message["result"]["content"][0]["text"] == '{"a": 1}'
    await process.wait()


async def test_the_next_run_is_greeted_anew_and_requests_meanwhile_are_refused(tmp_path):
    place = {"default/a-0": {"socket": str(tmp_path / SOCKET), "pod": "a-x", "uid": "u"}}
    async with proxy(route(upstream=ATTACHED), topology=topology(tmp_path / "t.json", **place), ready=False) as running:
        first = await server()
        async with StdioSocket(tmp_path, first):
            await until(lambda: running.gateway.ready)
            client = await Client.open(running)
            before = (await client.call("pid")).message["result"]["content"][0]["text"]
            first.kill()
            await until(lambda: not running.gateway.routes["default/a"].upstream.has_good)
        await first.wait()
        assert (await client.call("pid")).status in (404, 503)
        second = await server()
        async with StdioSocket(tmp_path, second):
            await until(lambda: running.gateway.routes["default/a"].upstream.has_good)
            client = await Client.open(running)
            assert (await client.call("pid")).message["result"]["content"][0]["text"] != before
        await second.wait()


async def test_a_server_that_says_nothing_of_use_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr("fairway.proxy.bridge.handshake.PATIENCE", 0.2)
    place = {"default/a-0": {"socket": str(tmp_path / SOCKET), "pod": "a-x", "uid": "u"}}
    async with proxy(route(upstream=ATTACHED), topology=topology(tmp_path / "t.json", **place), ready=False) as running:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "print('hello', flush=True); import sys; sys.stdin.read()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        async with StdioSocket(tmp_path, process):
            (endpoint,) = running.gateway.routes["default/a"].upstream.endpoints
            await until(lambda: "it wrote 1 line that is no MCP message" in endpoint.message)
            assert endpoint.message.startswith("the server has not answered initialize yet")
            process.kill()
        await process.wait()


async def test_a_pod_that_the_file_does_not_know_is_nowhere(tmp_path):
    async with proxy(route(upstream=ATTACHED), topology=topology(tmp_path / "t.json"), ready=False) as running:
        reply = await running.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert reply.status == 503
        assert "no endpoints" in json.dumps(reply.message)
