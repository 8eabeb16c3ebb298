"""The middleware of one route, made from its policy: every question that is asked about a request, in one place."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairway.api import policy as contract
from fairway.proxy.files import Fingerprint, fingerprint
from fairway.proxy.middleware import seal
from fairway.proxy.middleware.audit import AuditLog
from fairway.proxy.middleware.cors import Cors
from fairway.proxy.middleware.headers import Outbound
from fairway.proxy.middleware.origin import OriginRules
from fairway.proxy.middleware.principal import anonymous
from fairway.proxy.middleware.ratelimit import RateLimiter
from fairway.proxy.middleware.trace import Tracer
from fairway.proxy.parts import Parts, UnusablePolicy

if TYPE_CHECKING:
    from fairway.proxy.middleware.authentication import Authenticator
    from fairway.proxy.middleware.authorization import Authorizer

MAX_FILE: Final = 4 << 20
NOBODY: Final = anonymous()
"""Who sends requests where nobody is asked who he is."""


@dataclass(slots=True)
class Guards:
    """None where the policy does not ask for it. What has a memory is taken over by the next as long as its part of
    the policy is the same: a reload forgives no rate limit and forgets no token."""

    config: contract.Policy
    loopback: bool
    files: Fingerprint
    origin: OriginRules
    cors: Cors | None
    authenticator: "Authenticator | None"
    limiter: RateLimiter | None
    authorizer: "Authorizer | None"
    outbound: Outbound
    sealer: seal.Sealer
    audit: AuditLog | None
    tracer: Tracer


def policy_files(config: contract.Policy) -> list[Path]:
    """The files that are read once: who sees them change builds anew. Those that are followed anyway are not among
    them.
    """
    named = [*config.sessions.key_files]
    if config.authorization is not None:
        named += config.authorization.policy_files
        if config.authorization.entities_file is not None:
            named.append(config.authorization.entities_file)
    return [Path(name) for name in named]


def build(name: str, config: contract.Policy, *, loopback: bool, parts: Parts, before: Guards | None) -> Guards:
    """The guards of the route `name`. Raises UnusablePolicy, and then nothing has changed."""
    files = fingerprint(policy_files(config))
    same_files = before is not None and before.files == files

    def kept(part: str, attribute: str, make: Callable[[], Any], *, rests_on_files: bool = False) -> Any:
        same = before is not None and getattr(before.config, part) == getattr(config, part)
        return getattr(before, attribute) if same and (same_files or not rests_on_files) else make()

    audit = config.audit
    return Guards(
        config=config,
        loopback=loopback,
        files=files,
        origin=OriginRules(config.cors, loopback=loopback),
        cors=Cors(config.cors) if config.cors.allowed_origins else None,
        authenticator=kept("authentication", "authenticator", lambda: _authenticator(config.authentication, parts)),
        limiter=kept("rate_limit", "limiter", lambda: _limiter(config.rate_limit)),
        authorizer=kept("authorization", "authorizer", lambda: _authorizer(config.authorization), rests_on_files=True),
        outbound=kept("headers", "outbound", lambda: Outbound(config.headers, clock=time.monotonic)),
        sealer=kept("sessions", "sealer", lambda: _sealer(name, config.sessions, parts), rests_on_files=True),
        audit=None if audit is None else parts.log(audit),
        tracer=Tracer(),
    )


def _authenticator(config: contract.Authentication | None, parts: Parts) -> "Authenticator | None":
    if config is None:
        return None
    # cryptography and Cedar cost memory, so who does not ask for them does not load them
    from fairway.proxy.middleware.authentication import Authenticator

    return Authenticator(
        config,
        rings={issuer.issuer: parts.ring(issuer) for issuer in config.issuers},
        clock=time.time,
        ticks=time.monotonic_ns,
        review=None if config.token_review is None else parts.review(),
    )


def _limiter(config: contract.RateLimit | None) -> RateLimiter | None:
    return None if config is None else RateLimiter(config, clock=time.monotonic_ns)


def _authorizer(config: contract.Authorization | None) -> "Authorizer | None":
    if config is None:
        return None
    from fairway.proxy.middleware import cedar
    from fairway.proxy.middleware.authorization import Authorizer

    try:
        return Authorizer(cedar.load(config, _content))
    except cedar.InvalidPolicies as error:
        raise UnusablePolicy(f"authorization: {error}") from None


def _sealer(name: str, config: contract.Sessions, parts: Parts) -> seal.Sealer:
    try:
        keys = [seal.read_key(_content(path), path) for path in config.key_files]
    except seal.InvalidKey as error:
        raise UnusablePolicy(f"sessions.keyFiles: {error}") from None
    return seal.Sealer(keys or [parts.own_key()], server=name, lifetime=config.lifetime, clock=time.time)


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UnusablePolicy(f"{path}: {error.strerror or error}") from None
    if len(content) > MAX_FILE:
        raise UnusablePolicy(f"{path}: larger than {MAX_FILE} bytes")
    return content
