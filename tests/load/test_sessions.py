"""Thousands of sessions over two proxies that share nothing but the key that seals them."""

import asyncio
import os
import re
import time
from collections import Counter

import uvloop

from bench import programs
from bench.load import Address, Client, connect, http_post
from fairway.mcp import protocol

SESSIONS = 8192
AT_ONCE = 64
"""Sessions that are being opened at a time."""
MOST = 8.0
"""Megabytes that a thousand streams may take, with what opening them left behind."""
VERSION = "2025-11-25"
INITIALIZE = protocol.request_body(
    1, "initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
CALL = protocol.request_body(2, "tools/call", {"name": "search", "arguments": {}})


class Crowd:
    """Clients of the session era; each leaves its stream open until all are there."""

    def __init__(self, addresses: tuple[Address, Address]) -> None:
        self._addresses = addresses
        self._kept: dict[Address, list[Client]] = {address: [] for address in addresses}
        self.streams: list[Client] = []
        self.failures: Counter[str] = Counter()

    async def join(self, number: int) -> None:
        """Opens a session at one proxy and uses it at the other, then has each of them serve it once more."""
        here, there = self._addresses[number % 2], self._addresses[1 - number % 2]
        opened = await self._ask(here, http_post(INITIALIZE), 200, "initialize")
        sealed = opened.headers.get(b"mcp-session-id", b"").decode()
        headers = {"Mcp-Session-Id": sealed, "MCP-Protocol-Version": VERSION}
        await self._ask(there, http_post(INITIALIZED, headers), 202, "initialized")
        self.streams.append(await self._listen(there, headers))
        await self._ask(here, http_post(CALL, headers), 200, "call")
        await self._ask(there, http_post(CALL, headers), 200, "call at the other")

    async def _ask(self, address: Address, request: bytes, status: int, what: str) -> Client:
        kept = self._kept[address]
        client = kept.pop() if kept else await connect(address, lambda _: None)
        answered = asyncio.get_running_loop().create_future()
        client.on_answer = answered.set_result
        client.ask(request)
        await answered
        if client.status != status:
            self.failures[f"{what}: {client.status} {client.body[:200]!r}"] += 1
        if not client.closed and not client.ends:
            kept.append(client)
        return client

    async def _listen(self, address: Address, headers: dict[str, str]) -> Client:
        heard = asyncio.get_running_loop().create_future()
        client = await connect(address, lambda _: None, lambda _: heard.done() or heard.set_result(None))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        client.ask(f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n{lines}\r\n".encode())
        try:
            async with asyncio.timeout(60):
                await heard
        except TimeoutError:
            self.failures["stream: silent"] += 1
        if client.status != 200:
            self.failures[f"stream: {client.status}"] += 1
        return client


async def _gather(crowd: Crowd) -> None:
    numbers = iter(range(SESSIONS))

    async def join_one_after_the_other() -> None:
        for number in numbers:
            await crowd.join(number)

    await asyncio.gather(*(join_one_after_the_other() for _ in range(AT_ONCE)))


def test_thousands_of_sessions_over_two_proxies_that_share_the_key(tmp_path, capsys):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    server = programs.answering_server()
    with programs.running(server):
        proxies = [_proxy(tmp_path, server, number, str(key)) for number in range(2)]
        with programs.running(*proxies):
            idle = [proxy.memory() for proxy in proxies]
            crowd = Crowd((proxies[0].address, proxies[1].address))
            began = time.monotonic()
            uvloop.run(_held(crowd, proxies))
            took = time.monotonic() - began
            counts = server.counts()
            grown = sum(proxy.memory() for proxy in proxies) - sum(idle)
    with capsys.disabled():
        print(
            f"\n{SESSIONS} sessions with a stream each over two proxies in {took:.1f} s: "
            f"{sum(crowd.failures.values())} failures, {grown / SESSIONS * 1000:.1f} MB per 1,000 streams"
        )
    assert crowd.failures == {}
    assert counts["initialize"] == counts["sessions"] == counts["streams"] == SESSIONS
    assert counts["calls"] == 2 * SESSIONS
    assert grown / SESSIONS * 1000 <= MOST


def _proxy(directory, server: programs.Program, number: int, key: str) -> programs.Program:
    port = programs.free_port()
    config = directory / f"config-{number}.json"
    programs.write_config(config, programs.route(port, [server.port], policy={"sessions": {"keyFiles": [key]}}))
    return programs.proxy(config, port=port, name=f"proxy-{number}")


async def _held(crowd: Crowd, proxies: list[programs.Program]) -> None:
    await _gather(crowd)
    open_streams = sum(not client.closed for client in crowd.streams)
    assert open_streams == SESSIONS, f"{open_streams} of {SESSIONS} streams are open"
    for proxy in proxies:
        text = (await asyncio.to_thread(proxy.get, "/metrics")).decode()
        assert not re.findall(r'fairway_proxy_requests_total\{[^}]*status="(?!20)\d+"\} \d+', text)
    for client in crowd.streams:
        client.close()
