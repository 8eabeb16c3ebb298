"""The HTTP client against servers that behave, and servers that do not."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from fairway.mcp.http import (
    ConnectFailed,
    ConnectionBroken,
    HttpClient,
    InvalidUrl,
    Limits,
    NotHttp,
    TimedOut,
    TooLarge,
)

pytestmark = pytest.mark.anyio


class Served:
    """Answers each request with the next of its scripts; remembers what it was asked."""

    def __init__(self, *scripts: bytes, close: bool = False) -> None:
        self.scripts = list(scripts)
        self.close = close
        self.asked: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                self.asked.append(head + await reader.readexactly(length))
                writer.write(self.scripts.pop(0))
                await writer.drain()
                if self.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(*scripts: bytes, close: bool = False, tls: ssl.SSLContext | None = None):
    made = Served(*scripts, close=close)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield made
    finally:
        server.close()


@asynccontextmanager
async def client(**options):
    made = HttpClient(**options)
    try:
        yield made
    finally:
        await made.aclose()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}"


async def test_a_request_and_its_answer():
    async with serving(OK) as served, client() as http:
        answer = await http.request("POST", served.url + "/a/b?c=d", headers={"X-A": "1"}, body=b"hello")
        assert (answer.status, answer.body, answer.content_type) == (200, b"{}", "application/json")
        assert answer.headers["content-length"] == "2"
        (asked,) = served.asked
        assert asked.startswith(b"POST /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nContent-Length: 5\r\n" in asked
        assert asked.endswith(b"X-A: 1\r\n\r\nhello")


async def test_the_host_can_be_given():
    async with serving(OK) as served, client() as http:
        await http.request("GET", served.url, headers={"User-Agent": "me", "Host": "localhost:1"})
        assert served.asked == [b"GET / HTTP/1.1\r\nUser-Agent: me\r\nHost: localhost:1\r\n\r\n"]


async def test_connections_are_used_again():
    async with serving(*[OK] * 5) as served, client() as http:
        for _ in range(5):
            assert (await http.request("GET", served.url)).status == 200
        assert served.connections == 1


async def test_a_connection_that_the_server_closed_is_not_used_again():
    async with serving(*[OK] * 3, close=True) as served, client() as http:
        for _ in range(3):
            assert (await http.request("GET", served.url)).status == 200
            await asyncio.sleep(0.01)
        assert served.connections == 3


@pytest.mark.parametrize(
    ("script", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", b"abcd"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"{}"),
    ],
)
async def test_all_ways_of_ending_an_answer(script, body):
    async with serving(script, close=True) as served, client() as http:
        answer = await http.request("GET", served.url)
        assert answer.body == body
        assert "link" not in answer.headers


async def test_the_answer_to_head_has_no_body():
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n") as served, client() as http:
        answer = await http.request("HEAD", served.url)
        assert (answer.body, answer.headers["content-length"]) == (b"", "500")


async def test_nothing_that_listens_is_said_to_be_so():
    async with serving() as served, client() as http:
        pass
    async with client() as http:
        with pytest.raises(ConnectFailed, match="nothing listens on 127") as failed:
            await http.request("GET", served.url)
        assert failed.value.refused


async def test_a_name_that_does_not_resolve_is_said_to_be_so():
    async with client() as http:
        with pytest.raises(ConnectFailed, match="does not resolve") as failed:
            await http.request("GET", "http://nowhere.invalid/")
        assert not failed.value.refused


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever():
    async with serving(b"") as served, client() as http:
        with pytest.raises(TimedOut):
            await http.request("GET", served.url, timeout=0.1)
        async with asyncio.timeout(1):
            await served.gone.wait()


async def test_an_answer_that_does_not_end_is_not_waited_for_for_ever():
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na") as served, client() as http:
        with pytest.raises(TimedOut):
            await http.request("GET", served.url, timeout=0.1)


@pytest.mark.parametrize("script", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na", OK[:20]])
async def test_a_server_that_hangs_up_early_is_noticed(script):
    async with serving(script, close=True) as served, client() as http:
        with pytest.raises(ConnectionBroken):
            await http.request("GET", served.url)


@pytest.mark.parametrize(
    "script", [b"SSH-2.0-x\r\n", b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"\0" * 50]
)
async def test_what_is_not_http_is_said_to_be_so(script):
    async with serving(script) as served, client() as http:
        with pytest.raises(NotHttp):
            await http.request("GET", served.url)


async def test_too_much_is_refused():
    head = b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"a" * 5000
    async with serving(head, body) as served, client(limits=Limits(body=1000)) as http:
        for _ in range(2):
            with pytest.raises(TooLarge):
                await http.request("GET", served.url)


@pytest.mark.parametrize("length", [100, 70, 40, 20])
async def test_a_second_answer_is_not_taken_for_the_next(length):
    second = OK.replace(b"{}", b"no").replace(b"Content-Type: ", b"X-Second: 1\r\nContent-Type: ")[:length]
    async with serving(OK + second, OK, OK) as served, client() as http:
        for _ in range(2):
            answer = await http.request("GET", served.url)
            assert answer.body == b"{}"
            assert "x-second" not in answer.headers
            await asyncio.sleep(0.01)
        assert served.connections == 2


async def test_trailers_are_not_taken_for_headers():
    script = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: 1\r\n\r\n"
    async with serving(script) as served, client() as http:
        answer = await http.request("GET", served.url)
        assert answer.body == b"a"
        assert "x-trailer" not in answer.headers


async def test_a_stream_is_read_as_it_comes_and_cut_off_when_it_is_left():
    async with serving(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n") as served, client() as http:
        async with http.stream("GET", served.url) as stream:
            async for piece in stream:
                assert piece == b"a"
                break
        async with asyncio.timeout(1):
            await served.gone.wait()


async def test_a_large_body_survives_back_pressure():
    body = bytes(range(256)) * 20_000
    script = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving(script) as served, client() as http, http.stream("GET", served.url) as stream:
        await asyncio.sleep(0.1)
        assert await stream.read(len(body)) == body


@pytest.mark.parametrize(
    "url", ["ftp://a/", "a/b", "http://", "http://a:x/", "http://a:70000/", "http://a/\n", "http://a/ü", "http://[::1/"]
)
async def test_urls_that_are_none_are_refused(url):
    async with client() as http:
        with pytest.raises(InvalidUrl):
            await http.request("GET", url)


async def test_a_header_cannot_smuggle_another():
    async with serving(OK) as served, client() as http:
        with pytest.raises(ValueError):
            await http.request("GET", served.url, headers={"X": "a\r\nHost: b"})
        assert served.asked == []


def self_signed(tmp_path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


async def test_tls_is_spoken_and_certificates_are_checked(tmp_path):
    server, trusting = self_signed(tmp_path)
    async with serving(OK, OK, tls=server) as served:
        async with client(tls=trusting) as http:
            assert (await http.request("GET", served.url)).body == b"{}"
        async with client() as http:
            with pytest.raises(ConnectFailed, match="TLS"):
                await http.request("GET", served.url)
