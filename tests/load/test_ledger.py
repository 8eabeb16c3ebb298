"""Many requests while all around them is reloaded, replaced and killed: none is executed twice, none forgotten."""

import asyncio
import time
from pathlib import Path

import pytest
import uvloop

from bench import programs
from bench.load import Address, Eager
from tests.load.ledger import Books

CONNECTIONS = 16
PRE_STOP = 0.5
SHORT, LONG = 100_000, 500_000
"""Requests for each number of servers."""


class Scene:
    """Servers with a ledger each behind a proxy that is there for as long as it takes."""

    def __init__(self, directory: Path, servers: int, size: int) -> None:
        self.directory = directory
        self.books = Books(directory, size, servers)
        self.servers = [programs.answering_server(ledger=file) for file in self.books.files]
        self.ports = [server.port for server in self.servers]
        self.proxies: list[programs.Program] = []
        self.reloads = 0

    def close(self) -> None:
        for program in (*self.servers, *self.proxies):
            program.kill()

    def address(self) -> Address:
        """Where clients find the proxy, as a Service would tell them."""
        return self.proxies[-1].address

    def write(self, path: Path, port: int) -> None:
        self.reloads += 1
        view = {"override": [{"tool": "large", "name": f"large-{self.reloads}"}]}
        programs.write_config(path, programs.route(port, self.ports, tools=view))

    # what happens meanwhile

    def start_proxy(self) -> None:
        port = programs.free_port()
        config = self.directory / f"config-{port}.json"
        self.write(config, port)
        self.proxies.append(programs.proxy(config, port=port, name=f"proxy-{port}", pre_stop=PRE_STOP))

    def reload(self) -> None:
        """Another view of the tools, and the servers in another order."""
        self.ports.reverse()
        proxy = self.proxies[-1]
        before = self._hash(proxy)
        self.write(self.directory / f"config-{proxy.port}.json", proxy.port)
        self._until(lambda: self._hash(proxy) != before)

    def replace_proxy(self) -> None:
        """The new one takes over before the old one is told to go."""
        old = self.proxies[-1]
        self.start_proxy()
        assert old.end() == 0

    def kill_server(self) -> None:
        """One dies without a word and comes back at the same place."""
        server = self.servers[0]
        server.kill()
        self.servers[0] = programs.answering_server(port=server.port, ledger=self.books.files[0])
        self._until(lambda: b'"state":"ok"' in self.proxies[-1].get("/v1/status").replace(b" ", b""))

    def _hash(self, proxy: programs.Program) -> bytes:
        return proxy.get("/v1/status").partition(b'"hash"')[2][:80]

    def _until(self, condition) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)


async def _work(scene: Scene) -> int:
    """Returns how often a server was killed."""
    books = scene.books
    books.limit = books.size
    load = Eager(
        address=scene.address, connections=CONNECTIONS, next_request=books.next_request, on_answer=books.on_answer
    )
    running = asyncio.create_task(load.run())
    happenings = [scene.reload, scene.kill_server, scene.reload, scene.replace_proxy, scene.reload, scene.kill_server]
    for number, happening in enumerate(happenings, start=1):
        share = books.size * number // (len(happenings) + 2)
        while books.answered < share:  # noqa: ASYNC110  requests pass by the ten thousand
            await asyncio.sleep(0.01)
        await asyncio.to_thread(happening)
        assert not running.done(), "everything was over before it was disturbed: ask for more"
    await running
    assert load.refused == 0, "a client found nobody listening"
    return happenings.count(scene.kill_server)


def _run(directory: Path, servers: int, size: int) -> str:
    scene = Scene(directory, servers, size)
    try:
        scene.start_proxy()
        began = time.monotonic()
        kills = uvloop.run(_work(scene))
        took = time.monotonic() - began
        said = scene.books.close(kills=kills, connections=CONNECTIONS)
        if servers > 1:
            assert scene.books.unavailable == [], "there was always another server"
    finally:
        scene.close()
    return f"{servers} servers: {said}; {size / took:.0f} requests/s"


@pytest.mark.parametrize("servers", [1, 3])
def test_no_request_is_executed_twice_or_left_without_an_answer(servers, tmp_path, capsys):
    said = _run(tmp_path, servers, SHORT)
    with capsys.disabled():
        print(f"\n{said}")


@pytest.mark.soak
@pytest.mark.parametrize("servers", [1, 3])
def test_a_million_requests_are_each_executed_once_at_most(servers, tmp_path, capsys):
    said = _run(tmp_path, servers, LONG)
    with capsys.disabled():
        print(f"\n{said}")
