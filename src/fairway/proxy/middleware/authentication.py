"""Authentication: whose token is this, and is it good for this server?

A token that was seen before costs one dictionary lookup and a look at the clock. A new JWT is verified on the spot when
its key is known. Only what cannot be decided from memory (an unknown key, a TokenReview) is left to `settle`.

Work that bad tokens cause is bounded: what is wrong without a signature check is found without one; signatures that
were wrong are remembered; and who keeps sending new ones (by peer) is told to come back before any more are checked.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from fairway.api import policy
from fairway.proxy.answers import Refusal, unavailable
from fairway.proxy.middleware import challenge, jwt
from fairway.proxy.middleware.jwks import KeyRing, KeySet, Unavailable
from fairway.proxy.middleware.principal import ANONYMOUS_SUBJECT, Principal, anonymous
from fairway.proxy.middleware.ratelimit import Buckets, Rate

Review = Callable[[str, tuple[str, ...]], Awaitable[Mapping[str, Any]]]
"""Token and audiences -> the status of a TokenReview. Raises ReviewFailed."""

MAX_KNOWN: Final = 4096
MAX_BAD: Final = 4096
BAD_PER_SECOND: Final = policy.Bucket(tokens=1000, per=1.0)
"""Checks of wrong signatures for each peer, weighted by what they cost: about 3 % of a core."""
MAX_REVIEWS: Final = 256
_REVIEWS_AT_ONCE: Final = 16
_REVIEW_REFUSED_FOR: Final = 5.0
_REVIEW_COST: Final = 20
"""Of one that was refused, against BAD_PER_SECOND: it is the API server's work as well."""
_REVIEWED_STREAM: Final = 3600.0
"""How long a stream may live on a reviewed token that does not say when it expires."""
_LAST_DATE: Final = 253402300799
"""The end of the year 9999."""

_WRONG_SIGNATURE: Final = "the token's signature is wrong"
_TOKEN68: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
_JWT_SHAPE: Final = re.compile(rb"[^.]*\.[^.]*\.[^.]*")


class ReviewFailed(Exception):
    """The API server gave no answer."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """One issuer, ready for use."""

    config: policy.Issuer
    ring: KeyRing
    audiences: frozenset[str]
    algorithms: frozenset[str]
    """Empty admits what the key admits."""


@dataclass(slots=True)
class Counts:
    """For metrics."""

    verified: int = 0
    refused: int = 0
    throttled: int = 0
    reviews: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was good, and with which keys."""

    authorization: bytes
    until: float
    principal: Principal
    lacks_scope: bool
    ring: KeyRing | None = None
    keys: KeySet | None = None
    thumbprint: str = ""


class _Bad(Exception):
    """The token is not good, for a reason that the client may know."""

    def __init__(self, reason: str, *, status: int = 401, error: str = "invalid_token") -> None:
        super().__init__(reason)
        self.status = status
        self.error = error


class _Undecided(Exception):
    """Something has to be asked first."""


@dataclass(slots=True)
class _Reviews:
    pending: dict[bytes, "asyncio.Task[Principal | Refusal]"] = field(default_factory=dict)
    refused: dict[bytes, float] = field(default_factory=dict)
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_REVIEWS_AT_ONCE))


class Authenticator:
    """Decides who sent a request, by the whole value of its one Authorization header.

    `rings` holds the key ring of every configured issuer, which somebody keeps running. `clock` gives seconds since the
    epoch, `ticks` nanoseconds that never go back.
    """

    def __init__(
        self,
        config: policy.Authentication,
        *,
        rings: Mapping[str, KeyRing],
        clock: Callable[[], float],
        ticks: Callable[[], int],
        review: Review | None = None,
    ) -> None:
        if config.token_review is not None and review is None:
            raise ValueError("tokenReview needs a Kubernetes API server to ask")
        self.counts = Counts()
        self._config = config
        self._clock = clock
        self._ticks = ticks
        self._review = review
        self._reviews = _Reviews()
        self._anonymous = anonymous() if config.anonymous else None
        self._required = frozenset(config.required_scopes)
        self._trusted = {
            issuer.issuer: Trusted(
                issuer,
                rings[issuer.issuer],
                frozenset(issuer.audiences or config.resources),
                frozenset(issuer.algorithms),
            )
            for issuer in config.issuers
        }
        self._known: dict[bytes, _Known] = {}
        self._wrong: dict[bytes, tuple[KeyRing, KeySet]] = {}
        self._failures = Buckets(Rate(BAD_PER_SECOND), bound=4096)

    def identify(self, authorization: bytes | None, *, host: str = "", peer: str = "") -> Principal | Refusal | None:
        """Who it is, or why not; None when only `settle` can tell. `host` chooses the metadata that a refusal names."""
        if authorization is None:
            return self._anonymous or self._refuse(host, 401, "this server wants a token")
        known = self._known.get(authorization)
        if known is not None:
            if self._clock() < known.until and (
                known.ring is None or known.ring.keys is known.keys or self._still_good(authorization, known)
            ):
                return self._insufficient(host) if known.lacks_scope else known.principal
            if known.ring is not None:
                del self._known[authorization]
        try:
            return self._decide(authorization, host=host, peer=peer)
        except _Undecided:
            return None
        except _Bad as bad:
            return self._refuse_bad(host, bad)

    async def settle(self, authorization: bytes, *, host: str = "", peer: str = "") -> Principal | Refusal:
        """Decides what `identify` could not."""
        try:
            answer = self.identify(authorization, host=host, peer=peer)  # what it could not, it may now
            if answer is not None:
                return answer
            token = authorization[7:]
            parsed = self._parse(token)
            trusted = None if parsed is None else self._trusted.get(_issuer(parsed))
            if parsed is None or trusted is None:
                return await self._settle_review(authorization, token, parsed, host, peer)
            try:
                found = await trusted.ring.look_for(parsed.kid)
            except Unavailable as error:
                return unavailable("the token's issuer cannot be reached", retry_after=5, detail=str(error))
            if not found:
                raise _Bad("the token is signed with an unknown key")
            return self._decide(authorization, host=host, peer=peer)
        except _Undecided:
            return unavailable("the token's issuer is changing its keys")
        except _Bad as bad:
            return self._refuse_bad(host, bad)

    def as_remembered(self, authorization: bytes) -> bytes:
        """The same value, but not another copy of it if it is known here."""
        known = self._known.get(authorization)
        return authorization if known is None else known.authorization

    def _still_good(self, authorization: bytes, known: _Known) -> bool:
        """Whether the key that vouched for a token is among the issuer's new ones."""
        assert known.ring is not None
        keys = known.ring.keys
        if keys is None or known.thumbprint not in keys.thumbprints:
            return False
        self._known[authorization] = replace(known, keys=keys)
        return True

    # tokens that were not seen before

    def _decide(self, authorization: bytes, *, host: str, peer: str) -> Principal | Refusal:
        if authorization[:7].lower() != b"bearer ":
            if authorization.lower() == b"bearer":
                raise _Bad("the Authorization header has no token", status=400, error="invalid_request")
            return self._refuse(host, 401, "this server wants a bearer token")
        token = authorization[7:]
        digest = blake2b(token, digest_size=16).digest()
        wrong = self._wrong.get(digest)
        if wrong is not None and wrong[0].keys is wrong[1]:
            raise _Bad(_WRONG_SIGNATURE)
        parsed = self._parse(token)
        now = self._clock()
        if parsed is None:
            raise _Undecided
        trusted = self._trusted.get(_issuer(parsed))
        if trusted is None:
            self._check_reviewable(parsed, now)
            raise _Undecided
        expires_at = self._check_claims(parsed.claims, trusted, now)
        if trusted.algorithms and parsed.algorithm not in trusted.algorithms:
            raise _Bad("the token is signed with an algorithm that is not allowed")
        keys = trusted.ring.current()
        if keys is None:
            raise _Undecided
        thumbprint = self._check_signature(parsed, trusted, keys, digest, peer)
        if thumbprint is None:
            return unavailable("too many bad tokens came from there", detail="signature checks are throttled")
        principal = self._principal(parsed.claims, trusted.config, expires_at)
        lacks_scope = not self._required <= principal.scopes
        known = _Known(authorization, expires_at, principal, lacks_scope, trusted.ring, keys, thumbprint)
        self._remember(authorization, known)
        self.counts.verified += 1
        return self._insufficient(host) if known.lacks_scope else principal

    def _parse(self, token: bytes) -> jwt.Token | None:
        """None for a token that is no JWT but may be good for a TokenReview."""
        if not token:
            raise _Bad("the Authorization header has no token", status=400, error="invalid_request")
        if b" " in token or b"\t" in token or b"," in token:
            raise _Bad("the Authorization header has more than one token", status=400, error="invalid_request")
        if len(token) > self._config.max_token:
            raise _Bad("the token is too large")
        if not _TOKEN68.fullmatch(token):
            raise _Bad("the token has characters that no token has")
        review = self._config.token_review
        if review is not None and not review.issuer and not _JWT_SHAPE.fullmatch(token):
            return None
        try:
            return jwt.take_apart(token)
        except jwt.Malformed as error:
            raise _Bad(str(error)) from None

    def _check_claims(self, claims: Mapping[str, Any], trusted: Trusted, now: float) -> float:
        """When the token stops being good."""
        expires_at = self._check_times(claims, now)
        if expires_at is None:
            raise _Bad("the token never expires")
        audience = claims.get("aud")
        listed = [audience] if isinstance(audience, str) else audience
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise _Bad("the token is for nobody in particular")
        if trusted.audiences.isdisjoint(listed):
            raise _Bad("the token is for another server")
        return expires_at

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float | None:
        leeway = self._config.leeway
        expires_at, begins_at, issued_at = (_date(claims, name) for name in ("exp", "nbf", "iat"))
        if expires_at is not None and now >= expires_at + leeway:
            raise _Bad("the token has expired")
        if (begins_at is not None and now < begins_at - leeway) or (issued_at is not None and now < issued_at - leeway):
            raise _Bad("the token is not good yet")
        return None if expires_at is None else expires_at + leeway

    def _check_signature(
        self, token: jwt.Token, trusted: Trusted, keys: KeySet, digest: bytes, peer: str
    ) -> str | None:
        """The thumbprint of the key that signed it; None when nobody looked, as too many from there were wrong."""
        named = keys.named(token.kid)
        if not named:
            raise _Undecided
        usable = [(key, key.verify[token.algorithm]) for key in named if token.algorithm in key.verify]
        if not usable:
            raise _Bad("the token's key is not for this algorithm")
        ticks = self._ticks()
        if self._failures.wait(peer, ticks) > 0:
            self.counts.throttled += 1
            return None
        for key, verify in usable:
            if verify(token.signature, token.signed):
                return key.thumbprint
            self._failures.take(peer, ticks, jwt.cost(token.algorithm))
        if len(self._wrong) >= MAX_BAD:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[digest] = trusted.ring, keys
        raise _Bad(_WRONG_SIGNATURE)

    def _principal(self, claims: Mapping[str, Any], issuer: policy.Issuer, expires_at: float) -> Principal:
        subject = claims.get(issuer.subject_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= 1024:
            raise _Bad("the token names nobody")
        if issuer.prefix + subject == ANONYMOUS_SUBJECT:
            raise _Bad("the token names somebody who has no token")
        return Principal(
            issuer.prefix + subject,
            issuer.issuer,
            tuple(issuer.prefix + group for group in _words(claims.get(issuer.groups_claim))),
            frozenset((*_words(claims.get("scope"), split=True), *_words(claims.get("scp"), split=True))),
            claims,
            expires_at,
        )

    def _remember(self, authorization: bytes, known: _Known) -> None:
        if len(self._known) >= MAX_KNOWN and authorization not in self._known:
            del self._known[next(iter(self._known))]
        self._known[authorization] = known

    # tokens that the API server is asked about

    def _check_reviewable(self, token: jwt.Token, now: float) -> None:
        review = self._config.token_review
        if review is None or review.issuer not in ("", _issuer(token)):
            raise _Bad("the token is from an issuer that is not trusted here")
        self._check_times(token.claims, now)  # the API server would say the same, later

    async def _settle_review(
        self, authorization: bytes, token: bytes, parsed: jwt.Token | None, host: str, peer: str
    ) -> Principal | Refusal:
        reviews, now = self._reviews, self._clock()
        if parsed is not None:
            self._check_reviewable(parsed, now)
        digest = blake2b(token, digest_size=16).digest()
        if reviews.refused.get(digest, 0.0) > now:
            raise _Bad("the Kubernetes API server does not know the token")
        pending = reviews.pending.get(digest)
        if pending is None:
            if self._failures.wait(peer, self._ticks()) > 0:
                self.counts.throttled += 1
                return unavailable("too many bad tokens came from there", detail="reviews are throttled")
            if len(reviews.pending) >= MAX_REVIEWS:
                self.counts.throttled += 1
                return unavailable("too many tokens wait to be reviewed")
            pending = asyncio.create_task(self._ask(authorization, token, parsed, digest, peer))
            reviews.pending[digest] = pending
            pending.add_done_callback(lambda _: reviews.pending.pop(digest, None))
        answer = await asyncio.shield(pending)
        if isinstance(answer, Refusal):
            return answer if answer.status == 503 else self._refuse_bad(host, _Bad(answer.message))
        return answer if self._required <= answer.scopes else self._insufficient(host)

    async def _ask(
        self, authorization: bytes, token: bytes, parsed: jwt.Token | None, digest: bytes, peer: str
    ) -> Principal | Refusal:
        assert self._config.token_review is not None
        assert self._review is not None
        audiences = self._config.token_review.audiences or self._config.resources
        try:
            async with self._reviews.at_once:
                self.counts.reviews += 1
                status = await self._review(token.decode("ascii"), audiences)
        except ReviewFailed as error:
            return unavailable("the Kubernetes API server cannot be asked", detail=str(error))
        now = self._clock()
        reason = _objection(status, audiences, self._config.token_review.prefix)
        if reason is not None:
            while len(self._reviews.refused) >= MAX_BAD:
                del self._reviews.refused[next(iter(self._reviews.refused))]
            self._reviews.refused[digest] = now + _REVIEW_REFUSED_FOR
            self._failures.take(peer, self._ticks(), _REVIEW_COST)
            return Refusal(401, reason, 401)
        expires_at = None if parsed is None else self._check_times(parsed.claims, now)
        principal = self._reviewed(status["user"], now + _REVIEWED_STREAM if expires_at is None else expires_at)
        before = self._known.get(authorization)
        if before is not None and before.principal.claims == principal.claims:
            principal = before.principal  # what others know about it stays good
        until = min(now + self._config.token_review.cache, principal.expires_at)
        self._remember(authorization, _Known(authorization, until, principal, not self._required <= principal.scopes))
        self.counts.verified += 1
        return principal

    def _reviewed(self, user: Mapping[str, Any], expires_at: float) -> Principal:
        config = self._config.token_review
        assert config is not None
        issuer = config.issuer or "kubernetes"
        groups = tuple(config.prefix + group for group in _words(user.get("groups")))
        extra = user.get("extra")
        claims = {
            "iss": issuer,
            "sub": user["username"],
            "groups": list(_words(user.get("groups"))),
            "uid": user.get("uid", ""),
            "extra": extra if isinstance(extra, dict) else {},
        }
        return Principal(config.prefix + user["username"], issuer, groups, frozenset(), claims, expires_at)

    # refusals

    def _refuse_bad(self, host: str, bad: _Bad) -> Refusal:
        return self._refuse(host, bad.status, str(bad), error=bad.error)

    def _insufficient(self, host: str) -> Refusal:
        return self._refuse(host, 403, "the token does not have the scopes for this server", error="insufficient_scope")

    def _refuse(self, host: str, status: int, message: str, *, error: str = "") -> Refusal:
        self.counts.refused += 1
        header = challenge.www_authenticate(
            challenge.resource_for(self._config, host),
            scopes=self._config.required_scopes,
            error=error,
            description=message if error else "",
        )
        return Refusal(status, message, status, (header,))


def _issuer(token: jwt.Token) -> str:
    issuer = token.claims.get("iss")
    if not isinstance(issuer, str):
        raise _Bad("the token names no issuer")
    return issuer


def _date(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_DATE:
        raise _Bad(f"the token's {name} is not a date")
    return value


def _words(value: Any, *, split: bool = False) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split(" ")) if split else (value,)
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()


def _objection(status: Mapping[str, Any], audiences: tuple[str, ...], prefix: str) -> str | None:
    user = status.get("user")
    if status.get("authenticated") is not True or not isinstance(user, dict):
        return "the Kubernetes API server does not know the token"
    name = user.get("username")
    if not isinstance(name, str) or not name or prefix + name == ANONYMOUS_SUBJECT:
        return "the token names nobody"
    # without audiences in the answer, nobody has checked them: the token may be for the API server itself
    if not set(audiences) & set(_words(status.get("audiences"))):
        return "the token is for another server"
    return None
