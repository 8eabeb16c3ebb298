"""One HTTP request of a client, as far as the proxy cares about it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fairway.proxy.answers import Refusal

if TYPE_CHECKING:
    from fairway.proxy.pipeline import Policy
    from fairway.proxy.routes import LiveRoute

DROPPED: Final = frozenset(
    {
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
        b"host",
        b"origin",
        # these are the client's credentials for the proxy: never for the server
        b"authorization",
        b"proxy-authorization",
        b"cookie",
    }
)
"""Headers that are read here and not passed on as they are."""

NOTED: Final = frozenset(
    {
        b"accept-encoding",
        b"content-encoding",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"mcp-session-id",
    }
)
"""Headers that are read here and passed on."""

FATE: Final[Mapping[bytes, bool]] = {**dict.fromkeys(DROPPED, False), **dict.fromkeys(NOTED, True)}
"""Whether a header that is read here is passed on; all others are passed on unread."""


class Request:
    """Filled by the parser, then by the decision about it. What most requests leave alone is not set on each."""

    url = b""
    path = b""
    query = b""
    method = b""
    body = b""
    keep_alive = True
    http10 = False
    repeated: tuple[bytes, ...] = ()
    """Names of the headers that are read here and came more than once."""
    route: "LiveRoute | None" = None
    policy: "Policy | None" = None
    """The settings that it is judged by to its end, though a reload may bring others meanwhile."""
    refusal: Refusal | None = None
    """Why it will not be passed on."""
    label = "other"
    """The method as metrics know it."""
    request_id = b""
    """The JSON-RPC id, raw; empty where there is none."""
    session_id = b""
    opens_session = False
    endless = False
    """Whether the answer is a stream that ends only when somebody hangs up."""
    charged = 0
    """Bytes of the body that count against the listener's budget."""
    rewrite = False
    """Whether lists of tools in the answer are rewritten."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        """Values of the headers that are read here, by name in lower case."""
        self.lines: list[bytes] = []
        """Header lines to pass on, each with its line end."""

    def text(self, name: bytes) -> str | None:
        """A header that was read, without the spaces around it."""
        value = self.headers.get(name)
        return None if value is None else value.strip().decode("latin-1")

    def drop_lines(self, name: bytes) -> None:
        prefix = name + b":"
        self.lines = [line for line in self.lines if line[: len(prefix)].lower() != prefix]
