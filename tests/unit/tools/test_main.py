"""The whole process: real clients of both eras, its exit codes, and how it ends."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from textwrap import dedent

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from fairway.mcp import protocol
from fairway.tools import main

pytestmark = pytest.mark.anyio

SOURCE = """
    '''Sums and waits.'''
    import asyncio, os, time

    def add(a: int, b: int = 2) -> int:
        '''Adds two numbers.

        Args:
            a: the first
        '''
        print("adding", a, b)
        return a + b

    def fail() -> None:
        raise ValueError("no such city")

    def block(seconds: float) -> str:
        print("blocking")
        time.sleep(seconds)
        return "slept"

    async def wait(mark: str, seconds: float = 60) -> str:
        open(mark, "w").write("waiting")
        try:
            await asyncio.sleep(seconds)
            return "waited"
        except asyncio.CancelledError:
            open(mark, "w").write("cancelled")
            raise
"""
START = (
    "import sys; from pathlib import Path; from fairway.tools.main import run; sys.exit(run(file=Path(sys.argv[1]), "
)
START += "host=sys.argv[2], port=int(sys.argv[3]), path=sys.argv[4], grace=float(sys.argv[5])))"


def spawn(path, *, host="127.0.0.1", port=0, at="/mcp", grace=5.0):
    command = [sys.executable, "-c", START, str(path), host, str(port), at, str(grace)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@asynccontextmanager
async def served(path, **options):
    """A running server: the process and its URL."""
    process = spawn(path, **options)
    try:
        line = await asyncio.to_thread(process.stderr.readline)
        yield process, line.split("tools at ")[1].split(": ")[0]
    finally:
        process.kill()
        process.communicate()


def finished(process):
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "sums.py"
    path.write_text(dedent(SOURCE))
    process = spawn(path)
    line = process.stderr.readline()
    yield line.split("tools at ")[1].split(": ")[0]
    process.kill()
    process.communicate()


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_reference_client_lists_and_calls_in_every_mode(server, mode, tmp_path):
    async with Client(server, mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["add", "fail", "block", "wait"]
        add = listed.tools[0]
        assert add.description == "Adds two numbers."
        assert add.input_schema["properties"]["a"] == {"type": "integer", "description": "the first"}
        assert add.output_schema["properties"] == {"result": {"type": "integer"}}
        result = await client.call_tool("add", {"a": 1})
        assert (result.is_error, result.structured_content, result.content[0].text) == (False, {"result": 3}, "3")
        result = await client.call_tool("add", {"a": "many"})
        assert (result.is_error, result.content[0].text.split(":")[:2]) == (True, ["add", " argument 'a'"])
        result = await client.call_tool("fail", {})
        assert (result.is_error, result.content[0].text) == (True, "ValueError: no such city")
        with pytest.raises(MCPError, match="Unknown tool: nope"):
            await client.call_tool("nope", {})


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_slow_tools_of_one_client_run_side_by_side(server, mode, tmp_path):
    async with Client(server, mode=mode) as client:
        await client.list_tools()
        mark = str(tmp_path / "mark")
        began = time.perf_counter()
        slow = [client.call_tool("block", {"seconds": 0.5}) for _ in range(6)]
        slow += [client.call_tool("wait", {"mark": mark, "seconds": 0.5}) for _ in range(6)]
        results = await asyncio.gather(*slow, client.call_tool("add", {"a": 1}))
        assert [one.structured_content["result"] for one in results] == ["slept"] * 6 + ["waited"] * 6 + [3]
        assert time.perf_counter() - began < 4.5  # one after the other it would be 6 s


async def test_health_is_on_the_same_port(server):
    async with httpx2.AsyncClient() as http:
        for path in ("/health", "/ready"):
            answer = await http.get(server.replace("/mcp", path))
            assert (answer.status_code, answer.json()) == (200, {"status": "ok", "tools": 4})
        assert (await http.post(server.replace("/mcp", "/health"))).status_code == 404
        assert (await http.get(server)).status_code == 405
        assert (await http.delete(server)).status_code == 405


async def test_raw_requests_of_both_eras_are_answered_exactly(server):
    kinds = {"accept": protocol.ACCEPT_BOTH, "content-type": protocol.JSON}
    params = {"name": "add", "arguments": {"a": 1}}
    modern = params | {"_meta": protocol.request_meta("2026-07-28")}
    headers = protocol.request_headers("2026-07-28", "tools/call", modern)
    async with httpx2.AsyncClient() as http:

        async def post(params, **headers):
            body = protocol.request_body(7, "tools/call", params)
            answer = await http.post(server, content=body, headers=kinds | headers)
            return answer.status_code, answer.json()

        status, body = await post(modern, **headers)
        assert (status, body["id"], body["result"]["structuredContent"]) == (200, 7, {"result": 3})
        status, body = await post(modern, **(headers | {"Mcp-Name": "fail"}))
        assert (status, body["error"]["code"]) == (400, protocol.ErrorCode.HEADER_MISMATCH)
        status, body = await post(params, **headers)
        assert (status, body["error"]["code"]) == (400, protocol.ErrorCode.INVALID_PARAMS)
        status, body = await post(params)
        assert (status, body["result"]["isError"]) == (200, False)
        status, body = await post(params, Origin="https://evil.example")
        assert status == 403
        status, body = await post(params, Host="evil.example")
        assert status == 403
        answer = await http.post(server, content=b"{" * 100_000, headers=kinds)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, protocol.ErrorCode.PARSE_ERROR)
        assert (await http.post(server, content=b"x" * (9 << 20), headers=kinds)).status_code == 413


async def test_a_client_that_leaves_cancels_its_async_tool(server, tmp_path):
    mark = tmp_path / "mark"
    body = protocol.request_body(1, "tools/call", {"name": "wait", "arguments": {"mark": str(mark)}})
    async with httpx2.AsyncClient() as http, asyncio.timeout(20):
        call = asyncio.create_task(http.post(server, content=body, headers={"content-type": protocol.JSON}))
        await written(mark, "waiting")
        call.cancel()
        await written(mark, "cancelled")


async def written(mark, text):
    while not mark.exists() or mark.read_text() != text:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)


async def test_told_to_stop_it_finishes_its_calls_and_ends_at_once(write):
    async with served(write(SOURCE)) as (process, url), Client(url, mode="2026-07-28") as client:
        await client.call_tool("add", {"a": 1})
        call = asyncio.create_task(client.call_tool("block", {"seconds": 0.6}))
        assert await asyncio.to_thread(process.stdout.readline) == "adding 1 2\n"
        assert await asyncio.to_thread(process.stdout.readline) == "blocking\n"
        process.send_signal(signal.SIGTERM)
        assert (await call).structured_content == {"result": "slept"}
        code, out, err = await asyncio.to_thread(finished, process)
        assert (code, out) == (0, "")
        assert "stopping: 1 calls in flight" in err
        assert "Traceback" not in err


async def test_a_tool_that_never_returns_does_not_keep_the_process(write):
    async with served(write(SOURCE), grace=0.2) as (process, url), httpx2.AsyncClient() as http:
        body = protocol.request_body(1, "tools/call", {"name": "block", "arguments": {"seconds": 60}})
        call = asyncio.create_task(http.post(url, content=body, headers={"content-type": protocol.JSON}))
        assert await asyncio.to_thread(process.stdout.readline) == "blocking\n"
        began = time.perf_counter()
        process.terminate()
        code, _, err = await asyncio.to_thread(finished, process)
        assert code == 0, err
        assert time.perf_counter() - began < 10
        with pytest.raises(httpx2.TransportError):
            await call


async def test_asked_twice_it_ends_without_waiting(write):
    async with served(write(SOURCE), grace=60) as (process, url), httpx2.AsyncClient() as http:
        body = protocol.request_body(1, "tools/call", {"name": "block", "arguments": {"seconds": 60}})
        call = asyncio.create_task(http.post(url, content=body, headers={"content-type": protocol.JSON}))
        assert await asyncio.to_thread(process.stdout.readline) == "blocking\n"
        process.send_signal(signal.SIGINT)
        assert "stopping" in await asyncio.to_thread(process.stderr.readline)
        process.send_signal(signal.SIGINT)
        code, _, _ = await asyncio.to_thread(finished, process)
        assert code == 1
        with pytest.raises(httpx2.TransportError):
            await call


async def test_another_path_and_another_address(write):
    async with served(write(SOURCE), host="0.0.0.0", at="/tools/sums") as (_, url), httpx2.AsyncClient() as http:
        assert url.startswith("http://0.0.0.0:")
        assert url.endswith("/tools/sums")
        url = url.replace("0.0.0.0", "127.0.0.1")
        body = protocol.request_body(1, "ping")
        headers = {"content-type": protocol.JSON, "host": "sums.default.svc.cluster.local"}
        assert (await http.post(url, content=body, headers=headers)).json()["result"] == {}


def test_a_broken_source_ends_with_one_line_and_1(write):
    code, out, err = finished(spawn(write("import os\n\ndef add(a: int) -> int:\n    return a +\n")))
    assert (code, out) == (1, "")
    assert err == "error: tools.py:4: SyntaxError: invalid syntax: return a +\n"


def test_a_source_that_fails_while_it_is_loaded_ends_with_one_line_and_1(write):
    code, _, err = finished(spawn(write("import nowhere\n")))
    assert code == 1
    assert err.startswith("error: tools.py:1: ModuleNotFoundError: No module named 'nowhere'")
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", [True, False])
def test_a_file_that_cannot_be_read_ends_with_2(tmp_path, missing):
    path = tmp_path / "nowhere.py" if missing else tmp_path
    code, _, err = finished(spawn(path))
    assert code == 2
    assert err == f"error: {path}: {'No such file or directory' if missing else 'Is a directory'}\n"


def test_an_address_that_is_taken_ends_with_2(write):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = finished(spawn(write("def a(): ..."), port=port))
    assert code == 2
    assert err == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_path_without_a_slash_ends_with_2(write):
    code, _, err = finished(spawn(write("def a(): ..."), at="mcp"))
    assert (code, err) == (2, "error: --path mcp has to begin with /\n")


def test_the_reason_is_left_where_kubernetes_shows_it(write, tmp_path, monkeypatch, capsys):
    left = tmp_path / "termination-log"
    monkeypatch.setattr(main, "TERMINATION_LOG", left)
    assert main.run(file=write("x = 1 / 0"), port=0) == 1
    assert not left.exists()
    left.touch()
    assert main.run(file=write("x = 1 / 0"), port=0) == 1
    assert left.read_text() == "tools.py:1: ZeroDivisionError: division by zero"
    assert capsys.readouterr().err.count("error: ") == 2


def test_what_the_server_says_of_itself_changes_with_the_source(write):
    def info(text):
        server = main.load(write(text), pool=main.ThreadPool(size=1))
        body = protocol.request_body(1, "initialize", {"protocolVersion": "2025-11-25"})
        return json.loads(server.receive({}, body).body)["result"]

    first, second = info("'''Does.'''\ndef a(): ..."), info("def a(): pass")
    assert first["serverInfo"]["name"] == "tools"
    assert first["instructions"] == "Does."
    assert first["serverInfo"]["version"] != second["serverInfo"]["version"]
