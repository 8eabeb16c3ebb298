"""Key sets: what is read from them, where they come from, and when they are fetched again."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import KeySet as OtherKeySet

from fairway.api import policy
from fairway.proxy.middleware.jwks import (
    InvalidKeys,
    KeyRing,
    KeySet,
    Unavailable,
    discover,
    discovery_urls,
    jwks_uri,
    key_ring,
    read_jwks,
    read_secret,
)
from fairway.proxy.middleware.ssrf import FetchFailed
from tests.unit.proxy.middleware.forge import ISSUER, b64, jwk

pytestmark = pytest.mark.anyio


def document(*keys: object) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def kids(keys: KeySet) -> set[str | None]:
    return {key.kid for key in keys.keys}


# reading


def test_keys_for_other_uses_of_unknown_kinds_or_too_weak_are_left_out():
    found = read_jwks(
        document(
            jwk("rsa", "good"),
            jwk("ec-256", "ec"),
            jwk("rsa", "encryption", use="enc"),
            jwk("rsa", "signing only", key_ops=["sign"]),
            jwk("rsa-weak", "weak"),
            jwk("ec-k1", "k1"),
            jwk("rsa", "for nothing", alg="none"),
            jwk("rsa", "for HMAC", alg="HS256"),
            jwk("rsa", 7),  # type: ignore[arg-type]
            {"kty": "oct", "kid": "symmetric", "k": b64(bytes(32))},
            {"kty": "RSA", "kid": "no numbers"},
            {"kty": "RSA", "kid": "huge", "n": "A" * 5000, "e": "AQAB"},
            {"kty": "EC", "crv": "P-256", "kid": "not on the curve", "x": b64(b"\1" * 32), "y": b64(b"\1" * 32)},
            {"kty": "OKP", "crv": "Ed25519", "kid": "short", "x": b64(b"\1" * 31)},
            {"kty": "OKP", "crv": "X25519", "kid": "for agreement", "x": b64(b"\1" * 32)},
            jwk("rsa", "slow") | {"e": b64(b"\1" + bytes(250) + b"\1")},
            {},
        )
    )
    assert kids(found) == {"good", "ec"}


def test_the_key_decides_which_algorithms_it_may_be_used_with():
    keys = document(jwk("rsa", "r"), jwk("rsa", "p", alg="PS384"), jwk("ec-384", "e"), jwk("ed25519", "d"))
    found = {key.kid: set(key.verify) for key in read_jwks(keys).keys}
    assert found == {
        "r": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
        "p": {"PS384"},
        "e": {"ES384"},
        "d": {"EdDSA", "Ed25519"},
    }


def test_keys_made_elsewhere_are_read():
    made = OtherKeySet.generate_key_set("EC", "P-256", private=True, count=3)
    assert len(read_jwks(json.dumps(made.as_dict(private=False)).encode()).keys) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"keys":{}}',
        b'{"keys":[1]}',
        b'{"keys":[],"keys":[]}',
        b"<html>",
        b"\xff",
        b"[" * 9999,
    ],
)
def test_what_is_no_key_set_is_refused(content):
    with pytest.raises(InvalidKeys):
        read_jwks(content)


def test_a_key_set_without_end_is_refused():
    with pytest.raises(InvalidKeys, match="more than 100"):
        read_jwks(document(*({} for _ in range(101))))


MEMBERS = st.sampled_from(["keys", "kty", "n", "e", "crv", "x", "y", "kid", "use", "alg"]) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda value: st.lists(value, max_size=4) | st.dictionaries(MEMBERS, value, max_size=6),
    max_leaves=20,
)


@given(JSON)
def test_no_json_does_anything_but_give_keys_or_refuse(value):
    try:
        read_jwks(json.dumps(value).encode())
        read_jwks(json.dumps({"keys": value if isinstance(value, list) else [value]}).encode())
    except InvalidKeys:
        pass


def test_a_short_secret_is_refused():
    with pytest.raises(InvalidKeys, match="32 bytes"):
        read_secret(b"short\n")


# discovery


def test_discovery_documents_are_where_the_two_standards_put_them():
    assert discovery_urls("https://idp.example.org/realm/") == (
        "https://idp.example.org/realm/.well-known/openid-configuration",
        "https://idp.example.org/.well-known/oauth-authorization-server/realm",
    )
    assert discovery_urls("https://idp.example.org")[0] == "https://idp.example.org/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "issuer", [f"{ISSUER}/", "https://idp.example.org", "https://IDP.example.org/realm", None, [ISSUER]]
)
def test_a_discovery_document_of_another_issuer_is_refused(issuer):
    with pytest.raises(InvalidKeys, match="not that of"):
        jwks_uri(json.dumps({"issuer": issuer, "jwks_uri": "https://x"}).encode(), ISSUER)


async def test_keys_are_found_by_discovery_even_where_only_oauth_is_spoken():
    pages = {
        discovery_urls(ISSUER)[1]: json.dumps({"issuer": ISSUER, "jwks_uri": "https://keys.example.org/k"}).encode(),
        "https://keys.example.org/k": document(jwk("rsa", "good")),
    }

    async def fetch(url: str) -> bytes:
        if url not in pages:
            raise FetchFailed(f"GET {url} answered 404")
        return pages[url]

    assert kids(await discover(ISSUER, fetch)) == {"good"}
    del pages[discovery_urls(ISSUER)[1]]
    with pytest.raises(FetchFailed, match="openid-configuration"):
        await discover(ISSUER, fetch)


# rings


class Source:
    def __init__(self, *names: str) -> None:
        self.names = names
        self.down = False
        self.gate: asyncio.Event | None = None
        self.began = 0
        self.asked = asyncio.Event()

    async def __call__(self) -> KeySet:
        self.began += 1
        self.asked.set()
        names = self.names  # read before the answer is on its way, as a server does
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise FetchFailed("connection refused")
        return read_jwks(document(*(jwk(f"rsa-{name}", name) for name in names)))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_fetch_that_is_under_way_is_enough_when_it_brings_the_key():
    source = Source("a")
    source.gate = asyncio.Event()
    ring = KeyRing(source, clock=Clock(), cooldown=60)
    background = asyncio.create_task(ring.run())
    await asyncio.sleep(0)
    asked = [asyncio.create_task(ring.look_for("a")) for _ in range(5)]
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.wait_for(asyncio.gather(*asked), 5) == [True] * 5
    assert source.began == 1
    background.cancel()
    await ring.aclose()


async def test_a_fetch_that_began_before_the_key_was_published_does_not_count():
    source = Source("a")
    source.gate = asyncio.Event()
    ring = KeyRing(source, clock=Clock(), cooldown=0)
    first = asyncio.create_task(ring.look_for("a"))
    await source.asked.wait()
    source.names = ("a", "b")
    second = asyncio.create_task(ring.look_for("b"))
    await asyncio.sleep(0)
    source.gate.set()
    assert await first
    assert await second
    assert source.began == 2
    await ring.aclose()


async def test_unknown_key_ids_cause_no_more_than_one_fetch_in_each_cooldown():
    clock = Clock()
    source = Source("a")
    ring = KeyRing(source, clock=clock, cooldown=0.05)
    assert await ring.look_for("a")
    for n in range(3):
        clock.now += 0.02
        assert not await ring.look_for(f"unknown-{n}")
    assert source.began <= 4
    began = asyncio.get_running_loop().time()
    assert not await ring.look_for("another")
    assert asyncio.get_running_loop().time() - began >= 0.02
    await ring.aclose()


async def test_a_source_that_is_down_is_said_to_be_and_the_last_keys_stay():
    clock = Clock()
    source = Source("a")
    ring = KeyRing(source, clock=clock, cooldown=0, refresh=10, stale=100)
    assert await ring.look_for("a")
    source.down = True
    with pytest.raises(Unavailable, match="refused"):
        await ring.look_for("b")
    kept = ring.current()
    assert kept is not None
    assert kids(kept) == {"a"}
    clock.now = 111
    assert ring.current() is None
    source.down = False
    assert await ring.look_for("a")
    assert ring.error == ""
    await ring.aclose()


async def test_the_set_is_another_object_exactly_when_other_keys_are_in_it():
    source = Source("a")
    ring = KeyRing(source, clock=Clock(), cooldown=0)
    seen = []
    for names in (("a",), ("a",), ("a", "b"), ("b", "a"), ("b",)):
        source.names = names
        await ring.look_for("nobody")
        assert ring.keys is not None
        if ring.keys not in seen:
            seen.append(ring.keys)
        assert ring.keys is seen[-1]
    assert [kids(keys) for keys in seen] == [{"a"}, {"a", "b"}, {"b"}]
    await ring.aclose()


async def test_a_waiter_that_is_cancelled_stops_nobody_else():
    source = Source("a")
    source.gate = asyncio.Event()
    ring = KeyRing(source, clock=Clock(), cooldown=0)
    one, two = (asyncio.create_task(ring.look_for("a")) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert await two
    await ring.aclose()


# from configuration


async def no_fetch(url: str) -> bytes:
    raise AssertionError(url)


async def test_keys_in_a_file_are_read_again_when_it_changes(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_bytes(document(jwk("rsa", "a")))
    ring = key_ring(policy.Issuer(issuer=ISSUER, jwks_file=str(path)), fetch=no_fetch, clock=Clock())
    ring._cooldown = 0
    assert await ring.look_for("a")
    path.write_bytes(document(jwk("rsa", "a"), jwk("rsa-other", "b")))
    assert await ring.look_for("b")
    path.write_bytes(b"{")
    with pytest.raises(Unavailable, match=r"jwks\.json: the key set is not JSON"):
        await ring.look_for("c")
    path.unlink()
    with pytest.raises(Unavailable, match="No such file"):
        await ring.look_for("c")
    current = ring.current()
    assert current is not None
    assert kids(current) == {"a", "b"}
    await ring.aclose()


async def test_a_shared_secret_is_read_from_its_file(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 40 + b"\n")
    ring = key_ring(policy.Issuer(issuer=ISSUER, secret_file=str(path)), fetch=no_fetch, clock=Clock())
    assert await ring.look_for("any key id")
    await ring.aclose()


async def test_keys_come_from_the_url_that_is_configured():
    asked = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return document(jwk("rsa", "a"))

    ring = key_ring(policy.Issuer(issuer=ISSUER, jwks_url="https://keys.example.org/k"), fetch=fetch, clock=Clock())
    assert await ring.look_for("a")
    assert asked == ["https://keys.example.org/k"]
    await ring.aclose()
