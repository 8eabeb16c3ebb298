"""Where the proxy may be sent to: judged without a network, and then fetched over real sockets."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Network, IPv6Network, ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import policy
from fairway.mcp.http import Limits
from fairway.proxy.middleware.ssrf import FetchFailed, Forbidden, GuardedFetch, Target, objection, pin, target

pytestmark = pytest.mark.anyio

STRICT = policy.Fetch()
PRIVATE = policy.Fetch(allow_private=True)
LOCAL = policy.Fetch(allow_loopback=True, allow_http=True)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses_are_fine(text):
    assert objection(ip_address(text), STRICT) is None


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "198.18.0.1", "fc00::1",
        "fd12:3456::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::1", "::10.0.0.1",
    ],
)  # fmt: skip
def test_private_addresses_are_refused_unless_allowed(text):
    assert objection(ip_address(text), STRICT) == "it is private"
    assert objection(ip_address(text), PRIVATE) is None


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254", "169.254.170.2", "169.254.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
        "::169.254.169.254", "fe80::1", "127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::",
        "0.1.2.3", "224.0.0.1", "224.0.1.1", "239.1.1.1", "ff02::1", "255.255.255.255", "240.0.0.1", "192.0.2.1",
        "198.51.100.1", "203.0.113.1", "192.88.99.1", "192.0.0.8", "2001::1", "2001:db8::1", "3fff::1", "fec0::1",
        "64:ff9b:1::1", "100::1", "5f00::1", "::ffff:0:127.0.0.1", "2001:10::1", "4000::1", "e000::1",
    ],
)  # fmt: skip
def test_these_addresses_are_refused_whatever_is_allowed_of_private_ones(text):
    assert objection(ip_address(text), PRIVATE) is not None, text


def test_loopback_is_a_permission_of_its_own():
    for text in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert objection(ip_address(text), LOCAL) is None
    assert objection(ip_address("10.0.0.1"), LOCAL) is not None
    assert objection(ip_address("169.254.169.254"), LOCAL) is not None


INNER = [
    IPv4Network(n)
    for n in ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
              "192.168.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
]  # fmt: skip


@given(
    st.sampled_from(INNER), st.integers(0, 2**32 - 1), st.sampled_from(["v4", "mapped", "nat64", "6to4", "compatible"])
)
def test_no_way_of_writing_an_inner_address_gets_through(network, offset, form):
    inner = network[offset % network.num_addresses]
    prefix = {"v4": "", "mapped": "::ffff:", "nat64": "64:ff9b::", "compatible": "::"}.get(form)
    if form == "6to4":
        written = ip_address((0x2002 << 112) | (int(inner) << 80) | 1)
    elif form == "compatible" and int(inner) <= 1:
        return
    else:
        written = ip_address(f"{prefix}{inner}")
    assert objection(written, STRICT) is not None


@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_address_outside_of_the_global_range_gets_through(value):
    address = ip_address(value.to_bytes(16))
    if objection(address, STRICT) is None:
        embedded = address.ipv4_mapped or (address in IPv6Network("64:ff9b::/96")) or value < 2**32
        assert address in IPv6Network("2000::/3") or embedded


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("https://idp.example.org", Target("idp.example.org", 443, True)),
        ("https://IDP.Example.org:8443/realm?x=1", Target("idp.example.org", 8443, True)),
        ("https://[2606:4700::1111]/", Target("2606:4700::1111", 443, True)),
        ("https://8.8.8.8/", Target("8.8.8.8", 443, True)),
        ("https://xn--bcher-kva.example/", Target("xn--bcher-kva.example", 443, True)),
        ("https://kubernetes.default.svc", Target("kubernetes.default.svc", 443, True)),
        ("https://a_b.example.org./", Target("a_b.example.org.", 443, True)),
    ],
)
def test_a_url_is_read_in_one_way(url, where):
    assert target(url, STRICT) == where


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example.org", "ftp://idp.example.org", "file:///etc/passwd", "gopher://x/", "//idp.example.org",
        "idp", "", "https://", "https:///x", "https://user@idp.example.org/", "https://user:pass@idp.example.org/",
        "https://idp.example.org@attacker.example/", "https://attacker.example\\@idp.example.org/",
        "https://idp.example.org\t/", "https://idp.example.org\n/", "https://idp .example.org/", "https://%31%32%37.0.0.1/",
        "https://0177.0.0.1/", "https://0x7f.0.0.1/", "https://0x7f000001/", "https://2130706433/", "https://127.1/",
        "https://0/", "https://00000177.0.0.1/", "https://1.2.3.4.5/", "https://127.0.0.1.", "https://256.1.1.1/",
        "https://１２７.0.0.1/", "https://ⓔxample.org/", "https://例え.jp/", "https://exam\u00adple.org/", "https://127。0。0。1/",
        "https://[::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::ffff:127.0.0.1/", "https://[v1.x]/", "https://[127.0.0.1]x/",
        "https://idp.example.org:0/", "https://idp.example.org:99999/", "https://idp.example.org:x/", "https://-x.example/",
        "https://a..b/", "https://.example.org/", "https://idp.example.org;x/", "https://" + "a" * 64 + ".org/",
        "javascript:alert(1)", "data:text/plain,x", "HTTPS//x", "https:idp.example.org",
    ],
)  # fmt: skip
def test_a_url_that_programs_read_differently_is_refused(url):
    try:
        where = target(url, STRICT)
    except Forbidden:
        return
    # a trailing dot does not make an address a name: then the address itself is judged
    assert objection(ip_address(where.host.rstrip(".")), STRICT) is not None


def resolver(*answers: Sequence[str]):
    given_answers = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return given_answers.pop(0) if len(given_answers) > 1 else given_answers[0]

    return resolve


async def test_one_bad_address_among_good_ones_spoils_them():
    where = Target("rebind.example", 443, True)
    with pytest.raises(Forbidden, match=r"leads to 10\.0\.0\.1, and it is private"):
        await pin(where, STRICT, resolver(["8.8.8.8", "10.0.0.1"]))
    with pytest.raises(FetchFailed, match="has no address"):
        await pin(where, STRICT, resolver([]))
    with pytest.raises(Forbidden):
        await pin(where, STRICT, resolver(["fe80::1%eth0"]))
    with pytest.raises(Forbidden):
        await pin(where, STRICT, resolver(["nonsense"]))
    assert await pin(where, STRICT, resolver(["8.8.8.8", "1.1.1.1"])) == "8.8.8.8"


async def test_an_address_in_the_url_is_judged_without_asking_anybody():
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise AssertionError

    with pytest.raises(Forbidden):
        await pin(target("https://10.0.0.1/", STRICT), STRICT, resolve)


async def test_a_name_that_does_not_resolve_is_said_to():
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(FetchFailed, match="does not resolve: Name or service not known"):
        await pin(Target("nowhere.example", 443, True), STRICT, resolve)


# real sockets


class Served:
    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://keys.example.org:{self.port}/jwks"


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    served = Served()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            served.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(served.answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


LOOPBACK = resolver(["127.0.0.1"])


async def test_a_document_is_fetched_from_the_address_that_was_judged_under_the_name_that_was_asked_for():
    async with serving() as served:
        assert await GuardedFetch(LOCAL, resolve=LOOPBACK)(served.url) == b"{}"
        assert f"Host: keys.example.org:{served.port}".encode() in served.requests[0]


async def test_a_name_is_resolved_once_so_that_a_second_answer_cannot_matter():
    async with serving() as served:
        await GuardedFetch(LOCAL, resolve=resolver(["127.0.0.1"], ["169.254.169.254"]))(served.url)
        assert len(served.requests) == 1


async def test_a_forbidden_address_is_never_connected_to():
    async with serving() as served:
        for rules in (policy.Fetch(allow_http=True), policy.Fetch(allow_http=True, allow_private=True)):
            with pytest.raises(Forbidden, match="it is this machine"):
                await GuardedFetch(rules, resolve=LOOPBACK)(served.url)
        assert served.requests == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", "redirects are not"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000, "larger than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + b"x" * 4096, "larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nx", "closed"),
        (b"SSH-2.0-x\r\n", "not HTTP"),
        (b"", "closed"),
    ],
)
async def test_anything_but_a_whole_small_answer_is_a_failure_that_says_why(answer, said):
    async with serving() as served:
        served.answer = answer
        with pytest.raises(FetchFailed, match=said):
            await GuardedFetch(LOCAL, resolve=LOOPBACK, limits=Limits(body=2048, answer=5))(served.url)


async def test_a_server_that_never_answers_is_given_up():
    async with serving() as served:
        served.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed, match=r"within 0\.1 s"):
            await GuardedFetch(LOCAL, resolve=LOOPBACK, limits=Limits(answer=0.1))(f"http://keys.example.org:{port}/")
        server.close()


async def test_no_message_repeats_the_query():
    with pytest.raises(FetchFailed) as caught:
        await GuardedFetch(LOCAL, resolve=LOOPBACK)("http://keys.example.org:1/x?key=very-secret")
    assert "very-secret" not in str(caught.value)


async def test_the_token_goes_to_its_own_origin_and_nowhere_else(tmp_path):
    path = tmp_path / "token"
    path.write_text("api-server-token\n")
    rules = policy.Fetch(allow_loopback=True, allow_http=True, token_file=str(path))
    async with serving() as ours, serving() as other:
        fetch = GuardedFetch(rules, token_for=ours.url, resolve=LOOPBACK)
        await fetch(ours.url)
        await fetch(other.url)
        assert b"Authorization: Bearer api-server-token\r\n" in ours.requests[0]
        assert b"api-server-token" not in other.requests[0]
        path.write_text("next")
        await fetch(ours.url)
        assert b"Authorization: Bearer next\r\n" in ours.requests[1]
        path.write_text("a\r\nX-Injected: 1")
        with pytest.raises(FetchFailed, match="not one line"):
            await fetch(ours.url)
        path.unlink()
        with pytest.raises(FetchFailed, match="No such file"):
            await fetch(ours.url)


async def test_an_authority_file_that_is_none_is_said_to_be(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("not a certificate")
    rules = policy.Fetch(allow_loopback=True, ca_file=str(path))
    with pytest.raises(FetchFailed):
        await GuardedFetch(rules, resolve=LOOPBACK)("https://keys.example.org:1/")


async def test_a_certificate_must_be_for_the_name_that_was_asked_for(tmp_path):
    certificate, key = self_signed("keys.example.org")
    (tmp_path / "ca.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    fetch = GuardedFetch(policy.Fetch(allow_loopback=True, ca_file=str(tmp_path / "ca.pem")), resolve=LOOPBACK)
    assert await fetch(f"https://keys.example.org:{port}/") == b"{}"
    with pytest.raises(FetchFailed, match="TLS"):
        await fetch(f"https://other.example.org:{port}/")
    with pytest.raises(FetchFailed, match="TLS"):
        await GuardedFetch(policy.Fetch(allow_loopback=True), resolve=LOOPBACK)(f"https://keys.example.org:{port}/")
    server.close()


def self_signed(name: str) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
