"""Endpoints: probes and metrics over real sockets, and addresses that are none."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fairway.runtime.endpoints import Address, AddressError, Endpoints

pytestmark = pytest.mark.anyio

LOOPBACK = Address("127.0.0.1", 0)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def endpoints(missing: list[str], probes: Address | None = LOOPBACK, metrics: Address | None = LOOPBACK) -> Endpoints:
    registry = CollectorRegistry()
    Counter("things", "Things", registry=registry).inc(3)
    return Endpoints(probes=probes, metrics=metrics, registry=registry, readiness=lambda: missing)


async def get(http: aiohttp.ClientSession, address: Address, path: str) -> tuple[int, str]:
    async with http.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


async def test_readiness_says_what_is_missing(http: aiohttp.ClientSession) -> None:
    missing = ["toys are not listed yet"]
    served = endpoints(missing)
    await served.start()
    probes = served.bound["probes"]
    assert await get(http, probes, "/healthz") == (200, "ok")
    assert await get(http, probes, "/readyz") == (503, "toys are not listed yet")
    missing.clear()
    assert await get(http, probes, "/readyz") == (200, "ok")
    assert (await get(http, probes, "/metrics"))[0] == 404
    await served.close()


async def test_metrics_are_served_in_prometheus_text(http: aiohttp.ClientSession) -> None:
    served = endpoints([])
    await served.start()
    status, text = await get(http, served.bound["metrics"], "/metrics")
    assert status == 200
    assert "things_total 3.0" in text
    await served.close()


async def test_one_address_serves_both(http: aiohttp.ClientSession) -> None:
    first = endpoints([])
    await first.start()
    free = first.bound["probes"]
    await first.close()
    both = endpoints([], free, free)
    await both.start()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await get(http, free, path))[0] == 200
    await both.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /healthz/../secret HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /healthz\r\n\r\n", b"400"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b""),
        (b"GET /heal", b""),
    ],
    ids=["plain", "query", "head", "post", "climbing", "HTTP/0.9", "TLS", "too long", "cut short"],
)
async def test_whatever_is_asked_there_is_an_answer_or_an_end(request_: bytes, status: bytes) -> None:
    served = endpoints([], metrics=None)
    await served.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.bound["probes"].port)
    writer.write(request_)
    writer.write_eof()
    try:
        answer = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        answer = b""
    assert answer[9:12] == status
    if request_.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")
    writer.close()
    await served.close()


async def test_no_address_serves_nothing() -> None:
    served = endpoints([], None, None)
    await served.start()
    assert served.bound == {}
    await served.close()


async def test_a_taken_address_is_one_line() -> None:
    first = endpoints([], metrics=None)
    await first.start()
    taken = first.bound["probes"]
    second = endpoints([], taken, None)
    with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{taken.port}: "):
        await second.start()
    await second.close()
    await first.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("localhost:65535", Address("localhost", 65535)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", "host:x", "host:65536", "host:-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="no address to listen on"):
        Address.parse(text)
