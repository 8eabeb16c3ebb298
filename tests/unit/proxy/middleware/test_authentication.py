"""Who may come in: good tokens of every kind, 195 bad ones, rotation, floods, and the Kubernetes API server."""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import RSAKey

from fairway.api import policy
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware import authentication
from fairway.proxy.middleware.authentication import Authenticator, ReviewFailed
from fairway.proxy.middleware.jwks import KeyRing, KeySet, read_jwks, read_secret
from fairway.proxy.middleware.principal import Principal
from fairway.proxy.middleware.ssrf import FetchFailed
from tests.unit.proxy.middleware import forge
from tests.unit.proxy.middleware.forge import (
    ISSUER,
    NOW,
    OTHER_ISSUER,
    RESOURCE,
    SECRET,
    SHARED_ISSUER,
    bearer,
    claims,
    jwk,
    private,
    token,
)

pytestmark = pytest.mark.anyio

ROWS = yaml.safe_load((Path(__file__).parent / "data" / "bad_tokens.yaml").read_text())

CONFIG = policy.Authentication(
    resources=(RESOURCE,),
    issuers=(
        policy.Issuer(issuer=ISSUER, prefix="a:"),
        policy.Issuer(issuer=OTHER_ISSUER, prefix="b:", algorithms=("RS256",)),
        policy.Issuer(issuer=SHARED_ISSUER, prefix="c:", secret_file="/secret"),
    ),
)
PLAIN = policy.Authentication(resources=(RESOURCE,), issuers=(policy.Issuer(issuer=ISSUER),))


def key_set() -> dict[str, Any]:
    return {
        "keys": [
            jwk("rsa", "rsa", use="sig"),
            jwk("ec-256", "ec", alg="ES256"),
            jwk("ec-384", "ec384"),
            jwk("ec-512", "ec512"),
            jwk("ed25519", "ed"),
            jwk("ed448", "ed448"),
            jwk("rsa-encryption", "encryption", use="enc"),
            jwk("rsa-encryption", "wrapping", key_ops=["wrapKey"]),
            jwk("rsa-weak", "weak"),
            jwk("rsa-ps", "ps-only", alg="PS256"),
            jwk("ec-k1", "k1"),
            {"kty": "oct", "kid": "symmetric", "k": forge.b64(SECRET)},
            {"kty": "from the future", "kid": "x"},
            {"kty": "RSA", "kid": "broken"},
        ]
    }


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def ticks(self) -> int:
        return int(self.now * 1_000_000_000)


class Ring(KeyRing):
    """A ring whose source the test turns as it likes."""

    def __init__(self, keys: KeySet | None, *, clock: Clock, cooldown: float = 0.0, load: Any = None) -> None:
        self.source = keys
        super().__init__(load or self._load_now, clock=clock, cooldown=cooldown)
        self.keys = keys
        self._loaded_at = clock()

    async def _load_now(self) -> KeySet:
        if self.source is None:
            raise FetchFailed("the issuer is down")
        return self.source


def read(document: dict[str, Any]) -> KeySet:
    return read_jwks(json.dumps(document).encode())


def authenticator(
    config: policy.Authentication = CONFIG, *, clock: Clock | None = None, review: Any = None, **rings: KeyRing
) -> Authenticator:
    clock = clock or Clock()
    made: dict[str, KeyRing] = {
        ISSUER: rings.get("main") or Ring(read(key_set()), clock=clock),
        OTHER_ISSUER: Ring(read({"keys": [jwk("rsa-other", "other")]}), clock=clock),
        SHARED_ISSUER: Ring(read_secret(SECRET), clock=clock),
    }
    return Authenticator(config, rings=made, clock=clock, ticks=clock.ticks, review=review)


async def answer(who: Authenticator, authorization: bytes | None, **more: Any) -> Principal | Refusal:
    said = who.identify(authorization, **more)
    if said is None:
        assert authorization is not None
        said = await who.settle(authorization, **more)
    return said


# good tokens


@pytest.mark.parametrize(
    ("algorithm", "key", "kid"),
    [
        ("RS256", "rsa", "rsa"),
        ("RS384", "rsa", "rsa"),
        ("RS512", "rsa", "rsa"),
        ("PS256", "rsa", "rsa"),
        ("PS384", "rsa", "rsa"),
        ("PS512", "rsa", "rsa"),
        ("PS256", "rsa-ps", "ps-only"),
        ("ES256", "ec-256", "ec"),
        ("ES384", "ec-384", "ec384"),
        ("ES512", "ec-512", "ec512"),
        ("EdDSA", "ed25519", "ed"),
        ("Ed25519", "ed25519", "ed"),
        ("EdDSA", "ed448", "ed448"),
        ("Ed448", "ed448", "ed448"),
    ],
)
def test_a_good_token_of_every_algorithm_is_let_in(algorithm, key, kid):
    said = authenticator().identify(bearer(token(algorithm=algorithm, key=private(key), kid=kid)))
    assert isinstance(said, Principal), said
    assert said.subject == "a:alice"
    assert said.issuer == ISSUER
    assert said.groups == ("a:engineering",)
    assert said.scopes == {"mcp:tools", "mcp:read"}
    assert said.expires_at == NOW + 300 + 30


def test_a_token_of_an_independent_implementation_is_let_in():
    pem = private("rsa").private_bytes(*forge_private_form())
    text = joserfc_jwt.encode({"alg": "RS256", "kid": "rsa"}, claims(), RSAKey.import_key(pem))
    assert isinstance(authenticator().identify(bearer(text)), Principal)


def forge_private_form() -> tuple[Any, Any, Any]:
    return Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()


def test_a_shared_secret_is_good_for_its_own_issuer_and_any_key_id():
    text = token(claims(iss=SHARED_ISSUER), algorithm="HS256", key=SECRET, kid="whatever")
    said = authenticator().identify(bearer(text))
    assert isinstance(said, Principal)
    assert said.subject == "c:alice"


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["https://else.example.org", RESOURCE]},
        {"exp": NOW + 0.5},
        {"exp": int(NOW) - 29},
        {"nbf": int(NOW) + 29},
        {"iat": None},
        {"groups": "engineering"},
        {"scope": None, "scp": ["mcp:tools"]},
    ],
)
def test_what_the_rfc_allows_is_let_in(changed):
    assert isinstance(authenticator().identify(bearer(token(claims(**changed)))), Principal)


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_the_usual_types_are_let_in(typ):
    assert isinstance(authenticator().identify(bearer(token(typ=typ))), Principal)


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER "])
def test_the_scheme_has_no_case(scheme):
    assert isinstance(authenticator().identify(scheme + token().encode()), Principal)


def test_a_token_without_a_key_id_is_good_where_there_is_one_key():
    clock = Clock()
    who = authenticator(clock=clock, main=Ring(read({"keys": [jwk("rsa", "some")]}), clock=clock))
    assert isinstance(who.identify(bearer(token(kid=None))), Principal)


def test_the_same_token_is_the_same_principal_and_verified_once():
    who = authenticator()
    header = bearer(token())
    first = who.identify(header)
    assert who.identify(bytes(bytearray(header))) is first
    assert who.counts.verified == 1


# bad tokens


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
async def test_a_bad_token_is_refused_with_exactly_this_status(row):
    who = authenticator()
    for attempt in ("first", "again"):  # what is remembered must say the same
        said = await answer(who, forge.header_of(row))
        assert isinstance(said, Refusal), f"{attempt}: let in"
        assert said.status == row.get("status", 401), said
        headers = dict(said.headers)
        error = row.get("error", "invalid_request" if said.status == 400 else "invalid_token")
        assert headers["WWW-Authenticate"].startswith("Bearer ")
        if error:
            assert f'error="{error}"' in headers["WWW-Authenticate"]
        else:
            assert "error=" not in headers["WWW-Authenticate"]
        assert "resource_metadata=" in headers["WWW-Authenticate"]
    assert who.counts.verified == 0


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"raw_claims": f'{{"iss":"{ISSUER}","sub":"a","aud":"{RESOURCE}","exp":$exp}}'},
        {"raw_header": '{"alg":"RS256","kid":"rsa"}'},
        {"header": {"alg": "ES256", "kid": "ec"}, "key": "ec-256"},
        {"header": {"alg": "EdDSA", "kid": "ed"}, "key": "ed25519"},
        {"header": {"alg": "PS256", "kid": "ps-only"}, "key": "rsa-ps"},
        {"header": {"kid": "other"}, "key": "rsa-other", "claims": {"iss": OTHER_ISSUER}},
        {"header": {"alg": "HS256"}, "key": "secret", "claims": {"iss": SHARED_ISSUER}},
        {"header": {"x5c": ["MIIB"]}},
        {"claims": {"padding": "$repeat 8000 a"}},
    ],
    ids=repr,
)
def test_the_table_spoils_tokens_that_are_good_without_it(row):
    assert isinstance(authenticator().identify(forge.header_of(row)), Principal)


def test_no_token_can_carry_the_name_of_those_without_one():
    assert isinstance(authenticator(PLAIN).identify(bearer(token(claims(sub="anonymous")))), Refusal)


def test_there_are_at_least_a_hundred_kinds_of_bad_tokens():
    assert len({row["name"] for row in ROWS}) == len(ROWS) >= 100


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
async def test_a_bad_token_is_no_better_where_tokens_are_optional(row):
    said = await answer(
        authenticator(policy.Authentication(**{**as_dict(CONFIG), "anonymous": True})), forge.header_of(row)
    )
    assert isinstance(said, Refusal)


def as_dict(config: policy.Authentication) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def test_no_message_repeats_the_token():
    who = authenticator()
    text = token(claims(sub=""))
    said = who.identify(bearer(text))
    assert isinstance(said, Refusal)
    for part in text.split("."):
        assert part not in repr(said)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_refuse(data):
    said = SHARED.identify(data)
    assert said is None or isinstance(said, Refusal)


@given(st.data())
def test_no_change_of_a_good_token_is_let_in(data):
    text = GOOD
    index = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = text[:index] + other + text[index + 1 :]
    said = SHARED.identify(bearer(changed))
    assert changed == text or said is None or isinstance(said, Refusal)


def test_an_unsigned_claim_is_never_believed():
    """Whatever the claims say, an attacker's signature does not make a principal."""
    for subject, groups in itertools.product(("alice", "root"), (["admin"], [])):
        said = authenticator().identify(bearer(token(claims(sub=subject, groups=groups), key=private("rsa-attacker"))))
        assert isinstance(said, Refusal)


# no token


def test_without_a_token_a_client_learns_how_to_begin():
    said = authenticator().identify(None)
    assert isinstance(said, Refusal)
    assert said.status == 401
    url = "https://gw.example.org/.well-known/oauth-protected-resource/mcp"
    assert dict(said.headers) == {"WWW-Authenticate": f'Bearer resource_metadata="{url}"'}


def test_anonymous_is_let_in_only_where_it_is_said():
    said = authenticator(policy.Authentication(anonymous=True)).identify(None)
    assert isinstance(said, Principal)
    assert said.subject == "anonymous"
    assert said.key == "\0anonymous"


# scopes


def test_a_token_without_the_scopes_is_told_all_that_it_needs():
    config = policy.Authentication(
        resources=(RESOURCE,), issuers=PLAIN.issuers, required_scopes=("mcp:tools", "mcp:write")
    )
    who = authenticator(config)
    for _ in range(2):
        said = who.identify(bearer(token()))
        assert isinstance(said, Refusal)
        assert said.status == 403
        header = dict(said.headers)["WWW-Authenticate"]
        assert 'error="insufficient_scope"' in header
        assert 'scope="mcp:tools mcp:write"' in header
    assert isinstance(who.identify(bearer(token(claims(scope="mcp:write mcp:tools x")))), Principal)


def test_a_scope_is_not_a_part_of_a_word():
    config = policy.Authentication(resources=(RESOURCE,), issuers=PLAIN.issuers, required_scopes=("mcp",))
    assert isinstance(authenticator(config).identify(bearer(token())), Refusal)


# time


def test_a_remembered_token_expires_to_the_second():
    clock = Clock()
    who = authenticator(clock=clock)
    header = bearer(token())
    assert isinstance(who.identify(header), Principal)
    clock.now = NOW + 329.9
    assert isinstance(who.identify(header), Principal)
    clock.now = NOW + 330
    said = who.identify(header)
    assert isinstance(said, Refusal)
    assert "expired" in said.message


# keys


async def test_a_key_that_nobody_has_seen_is_fetched_once_for_all_who_wait():
    clock = Clock()
    ring = Ring(read({"keys": [jwk("rsa-old", "old")]}), clock=clock)
    ring.source = read(key_set())
    who = authenticator(clock=clock, main=ring)
    headers = [bearer(token(claims(sub=f"user{n}"))) for n in range(20)]
    assert [who.identify(header) for header in headers] == [None] * 20
    said = await asyncio.gather(*(who.settle(header) for header in headers))
    assert all(isinstance(one, Principal) for one in said)
    assert ring.fetches == 1


async def test_key_rotation_under_load_gives_no_false_401():
    """New keys are published first, then used, then the old ones go; meanwhile somebody sends unknown key ids."""
    clock = Clock()
    ring = Ring(read({"keys": [jwk("rsa-0", "0")]}), clock=clock, cooldown=0.02)
    ring._clock = time.monotonic
    ring._loaded_at = time.monotonic()
    who = authenticator(PLAIN, clock=clock, main=ring)
    wrong: list[Any] = []
    done = False

    async def client(number: int) -> None:
        count = 0
        while not done:
            generation = current
            text = token(claims(sub=f"c{number}", jti=count), key=private(f"rsa-{generation}"), kid=str(generation))
            said = await answer(who, bearer(text))
            if not isinstance(said, Principal) and current - generation < 2:
                wrong.append(said)
            count += 1
            await asyncio.sleep(0)

    async def attacker() -> None:
        count = 0
        while not done:
            count += 1
            said = await answer(who, bearer(token(key=private("rsa-attacker"), kid=f"unknown-{count}")))
            assert isinstance(said, Refusal)
            await asyncio.sleep(0)

    for generation in range(6):
        private(f"rsa-{generation}")
    current = 0
    tasks = [asyncio.create_task(client(n)) for n in range(4)] + [asyncio.create_task(attacker())]
    for current in range(1, 6):
        ring.source = read({"keys": [jwk(f"rsa-{n}", str(n)) for n in (current - 1, current)]})
        await asyncio.sleep(0.08)
    done = True
    await asyncio.gather(*tasks)
    assert wrong == []
    assert who.counts.verified > 20
    await ring.aclose()


async def test_a_revoked_key_is_forgotten_with_all_that_it_vouched_for():
    clock = Clock()
    ring = Ring(read({"keys": [jwk("rsa", "rsa"), jwk("rsa-other", "second")]}), clock=clock)
    who = authenticator(clock=clock, main=ring)
    stays, goes = bearer(token(key=private("rsa-other"), kid="second")), bearer(token())
    kept, _ = who.identify(stays), who.identify(goes)
    ring.source = read({"keys": [jwk("rsa-other", "second")]})
    assert not await ring.look_for("nobody")
    said = await answer(who, goes)
    assert isinstance(said, Refusal)
    assert said.status == 401
    assert who.identify(stays) is kept


async def test_a_key_that_is_replaced_under_its_id_vouches_for_nothing_old():
    clock = Clock()
    ring = Ring(read({"keys": [jwk("rsa", "rsa")]}), clock=clock)
    who = authenticator(clock=clock, main=ring)
    old, new = bearer(token()), bearer(token(key=private("rsa-other")))
    assert isinstance(who.identify(old), Principal)
    assert isinstance(who.identify(new), Refusal)
    ring.source = read({"keys": [jwk("rsa-other", "rsa")]})
    await ring.look_for("nobody")
    assert isinstance(who.identify(old), Refusal)
    assert isinstance(who.identify(new), Principal), "a wrong signature was remembered beyond its key"


async def test_an_issuer_that_is_down_is_no_reason_to_say_401():
    clock = Clock()
    ring = Ring(None, clock=clock)
    who = authenticator(clock=clock, main=ring)
    said = await answer(who, bearer(token()))
    assert isinstance(said, Refusal)
    assert said.status == 503
    assert int(dict(said.headers)["Retry-After"]) > 0


async def test_known_keys_serve_while_the_issuer_is_down_but_not_for_ever():
    clock = Clock()
    ring = Ring(read(key_set()), clock=clock)
    ring.source = None
    who = authenticator(clock=clock, main=ring)
    assert isinstance(await answer(who, bearer(token(claims(jti=1)))), Principal)
    clock.now += 86400 + 301
    said = await answer(who, bearer(token(claims(iat=int(clock.now), exp=int(clock.now) + 60))))
    assert isinstance(said, Refusal)
    assert said.status == 503


# floods


def test_wrong_signatures_are_looked_at_once_and_new_ones_only_so_often():
    clock = Clock()
    who = authenticator(clock=clock)
    same = bearer(token(key=private("rsa-attacker")))
    for _ in range(50):
        assert isinstance(who.identify(same, peer="x"), Refusal)
    assert len(who._wrong) == 1
    good = token()
    head, body, _ = good.split(".")
    statuses = []
    for n in range(1500):
        forged = f"{head}.{body}.{forge.b64(n.to_bytes(256))}"
        said = who.identify(bearer(forged), peer="attacker")
        assert isinstance(said, Refusal)
        statuses.append(said.status)
    assert statuses[:1000] == [401] * 1000
    assert set(statuses[1001:]) == {503}
    assert isinstance(who.identify(bearer(good), peer="somebody else"), Principal), "one peer's flood is another's"
    clock.now += 1
    assert isinstance(who.identify(bearer(token(claims(jti=2))), peer="attacker"), Principal)


def test_slow_signatures_weigh_more():
    clock = Clock()
    who = authenticator(clock=clock)
    head, body, _ = token(algorithm="ES512", key=private("ec-512"), kid="ec512").split(".")
    count = 0
    while True:
        said = who.identify(bearer(f"{head}.{body}.{forge.b64((count + 1).to_bytes(132))}"))
        assert isinstance(said, Refusal)
        if said.status == 503:
            break
        count += 1
    assert count <= 50


def test_memory_is_bounded_and_one_entry_makes_room_for_one(monkeypatch):
    monkeypatch.setattr(authentication, "MAX_KNOWN", 8)
    monkeypatch.setattr(authentication, "MAX_BAD", 8)
    who = authenticator()
    headers = [bearer(token(claims(jti=n))) for n in range(20)]
    for header in headers:
        assert isinstance(who.identify(header), Principal)
    assert list(who._known) == headers[-8:]
    for n in range(20):
        who.identify(bearer(token(claims(jti=n), key=private("rsa-attacker"))))
    assert len(who._wrong) == 8


async def test_those_who_wait_for_keys_are_bounded():
    clock = Clock()
    started = asyncio.Event()

    async def never() -> KeySet:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    ring = Ring(None, clock=clock, load=never)
    who = authenticator(clock=clock, main=ring)
    waiting = [asyncio.create_task(who.settle(bearer(token(claims(jti=n))))) for n in range(64)]
    await started.wait()
    said = await who.settle(bearer(token(claims(jti=99))))
    assert isinstance(said, Refusal)
    assert said.status == 503
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await ring.aclose()
    assert ring._waiting == 0


# the Kubernetes API server


def review_config(**more: Any) -> policy.Authentication:
    return policy.Authentication(
        resources=(RESOURCE,), token_review=policy.TokenReview(**({"audiences": ("fairway",)} | more))
    )


class ApiServer:
    """Knows tokens, as the API server would."""

    def __init__(self, **known: Any) -> None:
        self.known = known
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.down = False
        self.hold: asyncio.Event | None = None

    async def __call__(self, text: str, audiences: tuple[str, ...]) -> Any:
        self.asked.append((text, audiences))
        if self.hold is not None:
            await self.hold.wait()
        if self.down:
            raise ReviewFailed("connection refused")
        user = self.known.get(text)
        if user is None:
            return {"authenticated": False, "error": "unknown"}
        return {"authenticated": True, "user": user, "audiences": user.get("audiences", list(audiences))}


ROBOT = {"username": "system:serviceaccount:default:robot", "groups": ["system:serviceaccounts"], "uid": "7"}


async def test_a_service_account_is_who_the_api_server_says():
    server = ApiServer(opaque=ROBOT)
    who = authenticator(review_config(), review=server)
    said = await answer(who, b"Bearer opaque")
    assert isinstance(said, Principal)
    assert said.subject == ROBOT["username"]
    assert said.groups == ("system:serviceaccounts",)
    assert said.expires_at == NOW + 3600
    assert server.asked == [("opaque", ("fairway",))]


async def test_the_api_server_is_not_asked_again_for_a_while_and_the_principal_stays_the_same():
    clock, server = Clock(), ApiServer(opaque=ROBOT)
    who = authenticator(review_config(cache=10), clock=clock, review=server)
    first = await answer(who, b"Bearer opaque")
    clock.now += 9
    assert who.identify(b"Bearer opaque") is first
    clock.now += 2
    assert who.identify(b"Bearer opaque") is None
    assert await answer(who, b"Bearer opaque") is first
    assert len(server.asked) == 2
    server.known.clear()
    clock.now += 11
    assert isinstance(await answer(who, b"Bearer opaque"), Refusal), "a deleted service account"


async def test_many_requests_with_one_new_token_are_one_review():
    server = ApiServer(opaque=ROBOT)
    server.hold = asyncio.Event()
    who = authenticator(review_config(), review=server)
    tasks = [asyncio.create_task(who.settle(b"Bearer opaque")) for _ in range(30)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # a client that goes away takes nobody with it
    await asyncio.sleep(0)
    server.hold.set()
    said = await asyncio.gather(*tasks[1:])
    assert len(server.asked) == 1
    assert all(isinstance(one, Principal) for one in said)
    assert who._reviews.pending == {}


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"], None, "fairway2", ["FAIRWAY"]], ids=repr)
async def test_a_token_that_is_not_confirmed_for_us_is_refused(audiences):
    server = ApiServer(opaque=ROBOT | {"audiences": audiences})
    said = await answer(authenticator(review_config(), review=server), b"Bearer opaque")
    assert isinstance(said, Refusal)
    assert said.status == 401


async def test_who_sends_many_bad_tokens_keeps_the_api_server_busy_no_longer_and_others_are_heard():
    clock, server = Clock(), ApiServer(opaque=ROBOT)
    who = authenticator(review_config(), clock=clock, review=server)
    said = [await answer(who, b"Bearer invented%d" % number, peer="10.0.0.6") for number in range(100)]
    assert {one.status for one in said if isinstance(one, Refusal)} == {401, 503}
    assert len(server.asked) < 60
    assert isinstance(await answer(who, b"Bearer opaque", peer="10.0.0.7"), Principal)
    clock.now += 1
    asked = len(server.asked)
    await answer(who, b"Bearer other", peer="10.0.0.6")
    assert len(server.asked) == asked + 1


async def test_a_token_that_the_api_server_does_not_know_is_refused_and_remembered():
    clock, server = Clock(), ApiServer()
    who = authenticator(review_config(), clock=clock, review=server)
    for _ in range(5):
        said = await answer(who, b"Bearer opaque")
        assert isinstance(said, Refusal)
        assert said.status == 401
    assert len(server.asked) == 1
    clock.now += 6
    await answer(who, b"Bearer opaque")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": "true", "user": ROBOT, "audiences": ["fairway"]},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}, "audiences": ["fairway"]},
        {"authenticated": True, "user": {"username": "anonymous"}, "audiences": ["fairway"]},
        {"authenticated": True, "user": ROBOT},
    ],
    ids=repr,
)
async def test_half_an_answer_of_the_api_server_is_none(status):
    async def review(_token: str, _audiences: tuple[str, ...]) -> Any:
        return status

    said = await answer(authenticator(review_config(), review=review), b"Bearer opaque")
    assert isinstance(said, Refusal)
    assert said.status == 401


async def test_an_api_server_that_is_down_is_no_reason_to_say_401():
    server = ApiServer(opaque=ROBOT)
    server.down = True
    who = authenticator(review_config(), review=server)
    said = await answer(who, b"Bearer opaque")
    assert isinstance(said, Refusal)
    assert said.status == 503
    server.down = False
    assert isinstance(await answer(who, b"Bearer opaque"), Principal), "a failure must not be remembered"


async def test_only_tokens_of_its_issuer_go_to_the_api_server():
    cluster = "https://kubernetes.default.svc.cluster.local"
    text = token(claims(iss=cluster, aud="fairway"), key=private("rsa-attacker"))
    server = ApiServer(**{text: ROBOT})
    config = policy.Authentication(
        resources=(RESOURCE,),
        issuers=(policy.Issuer(issuer=ISSUER, prefix="idp:"),),
        token_review=policy.TokenReview(issuer=cluster, audiences=("fairway",), prefix="k8s:"),
    )
    who = authenticator(config, review=server)
    said = await answer(who, bearer(text))
    assert isinstance(said, Principal)
    assert said.subject == f"k8s:{ROBOT['username']}"
    assert said.expires_at == NOW + 330
    for other in (token(claims(iss="https://attacker.example")), "opaque", token(key=private("rsa-attacker"))):
        assert isinstance(await answer(who, bearer(other)), Refusal)
    expired = token(claims(iss=cluster, exp=1))
    assert isinstance(await answer(who, bearer(expired)), Refusal)
    assert len(server.asked) == 1


async def test_a_flood_of_new_tokens_does_not_flood_the_api_server():
    server = ApiServer()
    server.hold = asyncio.Event()
    who = authenticator(review_config(), review=server)
    tasks = [asyncio.create_task(who.settle(f"Bearer t{n}".encode())) for n in range(400)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(server.asked) == 16
    server.hold.set()
    said = await asyncio.gather(*tasks)
    assert [one.status for one in said].count(503) == 400 - 256
    assert [one.status for one in said].count(401) == 256


def test_a_review_without_an_api_server_is_a_mistake_that_is_found_at_once():
    with pytest.raises(ValueError, match="API server"):
        authenticator(review_config())


# several URLs


def test_a_refusal_names_the_metadata_of_the_url_that_was_dialled():
    config = policy.Authentication(resources=(RESOURCE, "http://weather.default.svc:8080/mcp"), issuers=PLAIN.issuers)
    said = authenticator(config).identify(None, host="weather.default.svc:8080")
    assert isinstance(said, Refusal)
    assert "http://weather.default.svc:8080/.well-known/oauth-protected-resource/mcp" in said.headers[0][1]
    said = authenticator(config).identify(None, host="attacker.example")
    assert isinstance(said, Refusal)
    assert "attacker" not in said.headers[0][1]


SHARED = authenticator()
GOOD = token()
