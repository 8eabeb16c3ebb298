"""The reference implementation on both sides of the proxy: its client, its server, both eras."""

import asyncio
import socket
from contextlib import asynccontextmanager

import mcp.types as types
import pytest
import uvicorn
from mcp import Client
from mcp.client.sse import sse_client
from mcp.server.mcpserver import Context, MCPServer

from fairway.api.policy import NO_POLICY, Policy
from fairway.api.runconfig import ToolOverride, Tools, Upstream
from tests.unit.proxy.serving import proxy, route, until

pytestmark = pytest.mark.anyio

MODES = ["auto", "legacy", "2026-07-28"]


def make_server() -> MCPServer:
    made = MCPServer("sdk", version="3.2.1")

    @made.tool()
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @made.tool()
    def fail() -> str:
        raise RuntimeError("broken")

    @made.tool()
    async def count(n: int, ctx: Context) -> str:
        """Reports its progress."""
        for step in range(n):
            await ctx.report_progress(step, n)
        return "done"

    @made.tool()
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "late"

    @made.resource("test://static")
    def static() -> str:
        return "content"

    @made.prompt()
    def greet(name: str) -> str:
        return f"Hello {name}"

    return made


@asynccontextmanager
async def sdk_server(*, sse: bool = False, **options):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    made = make_server()
    app = (made.sse_app if sse else made.streamable_http_app)(host="127.0.0.1", **options)
    serving = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0))
    task = asyncio.create_task(serving.serve(sockets=[sock]))
    await until(lambda: serving.started)
    try:
        yield f"127.0.0.1:{sock.getsockname()[1]}"
    finally:
        serving.should_exit = serving.force_exit = True
        await task


@asynccontextmanager
async def front_of(tools: Tools | None = None, **options):
    async with sdk_server(**options) as address:
        upstream = Upstream(addresses=(address,), path="/mcp")
        async with proxy(route(upstream=upstream, tools=tools or Tools())) as front:
            yield front


@asynccontextmanager
async def sse_front_of(tools: Tools | None = None, policy: Policy = NO_POLICY):
    async with sdk_server(sse=True) as address:
        upstream = Upstream(transport="sse", addresses=(address,), path="/sse")
        served = route(upstream=upstream, mode="sse", path="/sse", tools=tools or Tools(), policy=policy)
        async with proxy(served) as front:
            yield front


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    [{}, {"json_response": True}, {"stateless_http": True}, {"stateless_http": True, "json_response": True}],
    ids=["stateful", "stateful json", "stateless", "stateless json"],
)
async def test_everything_works_as_without_a_proxy(mode, options):
    async with front_of(**options) as front, Client(front.url(), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "fail", "count", "slow"]
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.structured_content == {"result": 5}
        assert (await client.call_tool("fail", {})).is_error
        assert (await client.read_resource("test://static")).contents[0].text == "content"
        prompt = await client.get_prompt("greet", {"name": "you"})
        assert prompt.messages[0].content.text == "Hello you"
        answers = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(20)))
        assert [a.structured_content["result"] for a in answers] == [2 * n for n in range(20)]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_old_transport_works_as_without_a_proxy(mode):
    seen = []

    async def on_progress(progress, total, message):
        seen.append(progress)

    async with sse_front_of() as front, Client(sse_client(front.url()), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "fail", "count", "slow"]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
        assert (await client.call_tool("fail", {})).is_error
        assert (await client.read_resource("test://static")).contents[0].text == "content"
        assert (await client.call_tool("count", {"n": 3}, progress_callback=on_progress)).content[0].text == "done"
        await until(lambda: seen == [0, 1, 2])
        answers = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(20)))
        assert [a.structured_content["result"] for a in answers] == [2 * n for n in range(20)]


async def test_filter_and_renaming_hold_over_the_old_transport_and_a_refusal_ends_no_session():
    tools = Tools(filter=("add", "slow"), override=(ToolOverride(tool="add", name="sum", description="Sums."),))
    async with sse_front_of(tools) as front, Client(sse_client(front.url()), mode="legacy") as client:
        for _ in range(2):
            listed = (await client.list_tools()).tools
            assert [(tool.name, tool.description) for tool in listed] == [("sum", "Sums."), ("slow", "")]
            assert (await client.call_tool("sum", {"a": 2, "b": 3})).structured_content == {"result": 5}
            for hidden in ("add", "fail", "nonsense"):
                with pytest.raises(Exception, match=f"Unknown tool: {hidden}") as refused:
                    await client.call_tool(hidden, {"a": 2, "b": 3})
                assert refused.value.error.code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", MODES)
async def test_progress_arrives_while_the_call_runs(mode):
    seen = []

    async def on_progress(progress, total, message):
        seen.append(progress)

    async with front_of() as front, Client(front.url(), mode=mode) as client:
        result = await client.call_tool("count", {"n": 3}, progress_callback=on_progress)
        assert result.content[0].text == "done"
        await until(lambda: seen == [0, 1, 2])


@pytest.mark.parametrize("mode", MODES)
async def test_filter_and_renaming(mode):
    tools = Tools(filter=("add", "slow"), override=(ToolOverride(tool="add", name="sum", description="Sums."),))
    async with front_of(tools) as front, Client(front.url(), mode=mode) as client:
        listed = (await client.list_tools()).tools
        assert [(tool.name, tool.description) for tool in listed] == [("sum", "Sums."), ("slow", "")]
        assert (await client.call_tool("sum", {"a": 2, "b": 3})).structured_content == {"result": 5}
        for hidden in ("add", "fail", "nonsense"):
            with pytest.raises(Exception, match=f"Unknown tool: {hidden}") as refused:
                await client.call_tool(hidden, {"a": 2, "b": 3})
            assert refused.value.error.code == types.INVALID_PARAMS


async def test_the_status_says_what_the_server_says_of_itself():
    async with front_of() as front:
        said = front.gateway.status().routes[0]
        assert (said.server.name, said.server.version) == ("sdk", "3.2.1")
        assert said.tools.names == ("add", "count", "fail", "slow")
