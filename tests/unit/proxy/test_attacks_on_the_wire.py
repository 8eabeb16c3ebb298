"""What attackers try against a guarded route, over real connections: the server must never hear of it."""

import asyncio
import base64
import json
import random
import time
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from fairway.api import policy
from fairway.proxy.admin import Admin
from fairway.proxy.middleware.principal import Principal
from fairway.proxy.middleware.seal import Sealer, Session, read_key
from tests.unit.proxy.guarded import PERMIT_ALL, Idp, audited
from tests.unit.proxy.middleware import forge
from tests.unit.proxy.middleware.test_authentication import key_set
from tests.unit.proxy.serving import RawClient, call, proxy, route, server, until

pytestmark = pytest.mark.anyio

BAD_TOKENS = yaml.safe_load((Path(__file__).parent / "middleware" / "data" / "bad_tokens.yaml").read_text())
CANARY = "canary-5d1e"


@pytest.fixture
def idp(tmp_path):
    return Idp(tmp_path)


def post(client: RawClient, authorization: bytes, *more: bytes) -> None:
    body = json.dumps(call()).encode()
    head = b"".join((b"Host: localhost\r\nUser-Agent: test\r\nContent-Length: %d\r\n" % len(body), *more))
    client.send(b"POST /mcp HTTP/1.1\r\nAuthorization: %b\r\n%b\r\n%b" % (authorization, head, body))


async def test_no_bad_token_gets_a_request_to_the_server(monkeypatch, tmp_path):
    monkeypatch.setattr(forge, "NOW", time.time())
    files = {"main": key_set(), "other": {"keys": [forge.jwk("rsa-other", "other")]}}
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "secret").write_bytes(forge.SECRET)
    config = policy.Authentication(
        resources=(forge.RESOURCE,),
        leeway=0,  # here the clock is real: what is a second too early must not become good while it waits its turn
        issuers=(
            policy.Issuer(issuer=forge.ISSUER, prefix="a:", jwks_file=str(tmp_path / "main")),
            policy.Issuer(
                issuer=forge.OTHER_ISSUER, prefix="b:", algorithms=("RS256",), jwks_file=str(tmp_path / "other")
            ),
            policy.Issuer(issuer=forge.SHARED_ISSUER, prefix="c:", secret_file=str(tmp_path / "secret")),
        ),
    )
    guarded = policy.Policy(authentication=config)

    async def answered(row) -> tuple[str, int] | None:
        value = forge.header_of(row)
        client = await front.client()
        post(client, value)
        reply = await client.reply()
        client.close()
        # what no header can hold is refused as no HTTP at all
        expected = 400 if any(byte in value for byte in b"\r\n\0") else row.get("status", 401)
        return None if reply.status == expected and "error" in reply.message else (row["name"], reply.status)

    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        # all at once: those that name unknown keys wait for the next look at the key set
        wrong = [said for said in await asyncio.gather(*map(answered, BAD_TOKENS)) if said is not None]
        assert wrong == []
        assert len(BAD_TOKENS) >= 100
        assert backend.got == []
        client = await front.client()
        post(client, forge.bearer(forge.token()))
        assert (await client.reply()).status == 200
        assert len(backend.got) == 1


def changed(sealed: str, how: random.Random, strangers: list[str]) -> str:
    """An id that is nearly right."""
    match how.randrange(7):
        case 0:
            return sealed  # stolen as it is
        case 1:
            at = how.randrange(len(sealed))
            return sealed[:at] + how.choice([c for c in "ABCxyz019-_" if c != sealed[at]]) + sealed[at + 1 :]
        case 2:
            return sealed[: how.randrange(1, len(sealed))]
        case 3:
            return sealed + how.choice(["A", "=", "AAAA", sealed])
        case 4:
            raw = bytearray(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)))
            raw[how.randrange(len(raw))] ^= 1 << how.randrange(8)
            return base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
        case 5:
            return base64.urlsafe_b64encode(how.randbytes(how.randrange(1, 200))).decode()
    return how.choice(strangers)


async def test_ten_thousand_attempts_to_take_over_a_session_all_fail(idp, tmp_path):
    async def opens(conversation, got):
        conversation.json({"id": 1, "result": {}}, headers="Mcp-Session-Id: the-servers-own-id\r\n")

    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    guarded = policy.Policy(authentication=idp.authentication(), sessions=policy.Sessions(key_files=(str(key),)))
    alice, session = Principal("alice", forge.ISSUER), Session("the-servers-own-id", "127.0.0.1:1")
    keys, now = [read_key(bytes(range(32)))], time.time

    def sealed_by(made: Sealer, owner: Principal = alice) -> str:
        return made.seal(session, owner)

    strangers = [
        sealed_by(Sealer([read_key(bytes(32))], server="default/a", lifetime=600, clock=now)),  # another key
        sealed_by(Sealer(keys, server="default/b", lifetime=600, clock=now)),  # another server
        sealed_by(Sealer(keys, server="default/a", lifetime=600, clock=now, purpose="task")),
        sealed_by(Sealer(keys, server="default/a", lifetime=-1, clock=now)),  # expired
        sealed_by(Sealer(keys, server="default/a", lifetime=600, clock=now), Principal("bob", "https://else.where")),
        base64.urlsafe_b64encode(b"\x01" + bytes(16) + AESGCMSIV(bytes(32)).encrypt(bytes(12), b"x", b"")).decode(),
        "the-servers-own-id",
        "..",
        "%00",
    ]
    how = random.Random(7)
    async with server(opens) as backend, proxy(route(backend.address, policy=guarded)) as front:
        owner = await front.client()
        opened = await owner.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, idp.headers("alice"))
        sealed = opened.headers["mcp-session-id"]
        client, attempts = await front.client(), [changed(sealed, how, strangers) for _ in range(10_000)]
        token = idp.headers("bob")["Authorization"].encode()
        statuses: dict[int, int] = {}
        for start in range(0, len(attempts), 10):
            for attempt in attempts[start : start + 10]:
                post(client, token, b"Mcp-Session-Id: %b\r\n" % attempt.encode())
            for _ in range(10):
                status = (await client.reply()).status
                statuses[status] = statuses.get(status, 0) + 1
        assert statuses == {404: 10_000}
        assert len(backend.got) == 1
        assert (await owner.ask(call(), {**idp.headers("alice"), "Mcp-Session-Id": sealed})).status == 200


async def test_no_good_token_is_refused_while_keys_rotate(idp):
    """New tokens are used the moment their key is published, and old ones until theirs is withdrawn."""
    guarded = policy.Policy(authentication=idp.authentication())
    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        statuses: dict[int, int] = {}
        over = asyncio.Event()

        async def load() -> None:
            client = await front.client()
            while not over.is_set():
                status = (await client.ask(call(), idp.headers("alice", jti=random.random()))).status
                statuses[status] = statuses.get(status, 0) + 1

        work = [asyncio.create_task(load()) for _ in range(4)]
        for before, after in (("rsa", "rsa-2"), ("rsa-2", "ec-256"), ("ec-256", "rsa-3")):
            idp.publish(after, before)
            idp.key, idp.algorithm = after, "ES256" if after.startswith("ec") else "RS256"
            served = sum(statuses.values())
            await until(lambda served=served: sum(statuses.values()) > served + 40)
            idp.publish(after)
        over.set()
        await asyncio.gather(*work)
        assert set(statuses) == {200}, statuses


async def test_a_withdrawn_key_lets_nobody_in_any_more_though_its_tokens_were_known(idp):
    guarded = policy.Policy(authentication=idp.authentication())
    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        stolen = idp.headers()
        assert (await front.ask(call(), stolen)).status == 200
        idp.publish("rsa-2")
        ring = next(iter(front.gateway._parts._rings.values()))[0]
        await until(lambda: [key.kid for key in ring.keys.keys] == ["rsa-2"])
        assert (await front.ask(call(), stolen)).status == 401


async def test_nothing_of_a_token_is_found_anywhere_but_with_the_client(idp, tmp_path, caplog):
    log = tmp_path / "audit.log"
    seen = bytearray()

    async def answers(conversation, got):
        seen.extend(repr(got).encode())
        conversation.json({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}})

    guarded = policy.Policy(
        authentication=idp.authentication(),
        authorization=PERMIT_ALL,
        rate_limit=policy.RateLimit(principal=policy.Bucket(tokens=5, per=600)),
        audit=audited(log, arguments=True),
    )
    async with server(answers) as backend, proxy(route(backend.address, policy=guarded)) as front:
        token = idp.token("alice", note=CANARY)
        methods = ("tools/list", "initialize", "tools/call", "ping", "tools/call", "tools/call", "nonsense")
        for method in methods:
            asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "add"}}
            reply = await front.ask(asked, {"Authorization": f"Bearer {token}"})
            assert token not in repr(reply)
        await front.ask(call(), {"Authorization": f"Bearer {token}x"})
        await front.ask(call(), {"Authorization": f"Basic {token}"})
        admin = Admin(front.gateway, terminating=lambda: False)
        await until(lambda: log.exists() and len(log.read_text().splitlines()) == len(methods) + 2)
        for written in (
            seen, log.read_bytes(), admin._metrics(), admin._config(), caplog.text.encode(),
            repr(front.gateway.status()).encode(),
        ):  # fmt: skip
            for secret in (token, token.split(".")[1], token.split(".")[2], CANARY):
                assert secret.encode() not in written
        assert len(seen) > 500
