"""Pool and Connection against servers that speak HTTP byte by byte, well and badly."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.kube.errors import Unreachable, WatchSilent
from fairway.kube.http import Answer, Connection, Reply
from fairway.kube.pool import Pool, Site
from tests.unit.runtime.toys import until

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CONTEXT = ssl.create_default_context()

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Every connection is a script; counts them."""

    def __init__(self, script: Serve) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.port = 0

    async def start(self, context: ssl.SSLContext | None = None) -> "Server":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    made: list[Server] = []

    async def serving(script: Serve, context: ssl.SSLContext | None = None) -> Server:
        made.append(await Server(script).start(context))
        return made[-1]

    yield serving
    for server in made:
        server.close()


@pytest.fixture
async def pools() -> AsyncIterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def pooling(server: Server, *, limit: int = 4, **site: object) -> Pool:
        options = {"host": "127.0.0.1", "port": server.port, "tls": False, **site}
        made.append(Pool(Site(**options), limit=limit))  # type: ignore[arg-type]
        return made[-1]

    yield pooling
    for pool in made:
        await pool.close()


Serving = Callable[..., Awaitable[Server]]
Pooling = Callable[..., Pool]


async def request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def answering(*answers: bytes) -> Serve:
    """Answers the requests of each connection in turn, the last answer for ever."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(1000):
            await request(reader)
            writer.write(answers[min(number, len(answers) - 1)])

    return script


async def ask(pool: Pool, **options: object) -> Answer:
    return await pool.exchange(GET, CONTEXT, **{"timeout": 5.0, **options})  # type: ignore[arg-type]


async def test_one_connection_serves_many_requests(serve: Serving, pools: Pooling) -> None:
    server = await serve(answering(OK))
    pool = pools(server)
    for _ in range(50):
        assert (await ask(pool)).body == b"hi"
    assert server.connections == 1


BODIES: dict[str, tuple[bytes, bytes]] = {
    "by length": (OK, b"hi"),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n", b"hi!"),
    "chunked with trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", b"a"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "after an interim answer": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"hi"),
}


@pytest.mark.parametrize(("raw", "body"), BODIES.values(), ids=BODIES)
async def test_every_framing_is_read_and_the_connection_kept(
    serve: Serving, pools: Pooling, raw: bytes, body: bytes
) -> None:
    server = await serve(answering(raw))
    pool = pools(server)
    assert [(await ask(pool)).body for _ in range(3)] == [body] * 3
    assert server.connections == 1


async def test_a_body_until_the_end_of_the_connection(serve: Serving, pools: Pooling) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of ")
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"it")

    server = await serve(script)
    pool = pools(server)
    assert [(await ask(pool)).body for _ in range(2)] == [b"all of it"] * 2
    assert server.connections == 2


async def test_a_connection_that_wants_to_close_is_not_used_again(serve: Serving, pools: Pooling) -> None:
    server = await serve(answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
    pool = pools(server)
    for _ in range(3):
        await ask(pool)
    assert server.connections == 3


BROKEN: dict[str, tuple[bytes, str]] = {
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
    "bad chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
    "both framings": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "not HTTP",
    ),
    "an upgrade": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "."),
    "cut in the head": (b"HTTP/1.1 200 O", "connection was lost"),
    "cut in the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi", "connection was lost"),
    "nothing": (b"", "connection was lost"),
}


@pytest.mark.parametrize(("raw", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_unreachable_and_spoils_only_its_connection(
    serve: Serving, pools: Pooling, raw: bytes, message: str
) -> None:
    server: Server

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = server.connections == 1
        await request(reader)
        writer.write(raw if first else OK)

    server = await serve(script)
    pool = pools(server, limit=1)
    with pytest.raises(Unreachable, match=message):
        await ask(pool)
    assert (await ask(pool)).body == b"hi"


async def test_bytes_that_nobody_asked_for_end_the_connection(serve: Serving, pools: Pooling) -> None:
    """Otherwise they would be taken for the answer to the next request."""
    server = await serve(answering(OK + OK))
    pool = pools(server, limit=1)
    assert (await ask(pool)).body == b"hi"
    assert (await ask(pool)).body == b"hi"
    assert server.connections == 2


async def test_a_pooled_connection_that_was_closed_is_replaced(serve: Serving, pools: Pooling) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)

    server = await serve(script)
    pool = pools(server, limit=1)
    for count in range(1, 5):
        assert (await ask(pool)).body == b"hi"
        await asyncio.sleep(0.01)
        assert server.connections == count


def closing_on_the_second() -> Serve:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await request(reader)

    return script


async def test_a_repeatable_request_survives_a_connection_that_dies_under_it(serve: Serving, pools: Pooling) -> None:
    server = await serve(closing_on_the_second())
    pool = pools(server, limit=1)
    for _ in range(4):
        assert (await ask(pool, repeatable=True)).body == b"hi"
    assert server.connections == 4


async def test_another_request_is_never_sent_twice(serve: Serving, pools: Pooling) -> None:
    server = await serve(closing_on_the_second())
    pool = pools(server, limit=1)
    await ask(pool)
    with pytest.raises(Unreachable, match="connection was lost"):
        await ask(pool)
    assert server.connections == 1


async def test_what_fails_on_a_fresh_connection_is_not_repeated(serve: Serving, pools: Pooling) -> None:
    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await request(reader)

    server = await serve(script)
    with pytest.raises(Unreachable):
        await ask(pools(server), repeatable=True)
    assert server.connections == 1


async def test_the_limit_holds_and_nobody_starves(serve: Serving, pools: Pooling) -> None:
    active = most = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal active, most
        while True:
            await request(reader)
            active += 1
            most = max(most, active)
            await asyncio.sleep(0.001)
            active -= 1
            writer.write(OK)

    server = await serve(script)
    pool = pools(server, limit=3)
    answers = await asyncio.gather(*(ask(pool) for _ in range(60)))
    assert len(answers) == 60
    assert (most, server.connections) == (3, 3)


async def test_the_limit_holds_through_every_kind_of_ending(serve: Serving, pools: Pooling) -> None:
    """Failed, cut off, cancelled and timed out exchanges all give their place back."""
    server: Server

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = server.connections % 4
        await request(reader)
        if mine == 1:
            return
        if mine == 2:
            writer.write(b"garbage\r\n\r\n")
        elif mine == 3:
            await asyncio.sleep(5)
        else:
            writer.write(OK)

    server = await serve(script)
    pool = pools(server, limit=2)
    tasks = [asyncio.create_task(ask(pool, timeout=0.05)) for _ in range(40)]
    await asyncio.sleep(0.01)
    for task in tasks[::5]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    answers = await asyncio.gather(*(ask(pool, timeout=0.5) for _ in range(4)), return_exceptions=True)
    assert not any(isinstance(answer, Unreachable) and "waiting" in str(answer) for answer in answers)
    assert pool._count <= 2
    assert not pool._waiting


async def test_a_cancelled_request_takes_its_connection_with_it(serve: Serving, pools: Pooling) -> None:
    """Its answer, when it comes, must not be anybody else's."""
    gate = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        if not gate.is_set():
            await gate.wait()
            writer.write(OK.replace(b"hi", b"no"))
        writer.write(OK)

    server = await serve(script)
    pool = pools(server, limit=1)
    task = asyncio.create_task(ask(pool))
    await until(lambda: server.connections == 1)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert (await ask(pool)).body == b"hi"


async def test_a_timeout_covers_the_wait_for_a_connection(serve: Serving, pools: Pooling) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await asyncio.sleep(0.2)
        writer.write(OK)

    pool = pools(await serve(script), limit=1)
    first = asyncio.create_task(ask(pool))
    await asyncio.sleep(0.01)
    with pytest.raises(Unreachable, match="waiting for a connection"):
        await ask(pool, timeout=0.05)
    assert (await first).body == b"hi"


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on(
    serve: Serving, pools: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            await gate.wait()
            writer.write(OK)

    pool = pools(await serve(script), limit=1)
    first = asyncio.create_task(ask(pool))
    await until(lambda: pool._all)
    second, third = asyncio.create_task(ask(pool)), asyncio.create_task(ask(pool))
    await until(lambda: len(pool._waiting) == 2)
    release = pool._release

    def release_and_cancel_the_next(*given: object) -> None:
        release(*given)  # type: ignore[arg-type]
        second.cancel()

    monkeypatch.setattr(pool, "_release", release_and_cancel_the_next)
    gate.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await asyncio.wait_for(third, 2)).body == b"hi"


async def test_nobody_listening_and_nobody_answering(pools: Pooling, serve: Serving) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = Server(answering(OK))
        server.port = bound.getsockname()[1]
        with pytest.raises(Unreachable, match="Connection refused"):
            await ask(pools(server))

    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)

    mute = await serve(silent)
    with pytest.raises(Unreachable, match="timed out"):
        await ask(pools(mute), timeout=0.05)
    with pytest.raises(Unreachable, match="timed out while connecting"):
        await ask(pools(mute, tls=True, host="localhost"), timeout=0.05)


async def stream(pool: Pool, *, silence: float = 5.0) -> AsyncIterator[bytes]:
    async with aclosing(pool.stream(GET, CONTEXT, silence=silence)) as opened:
        async for status, _headers, chunks in opened:
            assert status == 200
            async for chunk in chunks:
                yield chunk


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_stream_comes_as_it_is_sent_and_ends(serve: Serving, pools: Pooling) -> None:
    step = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(CHUNKED + b"3\r\none\r\n")
        await step.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    chunks = stream(pools(await serve(script)))
    assert await anext(chunks) == b"one"
    step.set()
    assert [chunk async for chunk in chunks] == [b"two"]


async def test_streams_do_not_count_against_the_limit(serve: Serving, pools: Pooling) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(CHUNKED + b"1\r\nx\r\n")
        await asyncio.sleep(1)

    server = await serve(script)
    pool = pools(server, limit=1)
    opened = [stream(pool) for _ in range(5)]
    assert [await anext(chunks) for chunks in opened] == [b"x"] * 5
    assert server.connections == 5


async def test_a_reader_that_takes_nothing_stops_the_sender(serve: Serving, pools: Pooling) -> None:
    sent = 0
    block = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request(reader)
        writer.write(CHUNKED)
        for _ in range(640):
            writer.write(block)
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")

    chunks = stream(pools(await serve(script)))
    received = len(await anext(chunks))
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.1)
    assert sent < 20 * 1024 * 1024, "of 40"
    async for chunk in chunks:
        received += len(chunk)
    assert received == 640 * 65536


async def test_a_stream_that_falls_silent_or_breaks(serve: Serving, pools: Pooling) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(CHUNKED + b"1\r\nx\r\n")
        await asyncio.sleep(2)

    with pytest.raises(WatchSilent):
        _ = [chunk async for chunk in stream(pools(await serve(silent)), silence=0.05)]

    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)

    with pytest.raises(WatchSilent):
        _ = [chunk async for chunk in stream(pools(await serve(never)), silence=0.05)]

    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(CHUNKED + b"5\r\nx")

    with pytest.raises(Unreachable, match="connection was lost"):
        _ = [chunk async for chunk in stream(pools(await serve(broken)))]


class Authority:
    """A CA of its own and a server certificate for 127.0.0.1 and api.test."""

    def __init__(self, directory: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("api.test")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / "pair").write_bytes(private + pem)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(directory / "pair")
        self.client = ssl.create_default_context(cadata=pem.decode())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_tls_with_the_right_and_the_wrong_trust(serve: Serving, pools: Pooling, authority: Authority) -> None:
    server = await serve(answering(OK), authority.server)
    pool = pools(server, tls=True)
    assert (await pool.exchange(GET, authority.client, timeout=5)).body == b"hi"
    with pytest.raises(Unreachable, match="certificate is not trusted"):
        await pool.exchange(GET, CONTEXT, timeout=5)
    named = pools(server, tls=True, server_name="api.test")
    assert (await named.exchange(GET, authority.client, timeout=5)).body == b"hi"
    misnamed = pools(server, tls=True, server_name="other.test")
    with pytest.raises(Unreachable, match="certificate is not trusted"):
        await misnamed.exchange(GET, authority.client, timeout=5)


async def test_new_certificates_mean_new_connections(serve: Serving, pools: Pooling, authority: Authority) -> None:
    server = await serve(answering(OK), authority.server)
    pool = pools(server, tls=True, limit=1)
    await pool.exchange(GET, authority.client, timeout=5)
    renewed = ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(authority.client.get_ca_certs(True)[0]))
    assert (await pool.exchange(GET, renewed, timeout=5)).body == b"hi"
    assert server.connections == 2


async def test_through_a_proxy(serve: Serving, pools: Pooling, authority: Authority) -> None:
    server = await serve(answering(OK), authority.server)
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def proxying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request(reader))
        upstream = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, upstream[1]), pump(upstream[0], writer))

    proxy = await serve(proxying)
    pool = pools(server, tls=True, proxy=("127.0.0.1", proxy.port))
    assert (await pool.exchange(GET, authority.client, timeout=5)).body == b"hi"
    assert (await pool.exchange(GET, authority.client, timeout=5)).body == b"hi"
    assert asked == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()]


async def test_a_proxy_that_refuses_says_so(serve: Serving, pools: Pooling) -> None:
    server = await serve(answering(OK))
    refusing = await serve(answering(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"))
    with pytest.raises(Unreachable, match=r"the proxy said HTTP/1\.1 407"):
        await ask(pools(server, tls=True, proxy=("127.0.0.1", refusing.port)))

    async def gone(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await request(reader)

    with pytest.raises(Unreachable, match="the proxy closed the connection"):
        await ask(pools(server, proxy=("127.0.0.1", (await serve(gone)).port)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match=f"the proxy 127.0.0.1:{port}: Connection refused"):
        await ask(pools(server, proxy=("127.0.0.1", port)))


async def test_after_close_nothing_stays_open(serve: Serving, pools: Pooling) -> None:
    ended = threading.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await reader.read()
        ended.set()

    pool = pools(await serve(script))
    await ask(pool)
    await pool.close()
    await until(ended.is_set)


class _Wire(asyncio.Transport):
    """Takes what is written and can be cut."""

    closing = False

    def write(self, _data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    close = abort


@settings(max_examples=300)
@given(
    raw=st.sampled_from([raw for raw, _ in BODIES.values()]),
    cuts=st.lists(st.integers(1, 200), max_size=12),
    noise=st.binary(max_size=30),
    at=st.integers(0, 200),
)
def test_however_it_is_cut_or_mangled_there_is_one_end(raw: bytes, cuts: list[int], noise: bytes, at: int) -> None:
    """An answer in any pieces is the same answer; a mangled one is an answer or Unreachable, never anything else."""

    async def play(data: bytes, ends: list[int]) -> Answer:
        connection = Connection(lambda _: None)
        connection.connection_made(_Wire())
        reply = Reply(connection, limit=None)
        connection.begin(GET, reply)
        position = 0
        for end in [*sorted(end for end in ends if end < len(data)), len(data)]:
            if end > position and connection.open:
                connection.data_received(data[position:end])
            position = max(position, end)
        connection.connection_lost(None)
        return await asyncio.wait_for(reply.future, 1)

    whole = asyncio.run(play(raw, []))
    assert asyncio.run(play(raw, cuts)).body == whole.body
    mangled = raw[:at] + noise + raw[at + len(noise) :]
    with suppress(Unreachable):
        asyncio.run(play(mangled, cuts))
