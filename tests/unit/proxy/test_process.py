"""The whole program: command line, admin port, signals, and what it costs to start."""

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairway.api import proxystatus
from fairway.api.runconfig import RunConfig, encode
from fairway.mcp.http import HttpClient
from fairway.proxy import command
from tests.unit.proxy.authority import Authority
from tests.unit.proxy.old_server import old_server
from tests.unit.proxy.serving import RawClient, call, free_port, modern, route, server, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


class Running:
    """The program as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, admin: int, listen: int) -> None:
        self.process = process
        self.admin_port = admin
        self.listen = listen
        self.http = HttpClient()

    async def admin(self, path: str):
        return await self.http.request("GET", f"http://127.0.0.1:{self.admin_port}{path}")

    async def client(self) -> RawClient:
        return RawClient(*await asyncio.open_connection("127.0.0.1", self.listen))

    async def status(self) -> proxystatus.ProxyStatus:
        return proxystatus.parse((await self.admin(proxystatus.PATH)).body)

    async def until_up(self) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    await self.admin("/healthz")
                    return
                except Exception:
                    await asyncio.sleep(0.02)

    async def until_ready(self) -> None:
        await self.until_up()
        await self.until_readyz_says(200)

    async def until_readyz_says(self, status: int) -> None:
        async with asyncio.timeout(20):
            while (await self.admin("/readyz")).status != status:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        async with asyncio.timeout(15):
            return await self.process.wait()


@asynccontextmanager
async def running(*arguments: str, listen: int = 0, **environment: str):
    admin = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairway", "proxy", "--admin", f"127.0.0.1:{admin}", *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    made = Running(process, admin, listen)
    try:
        await made.until_up()
        yield made
    finally:
        await made.http.aclose()
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def by_hand(address: str, *arguments: str, **environment: str):
    port = free_port()
    given = ("--upstream", f"http://{address}/backend", "--listen", f"127.0.0.1:{port}", *arguments)
    async with running(*given, listen=port, **environment) as made:
        await made.until_ready()
        yield made


def post(client: RawClient, message=None) -> None:
    client.post(call() if message is None else message, path="/backend")


async def test_one_server_by_hand():
    async with server() as backend, by_hand(backend.address) as made:
        client = await made.client()
        post(client)
        assert (await client.reply()).status == 200
        status = await made.status()
        assert status.config.state == "ok"
        assert status.routes[0].listen == f"127.0.0.1:{made.listen}"
        assert status.routes[0].tools.names == ("add", "secret")


async def test_a_server_on_lines_by_hand_over_either_transport():
    port = free_port()
    line_server = str(Path(__file__).parent / "bridge" / "line_server.py")
    started = ("--env", "SHOWN", "--", sys.executable, line_server)
    listen = ("--listen", f"127.0.0.1:{port}", "--stdio")
    async with running(*listen, *started, listen=port, SHOWN="yes", HIDDEN="no") as made:
        await made.until_ready()
        assert (await made.status()).routes[0].tools.count > 5
        client = await made.client()
        message, headers = modern(call("env"))
        client.post(message, {**headers, "Accept": "application/json"})
        environment = json.loads((await client.reply()).message["result"]["content"][0]["text"])
        assert environment["SHOWN"] == "yes"
        assert "HIDDEN" not in environment
    async with running(*listen, "--mode", "sse", *started, listen=port, SHOWN="yes") as made:
        await made.until_ready()
        client = await made.client()
        client.get(path="/sse")
        assert (await client.head()).headers["content-type"] == "text/event-stream"
        assert b"/sse?sessionId=" in await client.chunk()


async def test_a_server_of_the_old_transport_by_hand_over_tls(tmp_path):
    authority, port = Authority(tmp_path), free_port()
    cert, key = authority.issue("127.0.0.1")
    async with old_server() as backend:
        given = ("--sse", f"http://{backend.address}", "--tls-cert", cert, "--tls-key", key)
        async with running(*given, "--listen", f"127.0.0.1:{port}", listen=port) as made:
            await made.until_ready()
            client = RawClient(*await asyncio.open_connection("127.0.0.1", port, ssl=authority.client()))
            client.get(path="/sse")
            assert (await client.head()).status == 200
            while b"/sse?sessionId=" not in (chunk := await client.chunk()):
                assert chunk


async def test_the_admin_port_tells_what_there_is_to_know():
    async with server() as backend, by_hand(backend.address) as made:
        client = await made.client()
        for _ in range(3):
            post(client)
            await client.reply()
        post(client, [])
        await client.reply()
        text = (await made.admin("/metrics")).body.decode()
        labels = 'route="default/upstream",method="tools/call"'
        assert f'fairway_proxy_requests_total{{{labels},status="200"}} 3\n' in text
        assert f'fairway_proxy_request_seconds_bucket{{{labels},le="+Inf"}} 3\n' in text
        assert f"fairway_proxy_request_seconds_count{{{labels}}} 3\n" in text
        assert 'status="400"} 1\n' in text
        assert "fairway_proxy_endpoint_good{" in text
        for line in text.splitlines():
            assert re.fullmatch(r'# (HELP|TYPE) .+|[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line), line
        assert (await made.admin("/v1/config")).body.startswith(b"{")
        assert (await made.admin("/nothing")).status == 404
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            page = await made.http.request("GET", f"http://127.0.0.1:{made.admin_port}/v1/status", headers=headers)
            assert page.status == 403
        assert (await made.http.request("POST", f"http://127.0.0.1:{made.admin_port}/readyz")).status == 405


async def test_readiness_says_what_is_missing(tmp_path):
    async with running("--config", str(tmp_path / "none.json")) as made:
        answer = await made.admin("/readyz")
        assert answer.status == 503
        assert b"there is no RunConfig" in answer.body
        (tmp_path / "none.json").write_bytes(encode(RunConfig(version=1, routes=(route("127.0.0.1:1"),))))
        async with asyncio.timeout(10):
            while b"nothing listens on :1" not in answer.body:
                answer = await made.admin("/readyz")
                await asyncio.sleep(0.05)
        assert answer.status == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_and_at_once_when_nothing_is_at_work(number):
    async with server() as backend, by_hand(backend.address) as made:
        idle = await made.client()
        made.process.send_signal(number)
        assert await made.ended() == 0
        assert await idle.closed() == b""


async def test_calls_at_work_are_finished_and_streams_ended():
    release = asyncio.Event()

    async def slow(conversation, got):
        if got.method == "GET":
            conversation.start_chunked()
            conversation.chunk(b": open\n\n")
            await conversation.gone()
            return
        await release.wait()
        conversation.json({"id": 1, "result": {}})

    async with server(slow) as backend, by_hand(backend.address) as made:
        calling, streaming = await made.client(), await made.client()
        post(calling)
        streaming.send(b"GET /backend HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n")
        await streaming.head()
        await streaming.chunk()
        made.process.terminate()
        assert await streaming.chunk() == b""
        assert (await made.admin("/readyz")).status == 503
        with pytest.raises(OSError):
            await made.client()
        release.set()
        assert (await calling.reply()).status == 200
        assert await made.ended() == 0


async def test_calls_get_no_more_than_the_grace_period():
    async def never(conversation, got):
        await conversation.gone()

    async with server(never) as backend, by_hand(backend.address, "--grace", "0.3") as made:
        client = await made.client()
        post(client)
        await until(lambda: len(backend.got) == 1)
        made.process.terminate()
        assert await made.ended() == 0
        assert await client.closed() == b""


async def test_before_it_stops_it_goes_on_accepting_for_as_long_as_it_is_told():
    async with server() as backend, by_hand(backend.address, "--pre-stop", "0.7") as made:
        made.process.terminate()
        await made.until_readyz_says(503)
        client = await made.client()
        post(client)
        assert (await client.reply()).status == 200
        assert await made.ended() == 0


async def test_while_it_leaves_each_answer_sends_its_client_elsewhere():
    """Closing kept connections at the end alone would lose the requests that are on their way by then."""
    async with server() as backend, by_hand(backend.address, "--pre-stop", "60") as made:
        client = await made.client()
        post(client)
        assert "connection" not in (await client.reply()).headers
        made.process.terminate()
        await made.until_readyz_says(503)
        post(client)
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await client.closed() == b""
        made.process.terminate()
        assert await made.ended() == 0


async def test_a_second_signal_does_not_wait():
    async with server() as backend, by_hand(backend.address, "--pre-stop", "60") as made:
        made.process.terminate()
        await asyncio.sleep(0.1)
        made.process.terminate()
        assert await made.ended() == 0


async def test_it_starts_small_and_without_what_it_does_not_need():
    async with server() as backend, by_hand(backend.address) as made:
        kilobytes, maps = seen_by_the_kernel(made.process.pid)
        assert kilobytes < 45_000
        assert not [name for name in ("aiohttp", "pydantic_core", "yarl", "orjson") if name in maps]


def seen_by_the_kernel(pid: int) -> tuple[int, str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]), Path(f"/proc/{pid}/maps").read_text()


USER_ERRORS = [
    ([], "one of the arguments --config --upstream --sse --stdio is required"),
    (["--upstream", "ftp://a/mcp", "--listen", "127.0.0.1:0"], "is not an http or https URL"),
    (["--upstream", "http://a_b:0/mcp", "--listen", "127.0.0.1:0"], "is not an http or https URL"),
    (["--upstream", "http://a b/mcp", "--listen", "127.0.0.1:0"], "upstream.remote"),
    (["--upstream", "http://a/mcp", "--ca", "/x"], "--ca belongs to an https URL"),
    (["--upstream", "https://a/mcp", "--ca", "/does/not/exist"], "--ca: there is no file /does/not/exist"),
    (["--upstream", "http://a/mcp", "--mode", "sse"], "--mode belongs to --stdio"),
    (["--upstream", "http://a/mcp", "--env", "HOME"], "--env belongs to --stdio"),
    (["--upstream", "http://a/mcp", "--tls-cert", "/x"], "--tls-cert and --tls-key go together"),
    (["--upstream", "http://a/mcp", "--path", "mcp"], "--path: 'mcp' does not begin with /"),
    (["--upstream", "http://a/mcp", "--listen", "192.0.2.1:1"], "--listen: cannot listen on 192.0.2.1:1"),
    (["--upstream", "http://a/mcp", "--", "server"], "what follows -- is the command of --stdio"),
    (["--sse", "http://a/sse#x"], "no more than scheme"),
    (["--stdio"], "--stdio needs a command"),
    (["--stdio", "--"], "--stdio needs a command"),
    (["--stdio", "server"], "server"),
    (["--stdio", "--", "no-such-program-here", "--config"], "there is no program no-such-program-here"),
    (["--stdio", "--env", "A=1", "--", "env"], "give the name alone"),
    (["--stdio", "--ca", "/x", "--", "env"], "--ca belongs to"),
    (["--upstream", "http://a:99999/mcp", "--listen", "127.0.0.1:0"], "--upstream"),
    (["--upstream", "http://u:p@a/mcp", "--listen", "127.0.0.1:0"], "no more than scheme"),
    (["--upstream", "http://a/mcp", "--listen", "8080"], "write host:port"),
    (["--upstream", "http://a/mcp", "--listen", "127.0.0.1:0", "--topology", "x"], "--topology belongs to --config"),
    (["--config", "x", "--listen", "127.0.0.1:0"], "--listen belongs to a server by hand"),
    (["--config", "x", "--tls-key", "k"], "--tls-key belongs to a server by hand"),
    (["--config", "x", "--admin", "nowhere"], "--admin: 'nowhere' is no address"),
    (["--config", "x", "--grace", "-1"], "--grace: -1 is not between"),
    (["--config", "x", "--nonsense"], "--nonsense"),
    (["--config", "x", "--upstream", "http://a/mcp"], "not allowed with"),
]


@pytest.mark.parametrize(("arguments", "said"), USER_ERRORS)
def test_a_mistake_of_the_user_is_one_line_and_exit_code_2(arguments, said, capsys):
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


async def test_an_admin_port_that_is_taken_is_a_mistake_of_the_user():
    async with server() as backend:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairway", "proxy", "--config", "x", "--admin", backend.address),
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stderr=asyncio.subprocess.PIPE,
        )
        _, error = await process.communicate()
        assert process.returncode == 2
        lines = [line for line in error.decode().splitlines() if not line.startswith("{")]
        assert len(lines) == 1
        assert lines[0].startswith(f"fairway proxy: --admin: cannot listen on {backend.address}: ")


async def test_log_lines_are_json():
    async with server() as backend, by_hand(backend.address) as made:
        made.process.terminate()
        assert await made.ended() == 0
        lines = (await made.process.stderr.read()).decode().splitlines()
        assert [json.loads(line)["event"] for line in lines][-1] == "stopped"
