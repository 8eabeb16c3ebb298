"""Signing keys of an issuer: read from a JWKS, fetched, and fetched again when they rotate.

The documents are parsed by pure functions. A `KeyRing` holds the last good set: it serves while the issuer cannot be
reached, is refreshed in the background, and at once when a token names a key that nobody has seen, though never more
often than once in `cooldown` seconds. Where keys come from is configured; nothing in a token is ever a path or a URL.
"""

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from fairway.api import policy
from fairway.mcp import exact
from fairway.proxy.middleware.jwt import PublicKey, Verify, verifiers
from fairway.proxy.middleware.ssrf import FetchFailed
from fairway.proxy.middleware.watched import Unreadable, WatchedFile

Fetch = Callable[[str], Awaitable[bytes]]
"""URL -> the document there. Raises FetchFailed."""

MAX_KEYS: Final = 100
MAX_WAITING: Final = 64
_CURVES: Final[Mapping[str, type[ec.EllipticCurve]]] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
}


class InvalidKeys(ValueError):
    """The document is no key set."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and all that it may be used for. `thumbprint` tells keys apart whatever they are called."""

    thumbprint: str
    kid: str | None
    verify: Mapping[str, Verify]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of one issuer. `any_kid` is for a shared secret, which has no name."""

    keys: tuple[Key, ...]
    any_kid: bool = False

    def named(self, kid: str | None) -> tuple[Key, ...]:
        """The keys that a token with this key id may be signed with. One without an id leaves no choice to make."""
        if self.any_kid or (kid is None and len(self.keys) == 1):
            return self.keys
        if kid is None:
            return tuple(key for key in self.keys if key.kid is None)[:4]
        return tuple(key for key in self.keys if key.kid == kid)[:4]

    @property
    def thumbprints(self) -> frozenset[str]:
        return frozenset(key.thumbprint for key in self.keys)


def read_jwks(document: bytes) -> KeySet:
    """Keys of unknown kinds, for other uses, or too weak are left out. Raises InvalidKeys."""
    try:
        raw = exact.read(document)
    except exact.Ambiguous as error:
        raise InvalidKeys(f"the key set is {error}") from None
    listed = raw.get("keys") if isinstance(raw, dict) else None
    if not isinstance(listed, list) or not all(isinstance(jwk, dict) for jwk in listed):
        raise InvalidKeys('the key set is no object with a list "keys"')
    if len(listed) > MAX_KEYS:
        raise InvalidKeys(f"the key set has more than {MAX_KEYS} keys")
    return KeySet(tuple(key for jwk in listed if (key := _read_key(jwk)) is not None))


def read_secret(content: bytes) -> KeySet:
    secret = content.strip()
    if len(secret) < 32:
        raise InvalidKeys("the shared secret is shorter than 32 bytes")
    return KeySet((Key(sha256(secret).hexdigest(), None, verifiers(secret)),), any_kid=True)


def _read_key(jwk: Mapping[str, Any]) -> Key | None:
    kid, use, operations, algorithm = (jwk.get(name) for name in ("kid", "use", "key_ops", "alg"))
    if use not in (None, "sig") or not (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    ):
        return None
    if not (kid is None or isinstance(kid, str)):
        return None
    try:
        public = _public_key(jwk)
    except (ValueError, TypeError, KeyError):
        return None  # one key that nobody can use must not keep the others from being used
    if public is None:
        return None
    usable = verifiers(public)
    if algorithm is not None:
        usable = {name: verify for name, verify in usable.items() if name == algorithm}
    if not usable:
        return None
    numbers = "\0".join(f"{name}={jwk[name]}" for name in ("kty", "crv", "n", "e", "x", "y") if name in jwk)
    return Key(sha256(f"{numbers}\0{kid}\0{sorted(usable)}".encode()).hexdigest(), kid, usable)


def _public_key(jwk: Mapping[str, Any]) -> PublicKey | None:
    """Only the public half is looked at. A symmetric key in a key set is no key: whoever can read the set has it."""
    match jwk.get("kty"):
        case "RSA":
            return rsa.RSAPublicNumbers(_number(jwk["e"]), _number(jwk["n"])).public_key()
        case "EC" if jwk.get("crv") in _CURVES:
            return ec.EllipticCurvePublicNumbers(
                _number(jwk["x"]), _number(jwk["y"]), _CURVES[jwk["crv"]]()
            ).public_key()
        case "OKP" if jwk.get("crv") == "Ed25519":
            return ed25519.Ed25519PublicKey.from_public_bytes(_decoded(jwk["x"]))
        case "OKP" if jwk.get("crv") == "Ed448":
            return ed448.Ed448PublicKey.from_public_bytes(_decoded(jwk["x"]))
    return None


def _decoded(value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 4096:
        raise InvalidKeys("a number of a key is no text of a sensible length")
    return urlsafe_b64decode(value.encode("ascii") + b"=" * (-len(value) % 4))


def _number(value: Any) -> int:
    return int.from_bytes(_decoded(value))


def discovery_urls(issuer: str) -> tuple[str, str]:
    """Where an issuer describes itself: OpenID Connect appends, RFC 8414 inserts."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    return (
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{path}",
    )


def jwks_uri(document: bytes, issuer: str) -> str:
    """The address of the keys in a discovery document, which must be this issuer's own. Raises InvalidKeys."""
    try:
        described = exact.read(document)
    except exact.Ambiguous as error:
        raise InvalidKeys(f"the discovery document is {error}") from None
    if not isinstance(described, dict) or described.get("issuer") != issuer:
        raise InvalidKeys(f"the discovery document is not that of {issuer}")
    uri = described.get("jwks_uri")
    if not isinstance(uri, str):
        raise InvalidKeys("the discovery document has no jwks_uri")
    return uri


async def discover(issuer: str, fetch: Fetch) -> KeySet:
    """The keys of an issuer, by way of its discovery document. Raises FetchFailed, InvalidKeys."""
    first, second = discovery_urls(issuer)
    try:
        document = await fetch(first)
    except FetchFailed as error:
        try:
            document = await fetch(second)
        except FetchFailed:
            raise error from None
    return read_jwks(await fetch(jwks_uri(document, issuer)))


def key_ring(
    issuer: policy.Issuer,
    *,
    fetch: Fetch,
    clock: Callable[[], float],
) -> "KeyRing":
    """The keys of an issuer from where its configuration says that they are."""
    if issuer.jwks_file is not None or issuer.secret_file is not None:
        load = _from_file(issuer.jwks_file or issuer.secret_file or "", read_jwks if issuer.jwks_file else read_secret)
        return KeyRing(load, clock=clock, refresh=1.0, cooldown=1.0, stale=issuer.stale)

    async def load_url() -> KeySet:
        if issuer.jwks_url is not None:
            return read_jwks(await fetch(issuer.jwks_url))
        return await discover(issuer.issuer, fetch)

    return KeyRing(load_url, clock=clock, refresh=issuer.refresh, stale=issuer.stale)


def _from_file(path: str, read: Callable[[bytes], KeySet]) -> Callable[[], Awaitable[KeySet]]:
    file = WatchedFile(path, clock=lambda: 0.0, interval=0.0)
    last: tuple[bytes, KeySet] | None = None

    async def load() -> KeySet:
        nonlocal last
        try:
            content = await asyncio.to_thread(file.content)
            if file.error:
                raise InvalidKeys(file.error)
            if last is None or last[0] is not content:
                last = content, read(content)
        except Unreadable as error:
            raise InvalidKeys(str(error)) from None
        except InvalidKeys as error:
            raise InvalidKeys(f"{path}: {error}") from None
        return last[1]

    return load


class Unavailable(Exception):
    """Nobody can say right now which keys are good."""


class KeyRing:
    """The keys of one issuer, kept fresh.

    `load` gives a new set or raises FetchFailed, InvalidKeys or OSError. `keys` stays the same object as long as the
    keys are the same, so what was verified can be remembered together with it. Run `run()` as a task; without it keys
    are only fetched on demand.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[KeySet]],
        *,
        clock: Callable[[], float],
        refresh: float = 300.0,
        stale: float = 86400.0,
        cooldown: float = 5.0,
    ) -> None:
        self.error = ""
        self.keys: KeySet | None = None
        self.fetches = 0
        self._load = load
        self._clock = clock
        self._refresh = refresh
        self._stale = stale
        self._cooldown = cooldown
        self._loaded_at = 0.0
        self._began_at: float | None = None
        self._ended = 0
        self._fetch: asyncio.Task[None] | None = None
        self._waiting = 0

    def current(self) -> KeySet | None:
        """The last good set; None before the first, and when it is older than is safe."""
        if self.keys is not None and self._clock() - self._loaded_at > self._refresh + self._stale:
            return None
        return self.keys

    async def look_for(self, kid: str | None) -> bool:
        """Whether there is a key with this id, when memory says that there is none. Raises Unavailable.

        All who wait share one fetch. When the one that is under way does not bring the key, another follows: it may
        have read the keys before this one was published.
        """
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many requests wait for the issuer's keys")
        wanted = self.fetches + 1
        self._waiting += 1
        try:
            while (keys := self.current()) is None or not keys.named(kid):
                if self._ended >= wanted:
                    if self.error:
                        raise Unavailable(self.error)
                    return False
                await asyncio.shield(self._fetching())
        finally:
            self._waiting -= 1
        return True

    async def run(self) -> None:
        """Fetches for ever."""
        while True:
            await asyncio.shield(self._fetching())
            await asyncio.sleep(self._cooldown if self.error else self._refresh)

    async def aclose(self) -> None:
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.gather(self._fetch, return_exceptions=True)

    def _fetching(self) -> asyncio.Task[None]:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.create_task(self._fetch_once())
        return self._fetch

    async def _fetch_once(self) -> None:
        if self._began_at is not None:
            await asyncio.sleep(max(0.0, self._began_at + self._cooldown - self._clock()))
        self._began_at = self._clock()
        self.fetches += 1
        try:
            keys = await self._load()
        except (FetchFailed, InvalidKeys, OSError) as error:
            self.error = str(error)
            return
        finally:
            self._ended = self.fetches
        self.error = ""
        self._loaded_at = self._clock()
        if self.keys is None or self.keys.thumbprints != keys.thumbprints:
            self.keys = keys
