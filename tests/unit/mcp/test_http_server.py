"""The HTTP server against raw bytes on real sockets: what is answered, what is refused, and what a client may take."""

import asyncio
import datetime
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.mcp.http_server import HttpServer, Limits, Request, Response

pytestmark = pytest.mark.anyio

QUICK = {"tick_seconds": 0.02}


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}


class Echo:
    """Answers with what arrived, and remembers it."""

    def __init__(self):
        self.seen: list[Request] = []

    def __call__(self, request):
        self.seen.append(request)
        body = json.dumps([request.method, request.path, request.query, request.body.decode("latin-1")]).encode()
        return Response(content_type="application/json", body=body)


@asynccontextmanager
async def serving(handler, **limits):
    server = HttpServer(handler, limits=Limits(**limits))
    port = await server.listen(host="127.0.0.1", port=0)
    try:
        yield server, port
    finally:
        await server.stop(grace=0)


@asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader):
    """One answer: status, headers, body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    lines = head.decode().split("\r\n")
    status = int(lines[0].split()[1])
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:] if line)}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await asyncio.wait_for(reader.readuntil(b"\r\n"), 5), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return status, headers, body


async def exchange(port, sent):
    async with connected(port) as (reader, writer):
        writer.write(sent)
        return await answer(reader)


async def ended(reader):
    """True when the server has closed."""
    return await asyncio.wait_for(reader.read(), 5) == b""


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the server has no event for what a test looks at
            await asyncio.sleep(0)


def post(body=b"{}", *headers, path=b"/x"):
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), lines, body)


async def test_a_request_is_answered_and_the_connection_kept():
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        for number in range(3):
            writer.write(post(b"%d" % number, b"X-Case:  Kept Inside  ", path=b"/a/b?c=d"))
            status, headers, body = await answer(reader)
            assert (status, json.loads(body)) == (200, ["POST", "/a/b", "c=d", str(number)])
            assert "connection" not in headers
            assert headers["date"].endswith("GMT")
    assert echo.seen[0].headers == {"host": "a", "content-length": "1", "x-case": "Kept Inside"}


async def test_a_head_request_gets_the_length_and_no_body():
    async with serving(Echo()) as (_, port), connected(port) as (reader, writer):
        writer.write(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + post())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 21" in head
        assert (await answer(reader))[0] == 200


async def test_a_chunked_body_arrives_whole_and_trailers_are_dropped():
    echo = Echo()
    sent = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent += b"3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nHost: evil\r\nX-Late: 1\r\n\r\n"
    async with serving(echo) as (_, port):
        assert (await exchange(port, sent))[0] == 200
    assert echo.seen[0].body == b"abcde"
    assert echo.seen[0].headers == {"host": "a", "transfer-encoding": "chunked"}


async def test_a_header_sent_twice_is_one_value():
    echo = Echo()
    async with serving(echo) as (_, port):
        await exchange(port, post(b"{}", b"Mcp-Method: a", b"mcp-method: b"))
    assert echo.seen[0].headers["mcp-method"] == "a, b"


async def test_pipelined_requests_are_answered_in_order_even_when_the_first_takes_longer():
    go = asyncio.Event()

    async def slow():
        await go.wait()
        return Response(body=b"slow")

    def handler(request):
        return slow() if request.path == "/slow" else Response(body=request.path.encode())

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post(path=b"/slow") + b"".join(post(path=b"/%d" % n) for n in range(50)))
        await asyncio.sleep(0)
        go.set()
        bodies = [(await answer(reader))[2] for _ in range(51)]
    assert bodies == [b"slow", *(b"/%d" % n for n in range(50))]


async def test_a_failing_handler_costs_one_answer_and_tells_nothing():
    def handler(request):
        if request.path == "/sync":
            raise RuntimeError("secret")
        if request.path == "/header":
            return Response(headers=(("X", "a\r\nSet-Cookie: b"),))
        return failing() if request.path == "/async" else Response()

    async def failing():
        raise RuntimeError("secret")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        for path, expected in ((b"/sync", 500), (b"/async", 500), (b"/header", 500), (b"/", 200)):
            writer.write(post(path=path))
            status, headers, body = await answer(reader)
            assert status == expected
            assert b"secret" not in body
            assert "set-cookie" not in headers


async def test_a_client_that_leaves_cancels_its_request():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(handler) as (server, port):
        async with connected(port) as (_, writer):
            writer.write(post(b"x" * 1000))
            await asyncio.wait_for(begun.wait(), 5)
            assert server.buffered == 1000
        await asyncio.wait_for(cancelled.wait(), 5)
        assert server.buffered == 0


def framed(*headers: bytes, rest: bytes = b"", line: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: a", *headers, b"", rest])


CHUNKED = b"Transfer-Encoding: chunked"
LAST_CHUNK = b"0\r\n\r\n"
GET = b"GET / HTTP/1.1"
REFUSED = {
    "both length and chunked": (400, framed(b"Content-Length: 3", CHUNKED, rest=LAST_CHUNK)),
    "both, the other way round": (400, framed(CHUNKED, b"Content-Length: 3", rest=LAST_CHUNK)),
    "two lengths": (400, framed(b"Content-Length: 3", b"Content-Length: 3", rest=b"abc")),
    "length list": (400, framed(b"Content-Length: 3, 3", rest=b"abc")),
    "negative length": (400, framed(b"Content-Length: -1")),
    "signed length": (400, framed(b"Content-Length: +1", rest=b"a")),
    "overflowing length": (400, framed(b"Content-Length: 99999999999999999999")),
    "other coding": (501, framed(b"Transfer-Encoding: gzip, chunked", rest=LAST_CHUNK)),
    "chunked not last": (400, framed(b"Transfer-Encoding: chunked, gzip", rest=LAST_CHUNK)),
    "coding in HTTP/1.0": (501, framed(CHUNKED, rest=LAST_CHUNK, line=b"POST / HTTP/1.0")),
    "bad chunk size": (400, framed(CHUNKED, rest=b"zz\r\n")),
    "overflowing chunk": (400, framed(CHUNKED, rest=b"fffffffffffffffff\r\n")),
    "chunk longer than its size": (400, framed(CHUNKED, rest=b"3\r\nabcd\r\n" + LAST_CHUNK)),
    "space before colon": (400, framed(b"X : b", line=GET)),
    "folded header": (400, framed(b"X: b", b"  c", line=GET)),
    "null byte": (400, framed(b"X: b\0", line=GET)),
    "bare line feeds": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, framed(b"Host: a", line=GET)),
    "HTTP/2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/2.0": (505, framed(line=b"GET / HTTP/2.0")),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "tunnel": (405, framed(line=b"CONNECT evil:443 HTTP/1.1")),
    "other expectation": (417, framed(b"Expect: wonders", b"Content-Length: 1", rest=b"a")),
    "long target": (414, framed(line=b"GET /" + b"a" * 9000 + b" HTTP/1.1")),
    "many headers": (431, framed(*(b"X%d: a" % n for n in range(200)), line=GET)),
    "large headers": (431, framed(b"X: " + b"a" * 40_000, line=GET)),
    "header without end": (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000),
    "large body, announced": (413, framed(b"Content-Length: 2000")),
    "large body, in chunks": (413, framed(CHUNKED, rest=(b"190\r\n" + b"a" * 400 + b"\r\n") * 3 + LAST_CHUNK)),
    "trailers without end": (413, framed(CHUNKED, rest=b"0\r\nX: " + b"a" * 200_000)),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_not_clean_http_is_refused_and_the_connection_closed(case):
    expected, sent = REFUSED[case]
    echo = Echo()
    async with serving(echo, body_bytes=1000) as (server, port), connected(port) as (reader, writer):
        # what follows must never be taken for a request
        pieces = [sent[n : n + 50_000] for n in range(0, len(sent), 50_000)]
        for piece in [*pieces, b"\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        status, headers, body = await answer(reader)
        assert status == expected, body
        assert headers["connection"] == "close"
        assert json.loads(body)["error"]
        assert await ended(reader)
    assert not echo.seen
    assert server.buffered == 0


async def test_a_refusal_waits_for_its_turn():
    async def slow():
        await asyncio.sleep(0.01)
        return Response(body=b"first")

    async with serving(lambda _: slow()) as (_, port), connected(port) as (reader, writer):
        writer.write(post() + b"\0nonsense\r\n\r\n")
        assert (await answer(reader))[2] == b"first"
        assert (await answer(reader))[0] == 400
        assert await ended(reader)


async def test_a_refusal_survives_a_client_that_is_still_sending():
    async with serving(Echo(), body_bytes=1000) as (_, port), connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n")
        for _ in range(50):
            writer.write(b"a" * 100_000)
        assert (await answer(reader))[0] == 413


async def test_a_client_may_ask_before_it_sends_its_body():
    async with serving(Echo(), body_bytes=1000) as (_, port):
        async with connected(port) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"ok")
            assert (await answer(reader))[2] == b'["POST", "/", "", "ok"]'
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n"
        assert (await exchange(port, head))[0] == 413


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
async def test_an_offer_to_upgrade_is_not_taken_and_the_body_not_lost(body):
    # what Java's HTTP client sends first over plain TCP
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA")
    head = framed(*offer, line=b"POST /j HTTP/1.1")[:-2]
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        sent = head + body + post(b"next")
        for n in range(0, len(sent), 7):
            writer.write(sent[n : n + 7])
            await asyncio.sleep(0)
        assert (await answer(reader))[2] == b'["POST", "/j", "", "hello"]'
        assert json.loads((await answer(reader))[2])[3] == "next"
    assert echo.seen[0].headers["upgrade"] == "h2c"


async def test_a_target_in_absolute_form_brings_its_own_host():
    echo = Echo()
    async with serving(echo) as (_, port):
        await exchange(port, b"GET http://other:1/p?q HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (echo.seen[0].path, echo.seen[0].query, echo.seen[0].headers["host"]) == ("/p", "q", "other:1")


async def test_http_1_0_gets_its_answer_and_the_end():
    async with serving(Echo()) as (_, port), connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (200, "close")
        assert await ended(reader)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await asyncio.sleep(0)


async def test_a_stream_goes_out_in_chunks_and_the_connection_is_kept():
    def handler(_):
        return Response(content_type="text/event-stream", body=pieces(b"one", b"", b"two"))

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(post())
            status, headers, body = await answer(reader)
            assert (status, headers["content-type"], body) == (200, "text/event-stream", b"onetwo")


async def test_a_stream_to_http_1_0_ends_with_the_connection():
    def handler(_):
        return Response(body=pieces(b"one", b"two"))

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body == b"onetwo"


async def test_a_stream_that_fails_is_cut_so_that_nobody_takes_it_for_complete():
    async def broken():
        yield b"one"
        raise RuntimeError("no more")

    async with serving(lambda _: Response(body=broken())) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(reader)


async def test_a_client_that_leaves_ends_its_stream():
    closed = asyncio.Event()

    async def endless():
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    async with serving(lambda _: Response(body=endless())) as (_, port):
        async with connected(port) as (reader, writer):
            writer.write(post())
            await reader.readuntil(b"x")
        await asyncio.wait_for(closed.wait(), 5)


async def test_a_client_that_does_not_read_is_cut_off():
    sent = 0
    closed = asyncio.Event()

    async def endless():
        nonlocal sent
        try:
            while True:
                sent += 1
                yield b"x" * 100_000
        finally:
            closed.set()

    def handler(_):
        return Response(body=endless())

    async with serving(handler, write_seconds=0.1, **QUICK) as (_, port), connected(port) as (_, writer):
        writer.transport.pause_reading()
        writer.write(post())
        await asyncio.wait_for(closed.wait(), 5)
    assert sent < 1000


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"POST / HTTP/1.1\r\nHost:", {"header_seconds": 0.05}),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", {"body_seconds": 0.05}),
    ],
    ids=["head", "body"],
)
async def test_a_request_that_comes_too_slowly_is_given_up(sent, limits):
    async with serving(Echo(), **limits, **QUICK) as (server, port), connected(port) as (reader, writer):
        writer.write(sent)
        assert (await answer(reader))[0] == 408
        assert await ended(reader)
    assert server.buffered == 0


async def test_a_connection_without_requests_is_closed_in_time():
    async with serving(Echo(), idle_seconds=0.05, header_seconds=0.05, **QUICK) as (server, port):
        async with connected(port) as (reader, writer):
            writer.write(post())
            await answer(reader)
            assert await ended(reader)
        async with connected(port) as (reader, _):
            assert await ended(reader)
        assert not server.connections


async def test_there_is_an_end_to_the_number_of_connections():
    async with serving(Echo(), connections=2) as (_, port), connected(port), connected(port) as (reader, writer):
        writer.write(post())
        assert (await answer(reader))[0] == 200
        async with connected(port) as (refused, _):
            assert (await answer(refused))[0] == 503
            assert await ended(refused)


async def test_all_bodies_together_have_a_limit():
    async with serving(Echo(), buffered_bytes=1500) as (server, port), connected(port) as (_, first):
        first.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + b"a" * 1000)
        await until(lambda: server.buffered == 1000)
        assert (await exchange(port, post(b"b" * 1000)))[0] == 503
        await until(lambda: server.buffered == 1000)
        assert (await exchange(port, post(b"b" * 100)))[0] == 200


async def test_stopping_lets_a_request_finish_and_closes_idle_connections_at_once():
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow(_):
        begun.set()
        await go.wait()
        return Response(body=b"done")

    server = HttpServer(slow)
    port = await server.listen(host="127.0.0.1", port=0)
    async with connected(port) as (idle, _), connected(port) as (reader, writer):
        writer.write(post())
        await begun.wait()
        stopping = asyncio.create_task(server.stop(grace=5))
        assert await ended(idle)
        assert server.stopping.is_set()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        go.set()
        _, headers, body = await answer(reader)
        assert (headers["connection"], body) == ("close", b"done")
        assert await stopping is True


async def test_stopping_does_not_wait_for_ever():
    begun = asyncio.Event()

    async def stuck(_):
        begun.set()
        await asyncio.Event().wait()

    server = HttpServer(stuck)
    port = await server.listen(host="127.0.0.1", port=0)
    async with connected(port) as (reader, writer):
        writer.write(post())
        await begun.wait()
        assert await server.stop(grace=0.01) is False
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(reader)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 400), max_size=12), bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
async def test_how_bytes_are_cut_on_the_way_does_not_matter(cuts, bodies):
    sent = b"".join(post(body, b"X-N: 1") for body in bodies)
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        start = 0
        for cut in [*sorted(cuts), len(sent)]:
            writer.write(sent[start:cut])
            start = max(start, cut)
            await asyncio.sleep(0)
        for _ in bodies:
            assert (await answer(reader))[0] == 200
    assert [request.body for request in echo.seen] == bodies


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=200))
async def test_noise_ends_in_a_refusal_or_in_patience_but_never_in_the_server(noise):
    async with serving(Echo()) as (server, port):
        async with connected(port) as (_, writer):
            writer.write(noise)
            await asyncio.sleep(0)
        assert (await exchange(port, post()))[0] == 200
        assert server.buffered == 0


@pytest.mark.parametrize("seconds", [0, 951_782_399, 1_709_210_096, 1_798_761_599])
async def test_dates_are_those_of_the_standard(seconds, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: seconds + 0.9)
    assert HttpServer(Echo()).date().decode() == formatdate(seconds, usegmt=True)


@pytest.fixture
def certificate(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(minutes=10))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "both.pem"
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem))
    return file


async def test_it_speaks_tls_and_refuses_plain_text_there(certificate):
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate)
    theirs = ssl.create_default_context(cafile=str(certificate))
    server = HttpServer(Echo(), limits=Limits(body_bytes=1000))
    port = await server.listen(host="127.0.0.1", port=0, ssl=ours)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=theirs, server_hostname="localhost")
        writer.write(post(b"hello"))
        assert json.loads((await answer(reader))[2])[3] == "hello"
        writer.write(framed(b"Content-Length: 2000"))
        assert (await answer(reader))[0] == 413
        assert await ended(reader)
        writer.transport.abort()
        async with connected(port) as (reader, writer):
            writer.write(post())
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 5)
    finally:
        await server.stop(grace=0)
