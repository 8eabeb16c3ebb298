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
    """Filled by the parser, then by the decision about it."""

    __slots__ = (
        "body",
        "endless",
        "headers",
        "http10",
        "keep_alive",
        "label",
        "lines",
        "method",
        "opens_session",
        "path",
        "policy",
        "query",
        "refusal",
        "repeated",
        "request_id",
        "rewrite",
        "route",
        "session_id",
        "url",
    )

    def __init__(self) -> None:
        self.url = b""
        self.path = b""
        self.query = b""
        self.method = b""
        self.headers: dict[bytes, bytes] = {}
        """Values of the headers that are read here, by name in lower case."""
        self.repeated: list[bytes] = []
        """Names of those that came more than once."""
        self.lines: list[bytes] = []
        """Header lines to pass on, each with its line end."""
        self.body = b""
        self.keep_alive = True
        self.http10 = False
        self.route: LiveRoute | None = None
        self.policy: Policy | None = None
        """The settings that it is judged by to its end, though a reload may bring others meanwhile."""
        self.refusal: Refusal | None = None
        """Why it will not be passed on; decided on its head alone."""
        self.label = "other"
        """The method as metrics know it."""
        self.request_id = b""
        """The JSON-RPC id, raw; empty where there is none."""
        self.session_id = b""
        self.opens_session = False
        self.endless = False
        """Whether the answer is a stream that ends only when somebody hangs up."""
        self.rewrite = False
        """Whether lists of tools in the answer are rewritten."""

    def text(self, name: bytes) -> str | None:
        """A header that was read, without the spaces around it."""
        value = self.headers.get(name)
        return None if value is None else value.strip().decode("latin-1")

    def drop_lines(self, name: bytes) -> None:
        prefix = name + b":"
        self.lines = [line for line in self.lines if line[: len(prefix)].lower() != prefix]
