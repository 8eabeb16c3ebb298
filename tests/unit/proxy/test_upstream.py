"""Kept connections: which of them still lead to a server."""

import socket

import pytest

from fairway.proxy.dialing import Dialer
from fairway.proxy.upstream import Pool

pytestmark = pytest.mark.anyio


class Deaf:
    """Takes an answer, and does nothing with it."""

    def on_failure(self, message: str) -> None: ...


async def test_when_one_connection_breaks_at_work_the_others_are_looked_at_before_they_are_used():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        pool = Pool(Dialer(host, port), idle_seconds=60, max_idle=8)
        accepted, kept = [], []
        for _ in range(2):
            kept.append(await pool.connect(5))
            accepted.append(listening.accept()[0])
        at_work, idle = kept
        pool.put_back(idle)
        assert pool.take() is idle
        pool.put_back(idle)
        # the server dies, and the loop has only heard of the one
        for connection in accepted:
            connection.close()
        at_work.sink = Deaf()
        at_work.connection_lost(ConnectionResetError())
        assert pool.take() is None
        at_work.transport.abort()
