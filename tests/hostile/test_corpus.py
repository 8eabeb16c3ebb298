"""Hostile clients, each case over a real connection to a real proxy before real servers.

What is refused is refused with exactly one status and code, the server never hears of it, and good clients of the same
proxy notice nothing.
"""

import asyncio
import json
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import programs
from bench.load import Steady, http_post, modern_call, percentile
from tests.hostile.attack import attack
from tests.hostile.corpus import cases
from tests.unit.proxy.middleware import forge

AT_LEAST = 300
AT_ONCE = 16
ROUNDS, SECONDS = 4, 2.0
ATTEMPTS = 3
"""How often the comparison is made: these machines stall for reasons of their own."""
GOOD_RATE, HOSTILE_RATE = 200.0, 100.0
SLACK = 0.01
"""Seconds that the machine may add on top, as the attackers and the proxy share it with whatever else runs."""
ONLY_SEARCH = 'permit(principal, action, resource == Tool::"search");'


@dataclass(frozen=True)
class Scene:
    """A proxy with a server for the hostile and one for the good."""

    proxy: programs.Program
    hostile: programs.Program
    good: programs.Program
    ports: tuple[int, int]
    """The listener that everybody can reach, and that of this machine alone."""


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    hostile, good = programs.answering_server(), programs.answering_server()
    with programs.running(hostile, good):
        open_port, loopback = programs.free_port(), programs.free_port()
        keys = directory / "keys"
        keys.write_text(json.dumps({"keys": [forge.jwk("rsa", "rsa")]}))
        issuer = {"issuer": forge.ISSUER, "jwksFile": str(keys)}
        token = {"authentication": {"resources": [forge.RESOURCE], "issuers": [issuer]}}
        pages = {"cors": {"allowedOrigins": ["https://app.example.org"], "allowedHosts": ["gw.example.org"]}}
        small = {"limits": {"maxBody": 1024}}
        routes = [
            _route("mcp", open_port, hostile, **small),
            _route("large", open_port, hostile, limits={"maxBody": 64 << 10}),
            _route("tools", open_port, hostile, tools={"filter": ["search"]}),
            _route("cedar", open_port, hostile, policy={"authorization": {"policies": [ONLY_SEARCH]}}),
            _route("token", open_port, hostile, policy=token),
            _route("pages", open_port, hostile, policy=pages),
            _route("good", open_port, good),
        ]
        own = _route("loopback", loopback, hostile, **small)
        own["listen"] |= {"host": "127.0.0.1", "path": "/mcp"}
        config = directory / "config.json"
        programs.write_config(config, *routes, own)
        proxy = programs.proxy(config, port=open_port)
        with programs.running(proxy):
            yield Scene(proxy, hostile, good, (open_port, loopback))


def _route(name: str, port: int, server: programs.Program, **settings: object) -> dict:
    made = programs.route(port, [server.port], name=f"default/{name}", path=f"/{name}", **settings)
    made["listen"]["host"] = "0.0.0.0"
    return made


def test_hostile_clients_reach_no_server_and_harm_nobody(tmp_path, capsys):
    with scene(tmp_path) as made:
        before = made.hostile.counts()
        said = uvloop.run(_everything(made))
        for path in ("mcp", "large", "tools", "cedar"):
            # nothing has been heard of by a server that was there to hear it
            assert (
                _status(made, http_post(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', path=f"/{path}"))
                == 202
            )
        assert made.hostile.counts()["requests"] == before["requests"] + 4
        log = (tmp_path / "proxy.log").read_text()
    with capsys.disabled():
        print(f"\n{said}")
    assert "Traceback" not in log


async def _everything(made: Scene) -> str:
    everything = cases()
    assert len(everything) >= AT_LEAST
    assert len({case.name for case in everything}) == len(everything)
    before = made.hostile.counts()
    enough = asyncio.Semaphore(AT_ONCE)

    async def quickly(case) -> str:
        async with enough:
            return await attack(case, made.ports[case.loopback])

    slow = [asyncio.create_task(attack(case, made.ports[case.loopback])) for case in everything if case.seconds]
    wrong = await asyncio.gather(*(quickly(case) for case in everything if not case.seconds))
    assert [said for said in wrong if said] == []
    figures = await _compare(made)
    wrong = await asyncio.gather(*slow)
    assert [said for said in wrong if said] == []
    assert made.hostile.counts() == {**before, "connections": before["connections"] + 1}  # this look itself
    return f"{len(everything)} hostile cases, none of them heard of by the server; {figures}"


async def _compare(made: Scene) -> str:
    """Good clients while attackers are at work, and while they stand still."""
    command = [sys.executable, "-m", "tests.hostile.attack", *map(str, made.ports), str(HOSTILE_RATE)]
    attackers = programs.start("attackers", ["nice", "-n", "15", *command])
    with programs.running(attackers):
        for _ in range(ATTEMPTS):
            calm, hostile = [], []
            for _ in range(ROUNDS):
                attackers.tell(signal.SIGSTOP)
                calm.append(await _good_clients(made))
                attackers.tell(signal.SIGCONT)
                hostile.append(await _good_clients(made))
            before, after = statistics.median(calm), statistics.median(hostile)
            if after <= 2 * before:
                break
        assert attackers.process.poll() is None
    figures = (
        f"p99 of good clients {before * 1e3:.2f} ms calm, {after * 1e3:.2f} ms under attack: {after / before:.2f}x"
    )
    assert after <= 2 * before + SLACK, figures
    return f"no errors; {figures}"


async def _good_clients(made: Scene) -> float:
    """The p99 of a while."""
    request = modern_call(1, "search", path="/good")
    clients = Steady(address=made.proxy.address, rate=GOOD_RATE, request=lambda: request)
    await clients.open()
    await clients.run(SECONDS)
    clients.close()
    assert clients.failures == {}
    return percentile(clients.latencies, 0.99)


def _status(made: Scene, request: bytes) -> int:
    async def ask() -> int:
        reader, writer = await asyncio.open_connection(*made.proxy.address)
        writer.write(request)
        first = await reader.readuntil(b"\r\n")
        writer.close()
        return int(first.split()[1])

    return asyncio.run(ask())
