"""Three servers behind one proxy: each gets its third, and only calls that one is at work on notice its death."""

import asyncio
from collections import Counter

import uvloop

from bench import programs
from bench.load import Client, Eager, modern_call
from tests.load.ledger import DIED_AT_WORK

CONNECTIONS = 24
SERVERS = 3
EVEN, KILLED = 3_000, 12_000
"""Requests while all servers live, and while one is killed."""
SHARE, APART = 100 / SERVERS, 5.0
SLOW_PAUSE = 0.05
"""Seconds that a slow call is at work, so that some are when the server dies."""


class Asking:
    """Asks a number of calls, of which every so many a slow one."""

    def __init__(self, count: int, *, slow_each: int) -> None:
        self._left = count
        self._slow_each = slow_each
        self._quick, self._slow = modern_call(1, "search"), modern_call(1, "slow")
        self.statuses: Counter[str] = Counter()
        self.answered = 0

    def next_request(self) -> tuple[bytes, None] | None:
        if not self._left:
            return None
        self._left -= 1
        return (self._slow if self._left % self._slow_each == 0 else self._quick), None

    def on_answer(self, client: Client) -> None:
        self.answered += 1
        reason = "" if client.status == 200 else client.body.rpartition(b'"message":"')[2].partition(b'"')[0].decode()
        self.statuses[f"{client.status} {reason}".strip()] += 1


def test_three_servers_share_the_load_and_one_may_die(tmp_path, capsys):
    servers = [programs.answering_server(pause=SLOW_PAUSE) for _ in range(SERVERS)]
    with programs.running(*servers):
        port = programs.free_port()
        config = tmp_path / "config.json"
        programs.write_config(config, programs.route(port, [server.port for server in servers]))
        proxy = programs.proxy(config, port=port)
        with programs.running(proxy):
            even = Asking(EVEN, slow_each=1)  # each takes the same time, however the machine's cores are shared
            uvloop.run(_ask(even, proxy))
            calls = [server.counts()["calls"] for server in servers]
            shares = [100 * count / sum(calls) for count in calls]
            after = Asking(KILLED, slow_each=20)
            uvloop.run(_ask(after, proxy, victim=servers[0]))
    with capsys.disabled():
        print(f"\nshares {', '.join(f'{share:.1f} %' for share in shares)}; one killed: {dict(after.statuses)}")
    assert even.statuses == {"200": EVEN}
    assert all(abs(share - SHARE) <= APART for share in shares), shares
    assert after.statuses.keys() <= {"200", DIED_AT_WORK}
    assert 0 < after.statuses[DIED_AT_WORK] <= CONNECTIONS


async def _ask(asking: Asking, proxy: programs.Program, *, victim: programs.Program | None = None) -> None:
    load = Eager(
        address=lambda: proxy.address,
        connections=CONNECTIONS,
        next_request=asking.next_request,
        on_answer=asking.on_answer,
    )
    running = asyncio.create_task(load.run())
    if victim is not None:
        while asking.answered < KILLED // 4:  # noqa: ASYNC110  requests pass by the thousand
            await asyncio.sleep(0.005)
        victim.kill()
    await running
