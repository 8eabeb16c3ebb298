"""What a proxy does with requests besides asking who sends them: how often, how long, how large, and what is noted."""

from typing import Annotated

from pydantic import Field

from fairway.api.access import Word
from fairway.api.duration import Duration, seconds_of
from fairway.api.policy import FRAMING, NEVER_FORWARDED
from fairway.api.quantity import Quantity, value_of
from fairway.api.schema import Cel, ListMap, ListSet, Model
from fairway.api.source import HeaderName, SecretKey

ClientName = Annotated[str, Field(min_length=1, max_length=128)]

MAX_SECONDS = 86400
_NEVER = FRAMING | NEVER_FORWARDED
MIN_BODY = 1024
MAX_BODY = 1 << 30


def _within(field: str, attribute: str, *, of: str, most: int = MAX_SECONDS) -> Cel:
    """A duration above nothing, and of a day at most."""

    def holds(model: Model) -> bool:
        text = getattr(model, attribute)
        return text is None or 0 < seconds_of(text) <= most

    return Cel(
        f"!has(self.{field}) || (duration(self.{field}) > duration('0s') "
        f"&& duration(self.{field}) <= duration('{most}s'))",
        f"{of}.{field}: more than 0, and a day (24h) at most",
        holds,
    )


class Bucket(Model):
    """So many requests at once, and as many again in each period, evenly."""

    cel_rules = (_within("per", "per", of="rateLimit"),)

    requests: Annotated[int, Field(ge=1, le=1_000_000)]
    """How many."""
    per: Duration = "60s"
    """The period."""


def _some_limit(what: str) -> Cel:
    return Cel(
        "has(self.shared) || has(self.perClient)" + (" || has(self.tools)" if what == "rateLimit" else ""),
        f"{what}: set shared, perClient or both" if what != "rateLimit" else f"{what}: set shared, perClient or tools",
        lambda limit: (
            limit.shared is not None or limit.per_client is not None or getattr(limit, "tools", None) is not None
        ),
    )


class ToolLimit(Model):
    """Limits on calls of one tool."""

    cel_rules = (_some_limit("tools"),)

    name: ClientName
    """The tool, by the name that clients use."""
    shared: Bucket | None = None
    """For all clients together."""
    per_client: Bucket | None = None
    """For each client."""


class RateLimit(Model):
    """How often. Every limit that applies must have room; each proxy counts for itself."""

    cel_rules = (_some_limit("rateLimit"),)

    shared: Bucket | None = None
    """All requests of all clients."""
    per_client: Bucket | None = None
    """All requests of one client. Without `auth`, all clients are one."""
    tools: Annotated[list[ToolLimit], ListMap(("name",)), Field(max_length=256)] | None = None
    """Calls of single tools."""


class Audit(Model):
    """One line of JSON for each request, in the log of the proxy."""

    enabled: bool = True
    """Whether they are written."""
    arguments: bool = False
    """Whether the arguments of calls are written too."""
    redact: Annotated[list[Word], ListSet(), Field(max_length=256)] | None = None
    """Names of arguments whose values are never written, at any depth and in any case."""


class Cors(Model):
    """Which web pages may talk to the server, and which names it answers to."""

    cel_rules = (
        Cel(
            "!has(self.maxAge) || duration(self.maxAge) <= duration('86400s')",
            "cors.maxAge: a day (24h) at most",
            lambda cors: cors.max_age is None or seconds_of(cors.max_age) <= MAX_SECONDS,
        ),
    )

    allowed_origins: (
        Annotated[
            list[Annotated[str, Field(max_length=512, pattern=r"^(https?://[a-z0-9.\-\[\]:]+|\*)$")]],
            ListSet(),
            Field(max_length=64),
        ]
        | None
    ) = None
    """scheme://host[:port] in lower case, as browsers send it; `*` admits every page: for servers without secrets."""
    allowed_hosts: (
        Annotated[
            list[Annotated[str, Field(max_length=255, pattern=r"^[a-z0-9.\-\[\]:*]+$")]],
            ListSet(),
            Field(max_length=64),
        ]
        | None
    ) = None
    """Names (without port) that requests may be addressed to; `*.example.org` admits its subdomains; unset: all."""
    max_age: Duration | None = None
    """How long browsers remember an answer; default 10m."""


class Timeouts(Model):
    """How long to wait."""

    cel_rules = tuple(_within(field, field, of="timeouts") for field in ("connect", "call", "idle"))

    connect: Duration | None = None
    """For a connection to the server; default 5s."""
    call: Duration | None = None
    """For the answer to a request; default 300s."""
    idle: Duration | None = None
    """How long an unused connection to the server is kept; default 60s."""


class Limits(Model):
    """How large."""

    cel_rules = (
        Cel(
            f"!has(self.maxBody) || (quantity(string(self.maxBody)).compareTo(quantity('{MIN_BODY}')) >= 0 && "
            f"quantity(string(self.maxBody)).compareTo(quantity('{MAX_BODY}')) <= 0)",
            "limits.maxBody: between 1Ki and 1Gi",
            lambda limits: limits.max_body is None or MIN_BODY <= value_of(limits.max_body) <= MAX_BODY,
        ),
    )

    max_body: Quantity | None = None
    """Bytes of the largest request; default 8Mi."""


class HeaderSource(Model):
    """Where the value of a header comes from."""

    secret_key_ref: SecretKey
    """A key of a Secret; its content is one line of printable text."""


class SetHeader(Model):
    """One header of every request to the server, whatever the client sent."""

    cel_rules = (
        Cel(
            "has(self.value) != has(self.valueFrom)",
            "set exactly one of value and valueFrom",
            lambda header: (header.value is None) != (header.value_from is None),
        ),
        Cel(
            f"!(self.name.lowerAscii() in {sorted(FRAMING)})",
            "this header belongs to the connection and cannot be set",
            lambda header: header.name.lower() not in FRAMING,
        ),
    )

    name: HeaderName
    """Name of the header."""
    value: Annotated[str, Field(max_length=8192, pattern=r"^[ -~]*$")] | None = None
    """The value. Credentials belong into a Secret; see valueFrom."""
    value_from: HeaderSource | None = None
    """Takes the value from a Secret; a change there is in force without a restart."""
    prefix: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] | None = None
    """Goes before the value, such as "Bearer "."""


class Headers(Model):
    """What headers reach the server. A client's own credentials never do."""

    cel_rules = (
        Cel(
            f"!has(self.forward) || self.forward.all(name, !(name.lowerAscii() in {sorted(_NEVER)}))",
            "headers.forward: headers of the connection, Authorization and Cookie never pass",
            lambda headers: all(name.lower() not in _NEVER for name in headers.forward or ()),
        ),
        Cel(
            "!has(self.set) || self.set.all(h, self.set.exists_one(o, o.name.lowerAscii() == h.name.lowerAscii()))",
            "headers.set: a header is there twice",
            lambda headers: len({h.name.lower() for h in headers.set or ()}) == len(headers.set or ()),
        ),
    )

    set: Annotated[list[SetHeader], ListMap(("name",)), Field(max_length=32)] | None = None
    """Headers that the server gets."""
    forward: Annotated[list[HeaderName], ListSet(), Field(max_length=64)] | None = None
    """Headers of the client that pass, besides those of HTTP content and of MCP."""
