"""What each policy decision costs, in microseconds of CPU, and what all of them together add to one request.

    python -m bench.policy [--only NAME] [--rounds 7]

Each call is repeated in rounds of a few milliseconds; rounds of all calls alternate, so that what else happens on the
machine meets all of them, and the cheapest round counts. The last line is JSON; the exit code is 1 past a budget.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cedarpy
import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet as JoserfcKeySet

from bench.budget import finish
from fairway.api import policy
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.audit import AuditLog, Entry
from fairway.proxy.middleware.authentication import Authenticator
from fairway.proxy.middleware.authorization import Authorizer
from fairway.proxy.middleware.cedar import Book, read_policies
from fairway.proxy.middleware.cors import Cors
from fairway.proxy.middleware.headers import Outbound
from fairway.proxy.middleware.jwks import KeyRing, KeySet, read_jwks
from fairway.proxy.middleware.origin import OriginRules
from fairway.proxy.middleware.principal import Principal
from fairway.proxy.middleware.ratelimit import RateLimiter
from fairway.proxy.middleware.seal import Sealer, Session, read_key
from fairway.proxy.middleware.trace import Tracer

ISSUER = "https://idp.example.org"
RESOURCE = "https://gw.example.org/mcp"
ROUND = 0.004
WARM_CALL = "a warm call: origin, token, limit, Cedar, audit"


@dataclass(frozen=True, slots=True)
class Case:
    """One call, and how its result proves that it did what it is named for."""

    name: str
    call: Callable[[], Any]
    right: Callable[[Any], bool]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8))


class Issuer:
    """Makes tokens of about 800 bytes, as identity providers do."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ed = ed25519.Ed25519PrivateKey.generate()
        self.count = 0

    def jwks(self) -> bytes:
        r, e = self.rsa.public_key().public_numbers(), self.ec.public_key().public_numbers()
        keys = [
            {"kty": "RSA", "kid": "rsa", "n": number(r.n), "e": number(r.e)},
            {"kty": "EC", "crv": "P-256", "kid": "ec", "x": b64(e.x.to_bytes(32)), "y": b64(e.y.to_bytes(32))},
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(self.ed.public_key().public_bytes_raw())},
        ]
        return json.dumps({"keys": keys}).encode()

    def claims(self, **changed: Any) -> dict[str, Any]:
        self.count += 1
        now = int(time.time())
        plain = {"iss": ISSUER, "sub": "alice", "aud": RESOURCE, "iat": now, "exp": now + 86400, "jti": self.count}
        more = {"groups": ["engineering", "on-call"], "scope": "mcp:tools mcp:read", "name": "Alice " * 20}
        return plain | more | changed

    def token(self, algorithm: str = "RS256", **changed: Any) -> bytes:
        kid = {"RS256": "rsa", "ES256": "ec", "EdDSA": "ed"}[algorithm]
        parts = [{"alg": algorithm, "typ": "JWT", "kid": kid}, self.claims(**changed)]
        signed = ".".join(b64(json.dumps(part).encode()) for part in parts)
        match algorithm:
            case "RS256":
                signature = self.rsa.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            case "ES256":
                r, s = decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
                signature = r.to_bytes(32) + s.to_bytes(32)
            case _:
                signature = self.ed.sign(signed.encode())
        return f"Bearer {signed}.{b64(signature)}".encode()


def allowed(answer: Any) -> bool:
    return answer is None


def refused(status: int) -> Callable[[Any], bool]:
    return lambda answer: isinstance(answer, Refusal) and answer.status == status


def admitted(answer: Any) -> bool:
    return isinstance(answer, Principal)


def authentication_cases(issuer: Issuer) -> list[Case]:
    keys = read_jwks(issuer.jwks())

    async def load() -> KeySet:
        return keys

    def authenticator() -> Authenticator:
        ring = KeyRing(load, clock=time.monotonic)
        asyncio.run(ring.look_for("rsa"))
        config = policy.Authentication(resources=(RESOURCE,), issuers=(policy.Issuer(issuer=ISSUER),))
        return Authenticator(config, rings={ISSUER: ring}, clock=time.time, ticks=time.monotonic_ns)

    known, other = authenticator(), authenticator()
    good = issuer.token()
    known.identify(good)

    def unseen(algorithm: str) -> Callable[[], Any]:
        token = issuer.token(algorithm)

        def verify() -> Any:
            other._known.clear()
            return other.identify(token)

        return verify

    head, body, _ = issuer.token().split(b".")

    def forged() -> Any:
        other._wrong.clear()
        other._failures._full_at.clear()
        return other.identify(b"%b.%b.%b" % (head, body, b64(bytes(256)).encode()))

    wrong = b"%b.%b.%b" % (head, body, b64(bytes(256)).encode())
    known.identify(wrong)
    foreign, expired = issuer.token(aud="https://else.example.org"), issuer.token(exp=1)
    joserfc_keys = JoserfcKeySet.import_key_set(json.loads(issuer.jwks()))
    text = good[7:].decode()
    return [
        Case("authenticate: known token", lambda: known.identify(good), admitted),
        Case("authenticate: new RS256", unseen("RS256"), admitted),
        Case("authenticate: new ES256", unseen("ES256"), admitted),
        Case("authenticate: new EdDSA", unseen("EdDSA"), admitted),
        Case("  for comparison: joserfc, RS256", lambda: joserfc_jwt.decode(text, joserfc_keys, ["RS256"]), bool),
        Case("refuse: forged signature", forged, refused(401)),
        Case("refuse: the same again", lambda: known.identify(wrong), refused(401)),
        Case("refuse: wrong audience", lambda: known.identify(foreign), refused(401)),
        Case("refuse: expired", lambda: known.identify(expired), refused(401)),
        Case("refuse: no JWT", lambda: known.identify(b"Bearer opaque"), refused(401)),
        Case("refuse: no token", lambda: known.identify(None), refused(401)),
    ]


def policies(count: int, on_tool: int) -> str:
    """`count` policies, of which `on_tool` are about the tool `search`."""
    about = ["search"] * on_tool + [f"tool{n}" for n in range(count - on_tool)]
    return (
        "\n".join(
            f'permit(principal, action == Action::"call_tool", resource == Tool::"{tool}")'
            f' when {{ principal.groups.contains("team{n}") }};'
            for n, tool in enumerate(about)
        )
        + 'permit(principal in Group::"engineering", action == Action::"call_tool", resource == Tool::"search");'
    )


LIMIT = (
    'permit(principal in Group::"engineering", action == Action::"call_tool", resource == Tool::"pay")'
    " when { context.arguments.amount < 100 };"
)
GUARD = 'forbid(principal, action == Action::"call_tool", resource) when { context.claims has blocked };'


def authorization_cases(issuer: Issuer) -> list[Case]:
    me = Principal("alice", ISSUER, ("engineering",), frozenset({"mcp:tools"}), issuer.claims())
    small, large = b'{"amount":5,"note":"x"}', json.dumps({"amount": 5, "note": "x" * 33_000}).encode()
    names = [f"tool{n}" for n in range(50)]

    def whole(count: int, on_tool: int) -> Callable[[], Any]:
        handle = cedarpy.PolicySet.from_str(policies(count, on_tool))
        entity = {
            "uid": {"type": "Client", "id": "alice"},
            "attrs": {"groups": ["engineering"]},
            "parents": [{"type": "Group", "id": "engineering"}],
        }
        entities = cedarpy.Entities.from_json_str(json.dumps([entity]))
        request = {
            "principal": {"type": "Client", "id": "alice"},
            "action": {"type": "Action", "id": "call_tool"},
            "resource": {"type": "Tool", "id": "search"},
        }
        return lambda: None if cedarpy.is_authorized(request, handle, entities).allowed else Refusal(403, "no", 403)

    def authorizer(*texts: str) -> Authorizer:
        return Authorizer(Book(read_policies([("bench", "\n".join(texts))])))

    def cold(who: Authorizer) -> Callable[[], Any]:
        who.check(me, "tools/call", None, "search")

        def ask() -> Any:
            who._sights[me].decisions.clear()
            who._sights[me].shared.clear()
            return who.check(me, "tools/call", None, "search")

        return ask

    def new_list(who: Authorizer) -> Callable[[], Any]:
        def ask() -> Any:
            who._sights.clear()
            return who.visible(me, "tools/list", names)

        return ask

    hundred = authorizer(policies(100, 9))
    guarded = authorizer(LIMIT, GUARD)
    plain = authorizer(LIMIT)
    wide = authorizer('permit(principal in Group::"engineering", action == Action::"call_tool", resource);')
    named = authorizer(*(policies(1, 0).replace("tool0", f"tool{n}") for n in range(50)))
    hundred.visible(me, "tools/list", names)
    return [
        Case("authorise: remembered", lambda: hundred.check(me, "tools/call", None, "search"), allowed),
        Case("authorise: open method", lambda: hundred.check(me, "ping", None), allowed),
        Case("authorise: new, 1 of 1 policies", cold(authorizer(policies(0, 0))), allowed),
        Case("authorise: new, 10 of 10 policies", cold(authorizer(policies(9, 9))), allowed),
        Case("authorise: new, 10 of 100 policies", cold(hundred), allowed),
        Case("  for comparison: all 100 policies", whole(99, 9), allowed),
        Case(
            "authorise: by arguments",
            lambda: plain.check(me, "tools/call", {"arguments": small}, "pay"),
            allowed,
        ),
        Case(
            "authorise: by arguments and claims",
            lambda: guarded.check(me, "tools/call", {"arguments": small}, "pay"),
            allowed,
        ),
        Case(
            "authorise: by arguments of 33 KB",
            lambda: plain.check(me, "tools/call", {"arguments": large}, "pay"),
            allowed,
        ),
        Case("list of 50: remembered", lambda: hundred.visible(me, "tools/list", names), lambda a: len(a) == 50),
        Case("list of 50: new client, one policy for all", new_list(wide), lambda a: a == [True] * 50),
        Case("list of 50: new client, a policy for each", new_list(named), lambda a: a == [False] * 50),
    ]


def other_cases() -> list[Case]:
    me = Principal("alice", ISSUER)
    once, each = policy.Bucket(tokens=1_000_000, per=0.001), policy.Bucket(tokens=1_000_000, per=0.001)
    limits = RateLimiter(
        policy.RateLimit(shared=once, principal=each, tools=(policy.ToolLimit(tool="search", principal=each),)),
        clock=time.monotonic_ns,
    )
    empty = RateLimiter(policy.RateLimit(shared=policy.Bucket(tokens=1, per=86400)), clock=time.monotonic_ns)
    empty.check("x")
    sealer = Sealer([read_key(os.urandom(32))], server="default/weather", lifetime=86400, clock=time.time)
    session = Session("0123456789abcdef0123456789abcdef", "weather-0", "6f1f6b0e-5c1e-4a6f-9d0e-1b2c3d4e5f60")
    sealed = sealer.seal(session, me)
    forged = ("B" if sealed[40] == "A" else "A").join((sealed[:40], sealed[41:]))
    hosts = OriginRules(policy.Cors(allowed_origins=("https://app.example.org",)), loopback=False)
    cors = Cors(policy.Cors(allowed_origins=("https://app.example.org",)))
    headers = Outbound(policy.Headers(set=(policy.SetHeader(name="X-Team", value="a"),)), clock=time.monotonic)
    received = [
        (b"host", b"gw.example.org"), (b"authorization", b"Bearer x"), (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"), (b"user-agent", b"client/1"),
        (b"connection", b"keep-alive"),
        (b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", b"tools/call"), (b"mcp-name", b"search"),
        (b"content-length", b"258"),
    ]  # fmt: skip

    def pass_on() -> list[bytes]:
        added = headers.added()
        assert isinstance(added, list)
        return [name for name, _ in received if headers.passes(name)] + added

    tracer = Tracer()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    log = AuditLog(policy.Audit(file="/dev/null", queue=1_000_000))

    def append() -> int:
        log.append(Entry(1e9, "default/weather", "tools/call", "alice", 200, 1.0, "search", ISSUER))
        if len(log._waiting) > 900:
            log._waiting.clear()
        return len(log._waiting)

    batch = [Entry(1e9, "default/weather", "tools/call", "alice", 200, 1.0, "search", ISSUER)] * 100

    def write() -> int:
        before = log.counts.written
        log._write(batch, 0)
        return log.counts.written - before

    return [
        Case("rate limit: three buckets", lambda: limits.check("\0alice", "search"), allowed),
        Case("rate limit: refuse", lambda: empty.check("x"), refused(429)),
        Case("session: seal", lambda: sealer.seal(session, me), lambda text: len(text) > 100),
        Case("session: open", lambda: sealer.open(sealed, me), lambda found: found == session),
        Case("session: forged", lambda: sealer.open(forged, me), refused(404)),
        Case("origin: host alone", lambda: hosts.check("gw.example.org", None), allowed),
        Case("origin: host and origin", lambda: hosts.check("gw.example.org", "https://app.example.org"), allowed),
        Case("cors: headers", lambda: cors.headers("https://app.example.org"), lambda found: len(found) == 3),
        Case("headers: ten, one added", pass_on, lambda found: len(found) == 7),
        Case("trace: continue", lambda: tracer.begin(parent).traceparent, lambda text: len(text) == 55),
        Case("audit: append", append, lambda _: True),
        Case("audit: a hundred lines, in the thread", write, lambda count: count == 100),
    ]


def chain_cases(issuer: Issuer) -> list[Case]:
    """Everything that one warm tools/call passes through, in the order of the proxy, with all of it switched on."""
    by_name = {case.name: case for case in authentication_cases(issuer)}
    principal = by_name["authenticate: known token"].call()
    identify = by_name["authenticate: known token"].call
    others = {case.name: case for case in other_cases()}
    who = Authorizer(Book(read_policies([("bench", policies(100, 9))])))
    limits = RateLimiter(
        policy.RateLimit(principal=policy.Bucket(tokens=1_000_000, per=0.001)), clock=time.monotonic_ns
    )
    origin, trace, append = (others[n].call for n in ("origin: host alone", "trace: continue", "audit: append"))
    headers = others["headers: ten, one added"].call
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    body = json.dumps({"name": "search", "arguments": {"query": "x" * 150}}).encode()

    def policy_alone() -> Any:
        origin()
        found = identify()
        refusal = limits.check(found.key, "search") or who.check(found, "tools/call", None, "search")
        append()
        return refusal

    def everything() -> Any:
        trace()
        headers()
        decode(body)
        return policy_alone()

    who.check(principal, "tools/call", None, "search")
    return [
        Case(WARM_CALL, policy_alone, allowed),
        Case("  and headers, trace, params", everything, allowed),
    ]


def measure(cases: list[Case], rounds: int) -> dict[str, float]:
    """Microseconds of this thread's CPU for each call; the cheapest round."""
    repeats, best = {}, {}
    for case in cases:
        if not case.right(case.call()):
            raise SystemExit(f"{case.name}: the call did not do what it should: {case.call()!r}")
        began = time.thread_time()
        count = 0
        while time.thread_time() - began < ROUND:
            case.call()
            count += 1
        repeats[case.name] = max(1, count)
        best[case.name] = float("inf")
    for _ in range(rounds):
        for case in cases:
            call, count = case.call, repeats[case.name]
            began = time.thread_time()
            for _ in range(count):
                call()
            best[case.name] = min(best[case.name], (time.thread_time() - began) / count * 1e6)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description=__doc__)
    parser.add_argument("--only", default="", help="measure only calls with this in their name")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    issuer = Issuer()
    cases = [*authentication_cases(issuer), *authorization_cases(issuer), *other_cases(), *chain_cases(issuer)]
    best = measure([case for case in cases if arguments.only in case.name], arguments.rounds)
    print(f"{'us of CPU per call':<52}{'load ' + ' '.join(f'{value:.1f}' for value in os.getloadavg()):>20}")
    for name, cost in best.items():
        print(f"{name:<52}{cost:>20.2f}")
    figures = {"warm_call_us": best.get(WARM_CALL)}
    return finish("policy", figures, {"unit": "us", "calls": {k.strip(): round(v, 3) for k, v in best.items()}})


if __name__ == "__main__":
    sys.exit(main())
