"""The forwarder in front of servers without a proxy."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from fairway.local.forward import Forwarder
from fairway.local.ports import BEHIND, PortBook
from tests.unit.local.objects import new_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def port(tmp_path):
    port = PortBook(tmp_path / "ports.json").any_free()
    assert port in BEHIND
    return port


@asynccontextmanager
async def backend(name):
    """Answers each line with its own name in front; ends when the client does."""

    async def serve(reader, writer):
        async for line in reader:
            writer.write(f"{name}:".encode() + line)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def forwarding(bare, addresses):
    forwarder = Forwarder(new_world().store, bare=lambda: bare, ready_addresses=lambda _: addresses)
    task = asyncio.create_task(forwarder.run())
    try:
        yield forwarder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def connected(port):
    async with asyncio.timeout(10):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)


async def ask(port, text=b"hello\n"):
    reader, writer = await connected(port)
    writer.write(text)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_bytes_go_both_ways_and_a_half_closed_connection_still_answers(port):
    async with backend("a") as a, forwarding({"default/x": port}, [a]):
        assert await ask(port) == b"a:hello\n"


async def test_a_large_answer_arrives_whole(port):
    async with backend("a") as a, forwarding({"default/x": port}, [a]):
        line = b"x" * 60_000 + b"\n"
        assert await ask(port, line * 50) == (b"a:" + line) * 50


async def test_connections_are_spread_over_the_pods(port):
    async with backend("a") as a, backend("b") as b, forwarding({"default/x": port}, [a, b]):
        answers = {await ask(port) for _ in range(2)}
        assert answers == {b"a:hello\n", b"b:hello\n"}


async def test_without_a_ready_pod_a_client_is_turned_away(port):
    async with forwarding({"default/x": port}, []):
        reader, writer = await connected(port)
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_listeners_come_and_go_with_their_servers(port):
    bare = {"default/x": port}
    async with backend("a") as a, forwarding(bare, [a]) as forwarder:
        assert await ask(port) == b"a:hello\n"
        bare.clear()
        forwarder.look()
        async with asyncio.timeout(10):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionResetError:
                    continue  # closed just as we came
                except ConnectionRefusedError:
                    break
                writer.close()
                await asyncio.sleep(0.005)
