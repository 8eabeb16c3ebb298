"""One HTTP request of a client, as far as the proxy cares about it."""

from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fairway.proxy.answers import Answer, Refusal
from fairway.proxy.middleware.headers import PASSED

if TYPE_CHECKING:
    from fairway.proxy.endpoints import Pin
    from fairway.proxy.envelope import Envelope
    from fairway.proxy.middleware.principal import Principal
    from fairway.proxy.middleware.trace import Trace
    from fairway.proxy.pipeline import Policy
    from fairway.proxy.routes import LiveRoute


class Fate(IntEnum):
    """What becomes of a client's header."""

    READ = 0
    """It is read here, and goes no further."""
    READ_AND_PASSED = 1
    PASSED = 2


FATE: Final[Mapping[bytes, Fate]] = {
    **dict.fromkeys(PASSED, Fate.PASSED),
    **dict.fromkeys(
        (b"accept", b"content-type", b"mcp-method", b"mcp-name", b"mcp-protocol-version"), Fate.READ_AND_PASSED
    ),
    **dict.fromkeys(
        (
            # these speak of one connection, not of the message
            b"connection",
            b"keep-alive",
            b"proxy-connection",
            b"te",
            b"trailer",
            b"transfer-encoding",
            b"upgrade",
            b"http2-settings",
            b"expect",
            # these the proxy writes itself
            b"content-length",
            b"content-encoding",
            b"accept-encoding",
            b"host",
            b"origin",
            b"mcp-session-id",  # clients know a sealed one
            b"traceparent",
            b"tracestate",
            # these are the client's credentials for the proxy: never for the server
            b"authorization",
            b"proxy-authorization",
            b"cookie",
            # these browsers ask with
            b"access-control-request-method",
            b"access-control-request-headers",
        ),
        Fate.READ,
    ),
}
"""Of the headers that every route treats alike. About all others the policy decides, which rarely lets one through."""


_LASTING: Final = (b"authorization", b"mcp-session-id")
"""Headers by which an open stream is judged and written down."""
_SHORT: Final = 128
"""Bytes of a value that is remembered: those that come again and again are short, and others may not fill memory."""


@lru_cache(maxsize=1024)
def _read(value: bytes) -> str:
    return value.strip().decode("latin-1")


class Request:
    """Filled by the parser, then by the decision about it. What most requests leave alone is not set on each."""

    url = b""
    path = b""
    query = b""
    method = b""
    body = b""
    peer = ""
    keep_alive = True
    http10 = False
    repeated: tuple[bytes, ...] = ()
    """Names of the headers that are read here and came more than once."""
    others: "list[tuple[bytes, bytes]] | None" = None
    """Headers that only the policy can decide about: the name in lower case, and the line."""
    route: "LiveRoute | None" = None
    policy: "Policy | None" = None
    """The settings that it is judged by to its end, though a reload may bring others meanwhile."""
    principal: "Principal | None" = None
    """Who sent it; None until that is settled."""
    refusal: Refusal | Answer | None = None
    """What it is answered instead of being passed on."""
    label = "other"
    """The method as metrics know it."""
    envelope: "Envelope | None" = None
    name = ""
    """What it acts on: the tool, the prompt, the resource."""
    request_id = b""
    """The JSON-RPC id, raw; empty where there is none."""
    pin: "Pin | None" = None
    """The one server that may answer it."""
    upstream_session = b""
    """The server's own name for the session."""
    legacy = False
    """Whether it came to a route that clients are served the old HTTP+SSE transport at."""
    target = b""
    """Path and query at the server, where they are not those of its endpoint."""
    sealed = b""
    """The client's own name for the session, once it was found to be good."""
    opens_session = False
    endless = False
    """Whether the answer is a stream that ends only when somebody hangs up."""
    charged = 0
    """Bytes of the body that count against the listener's budget."""
    rewrite = False
    """Whether lists in the answer are rewritten."""
    answer_lines = b""
    """Header lines for the answer, whoever gives it."""
    trace: "Trace | None" = None
    code = 0
    """The JSON-RPC error that the proxy answered with."""
    detail = ""
    """Why, for the audit log alone."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        """Values of the headers that are read here, by name in lower case."""
        self.lines: list[bytes] = []
        """Header lines to pass on, each with its line end."""

    def text(self, name: bytes) -> str | None:
        """A header that was read, without the spaces around it."""
        value = self.headers.get(name)
        if value is None:
            return None
        return _read(value) if len(value) < _SHORT else value.strip().decode("latin-1")

    def slim(self) -> None:
        """Lets go of what nobody asks for once the server has it: a stream may be open for hours, next to thousands."""
        kept = self.headers
        self.headers = {name: kept[name] for name in _LASTING if name in kept}
        self.lines, self.others = [], None

    def drop_lines(self, name: bytes) -> None:
        prefix = name + b":"
        self.lines = [line for line in self.lines if line[: len(prefix)].lower() != prefix]
