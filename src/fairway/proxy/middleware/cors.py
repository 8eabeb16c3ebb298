"""Cross-origin requests: what browsers want to be told before and after a web page talks to the server. Pure."""

import re
from typing import Final

from fairway.api import policy
from fairway.mcp.protocol import Header
from fairway.proxy.answers import Answer

METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")
_REQUEST_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "content-type",
        "traceparent",
        "tracestate",
        *(header.value.lower() for header in Header),
    }
)
_EXPOSED: Final = ", ".join((Header.SESSION_ID.value, Header.PROTOCOL_VERSION.value, "WWW-Authenticate", "Retry-After"))
_PARAM: Final = re.compile(r"mcp-param-[a-z0-9_.~-]{1,128}")
_MAX_HEADERS: Final = 64


class Cors:
    """Answers preflight requests, and gives the headers that let a page read what it asked for.

    Only origins in the configuration get any: a page from elsewhere may be let in (it is on this machine), but no other
    page is helped. Credentials are never allowed: MCP clients send tokens, and cookies mean nothing here.
    """

    def __init__(self, config: policy.Cors) -> None:
        self._every = "*" in config.allowed_origins
        self._answers = {origin: _granted(origin) for origin in config.allowed_origins if origin != "*"}
        self._max_age = str(config.max_age)

    def headers(self, origin: str | None) -> tuple[tuple[str, str], ...]:
        """For every answer to a request, refusals included: without them the page cannot read why."""
        if origin is None:
            return _VARY if self._answers else ()
        granted = self._answers.get(origin)
        if granted is not None:
            return granted
        return _EVERY if self._every else _VARY

    def preflight(self, origin: str | None, method: str | None, requested: str | None) -> Answer | None:
        """The answer to OPTIONS with this Origin and these Access-Control-Request-*; None if it is no preflight."""
        if origin is None or method is None:
            return None
        if not self._every and origin not in self._answers:
            return Answer(403, _VARY)
        names = [name.strip().lower() for name in (requested or "").split(",") if name.strip()]
        if method not in METHODS or len(names) > _MAX_HEADERS:
            return Answer(403, self.headers(origin))
        allowed = sorted(_REQUEST_HEADERS | {name for name in names if _PARAM.fullmatch(name)})
        return Answer(
            204,
            (
                *self.headers(origin),
                ("Access-Control-Allow-Methods", ", ".join(METHODS)),
                ("Access-Control-Allow-Headers", ", ".join(allowed)),
                ("Access-Control-Max-Age", self._max_age),
            ),
        )


_VARY: Final = (("Vary", "Origin"),)
_EVERY: Final = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", _EXPOSED))


def _granted(origin: str) -> tuple[tuple[str, str], ...]:
    return (("Access-Control-Allow-Origin", origin), ("Access-Control-Expose-Headers", _EXPOSED), *_VARY)
