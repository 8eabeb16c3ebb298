"""The policy part of RunConfig: who may come in, what they may do, how often, and what is written down about it.

Secrets and keys are named by file path, never by value; the proxy re-reads the files when they change. Unknown fields
are refused: a rule that this proxy does not understand must not be ignored.
"""

import re
from itertools import pairwise
from typing import Annotated, Final, Literal

import msgspec

# in patterns: `$` alone also matches before a line end, which must never get into a header or a request line
FilePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\x00]+$(?!\n)", max_length=4096)]
Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]+$(?!\n)", max_length=2048)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Scope = Annotated[str, msgspec.Meta(pattern=r"^[!#-\[\]-~]+$(?!\n)", max_length=256)]
HeaderName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$(?!\n)", max_length=255)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448",
    "HS256", "HS384", "HS512",
]  # fmt: skip
"""Signature algorithms that can be allowed at all; those with a shared secret only where a secret file is given."""

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to one connection and never travel through a proxy."""

FRAMING: Final = HOP_BY_HOP | {"content-length", "expect", "host"}
"""Headers that nobody but the proxy itself may write, as they decide where a message begins, ends and goes."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """Base of every part of the contract."""


class Fetch(Struct, frozen=True, kw_only=True):
    """How far the proxy may reach when it fetches from a URL that somebody configured."""

    allow_private: bool = False
    """Admits private address ranges. Loopback, link-local and metadata addresses stay refused."""
    allow_loopback: bool = False
    allow_http: bool = False
    ca_file: FilePath | None = None
    """Authorities for https instead of the system's."""
    token_file: FilePath | None = None
    """Sent as a bearer token, for key endpoints that want to know who asks (the Kubernetes API server's does)."""


NO_FETCH_OPTIONS: Final = Fetch()


class Issuer(Struct, frozen=True, kw_only=True):
    """One issuer of JWTs. Its keys come from exactly one place; with none given, from its discovery document."""

    issuer: Url
    """Compared with `iss` character by character."""
    audiences: tuple[Word, ...] = ()
    """One of these must be in `aud`; empty means the route's resource URLs."""
    jwks_file: FilePath | None = None
    jwks_url: Url | None = None
    secret_file: FilePath | None = None
    """A shared secret of at least 32 bytes: the only way to allow the HS algorithms, and then no other."""
    algorithms: tuple[Algorithm, ...] = ()
    """Empty means all that fit the issuer's kind of key."""
    prefix: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Goes before subject and groups, so that two issuers can never name the same client."""
    subject_claim: Word = "sub"
    groups_claim: Word = "groups"
    refresh: Seconds = 300.0
    """How often keys are fetched again when nothing else asks for it."""
    stale: Annotated[float, msgspec.Meta(gt=0, le=30 * 86400)] = 86400.0
    """How long the last good keys serve while the place they come from cannot be reached."""
    fetch: Fetch = NO_FETCH_OPTIONS

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.jwks_file, self.jwks_url, self.secret_file)) > 1:
            raise ValueError("set at most one of jwksFile, jwksUrl and secretFile")
        shared = [name for name in self.algorithms if name.startswith("HS")]
        if self.secret_file is None and shared:
            raise ValueError(f"algorithms: {shared[0]} needs a secretFile")
        if self.secret_file is not None and len(shared) != len(self.algorithms):
            raise ValueError("algorithms: a secretFile goes with HS256, HS384 and HS512 only")
        for url in (self.issuer, self.jwks_url):
            if url is not None and url.startswith("http://") and not self.fetch.allow_http and self._fetched(url):
                raise ValueError(f"{url}: use https, or set fetch.allowHttp")

    def _fetched(self, url: str) -> bool:
        return url == self.jwks_url or (self.jwks_url is None and self.jwks_file is None and self.secret_file is None)


class TokenReview(Struct, frozen=True, kw_only=True):
    """Tokens that the Kubernetes API server is asked about."""

    issuer: Annotated[str, msgspec.Meta(max_length=2048)] = ""
    """Only JWTs that name this issuer are sent to it; empty sends all that no other issuer is configured for."""
    audiences: tuple[Word, ...] = ()
    """The API server must confirm one of these; empty means the route's resource URLs."""
    prefix: Annotated[str, msgspec.Meta(max_length=256)] = ""
    cache: Annotated[float, msgspec.Meta(ge=0, le=600)] = 10.0
    """Seconds for which an answer is believed without asking again."""


class Authentication(Struct, frozen=True, kw_only=True):
    """Who may come in. A token that is presented must be good, even where `anonymous` admits those without one."""

    resources: tuple[Url, ...] = ()
    """The URLs that clients use for this route, the canonical one first: what tokens must be issued for."""
    issuers: tuple[Issuer, ...] = ()
    token_review: TokenReview | None = None
    anonymous: bool = False
    """Lets requests without a token in, as the client `anonymous`."""
    required_scopes: tuple[Scope, ...] = ()
    scopes_supported: tuple[Scope, ...] = ()
    """What the metadata document offers; empty means the required ones."""
    authorization_servers: tuple[Url, ...] = ()
    """Where the metadata document sends clients; empty means the issuers."""
    leeway: Annotated[float, msgspec.Meta(ge=0, le=300)] = 30.0
    """Seconds by which clocks may differ."""
    max_token: Annotated[int, msgspec.Meta(ge=512, le=65536)] = 16384
    """Bytes of the longest token that is looked at."""

    def __post_init__(self) -> None:
        if not self.issuers and self.token_review is None and not self.anonymous:
            raise ValueError("set issuers or tokenReview, or say anonymous: true")
        names = [issuer.issuer for issuer in self.issuers]
        if len(set(names)) != len(names):
            raise ValueError("issuers: two have the same issuer")
        audiences = [issuer.audiences for issuer in self.issuers]
        prefixes = [issuer.prefix for issuer in self.issuers]
        if self.token_review is not None:
            audiences.append(self.token_review.audiences)
            prefixes.append(self.token_review.prefix)
        if not self.resources and not all(audiences):
            raise ValueError("set resources, or audiences for every issuer: a token must be issued for this server")
        for shorter, longer in pairwise(sorted(prefixes)):
            if longer.startswith(shorter):
                raise ValueError(
                    f"prefixes {shorter!r} and {longer!r}: with more than one source of identities, none may begin "
                    "with another's, else one issuer could name a client of the other"
                )


class Authorization(Struct, frozen=True, kw_only=True):
    """What each client may do, in Cedar. Nothing that no policy permits is allowed."""

    policies: tuple[Annotated[str, msgspec.Meta(max_length=1 << 20)], ...] = ()
    """Texts, each with one or more policies."""
    policy_files: tuple[FilePath, ...] = ()
    entities_file: FilePath | None = None
    """Cedar entities in JSON: groups of tools, attributes of clients."""


class Bucket(Struct, frozen=True, kw_only=True):
    """`tokens` requests at once, and as many again in each `per` seconds, evenly."""

    tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    per: Seconds = 60.0


class ToolLimit(Struct, frozen=True, kw_only=True):
    """Limits on calls of one tool, by the name that clients use."""

    tool: Word
    shared: Bucket | None = None
    """For all clients together."""
    principal: Bucket | None = None
    """For each client."""


class RateLimit(Struct, frozen=True, kw_only=True):
    """How often. Every limit that applies must have room. Each proxy replica counts for itself."""

    shared: Bucket | None = None
    """All requests of all clients to this server."""
    principal: Bucket | None = None
    """All requests of one client."""
    tools: tuple[ToolLimit, ...] = ()
    max_principals: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)] = 10_000
    """Clients counted one by one at the same time; those beyond share one bucket."""

    def __post_init__(self) -> None:
        names = [limit.tool for limit in self.tools]
        if len(set(names)) != len(names):
            raise ValueError("tools: two limits name the same tool")


_ORIGIN: Final = re.compile(r"https?://[a-z0-9.\-\[\]:]+|\*")


class Cors(Struct, frozen=True, kw_only=True):
    """Which web pages may talk to the server, and which names it answers to."""

    allowed_origins: tuple[Annotated[str, msgspec.Meta(max_length=512)], ...] = ()
    """scheme://host[:port] in lower case, as browsers send it. `*` admits every page: for servers without secrets."""
    allowed_hosts: tuple[Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9.\-\[\]:*]+$(?!\n)", max_length=255)], ...] = ()
    """Names (without port) that the Host header may have; `*.example.org` admits its subdomains; empty admits all."""
    max_age: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 600

    def __post_init__(self) -> None:
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"allowedOrigins: {origin!r} is not scheme://host[:port] in lower case")


class Audit(Struct, frozen=True, kw_only=True):
    """One JSON line for each request."""

    file: FilePath | None = None
    """None writes to standard output."""
    arguments: bool = False
    """Whether the arguments of calls are written too."""
    redact: tuple[Word, ...] = ()
    """Names of arguments whose values are never written, at any depth and in any case."""
    queue: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 10_000
    """Lines that may wait to be written; what comes on top is dropped and counted."""


class SetHeader(Struct, frozen=True, kw_only=True):
    """One header of every request to the server, whatever the client sent. Exactly one of `value`, `value_file`."""

    name: HeaderName
    value: Annotated[str, msgspec.Meta(pattern=r"^[ -~]*$(?!\n)", max_length=8192)] | None = None
    value_file: FilePath | None = None
    prefix: Annotated[str, msgspec.Meta(pattern=r"^[ -~]*$(?!\n)", max_length=64)] = ""
    """Goes before the content of the file, such as "Bearer "."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.value_file is None):
            raise ValueError(f"{self.name}: set exactly one of value and valueFile")
        if self.name.lower() in FRAMING:
            raise ValueError(f"{self.name}: this header belongs to the connection and cannot be set")


class Headers(Struct, frozen=True, kw_only=True):
    """What of a client's headers reaches the server. Its credentials and claims of identity never do."""

    set: tuple[SetHeader, ...] = ()
    forward: tuple[HeaderName, ...] = ()
    """Client headers that pass besides those of HTTP content and of MCP."""

    def __post_init__(self) -> None:
        names = [header.name.lower() for header in self.set]
        if len(names) != len({*names}):
            raise ValueError("set: a header is there twice")
        for name in self.forward:
            if name.lower() in FRAMING or name.lower() in NEVER_FORWARDED:
                raise ValueError(f"forward: {name} never passes")


NEVER_FORWARDED: Final = frozenset({"authorization", "cookie", "cookie2"})
"""The client's own credentials: MCP forbids to pass them on, whoever asks for it."""


class Sessions(Struct, frozen=True, kw_only=True):
    """Sealed session ids: any replica serves any session without a store."""

    key_files: tuple[FilePath, ...] = ()
    """32 random bytes each, raw, in hex or in base64. The first seals, all open. None: a key of this process alone."""
    lifetime: Seconds = 86400.0


class Policy(Struct, frozen=True, kw_only=True):
    """All of it, for one route."""

    authentication: Authentication | None = None
    authorization: Authorization | None = None
    rate_limit: RateLimit | None = None
    cors: Cors = Cors()
    audit: Audit | None = None
    headers: Headers = Headers()
    sessions: Sessions = Sessions()


NO_POLICY: Final = Policy()
"""Everybody may do everything. This very object: a policy that only equals it is written into a RunConfig as {}."""
