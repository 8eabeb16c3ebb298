"""Which request headers reach the server, and which the gateway adds.

An allow-list: what is not known to be needed stays behind. So no header of the client can carry its credentials, say
who it is, or change how the connection is read; and the server's own credentials, from files, are never in a log.
"""

from collections.abc import Callable
from typing import Final

from fairway.api import policy
from fairway.mcp.protocol import PARAM_HEADER_PREFIX, Header
from fairway.proxy.answers import Refusal, unavailable
from fairway.proxy.middleware.watched import Unreadable, WatchedFile

PASSED: Final = frozenset(
    name.encode("ascii")
    for name in ("accept", "accept-language", "content-type", "user-agent", *(h.value.lower() for h in Header))
)
"""Headers of HTTP content and of MCP; `Mcp-Param-*` comes on top. Trace headers are written by the proxy itself."""

_PARAM: Final = PARAM_HEADER_PREFIX.lower().encode()


class Outbound:
    """Decides about a client's headers and adds the gateway's own. `clock` gives seconds that never go back."""

    def __init__(self, config: policy.Headers, *, clock: Callable[[], float]) -> None:
        self._set = tuple(
            (
                f"{header.name}: {header.prefix}".encode("ascii"),
                header.value.encode("ascii")
                if header.value is not None
                else WatchedFile(header.value_file or "", clock=clock),
            )
            for header in config.set
        )
        self.set = frozenset(header.name.lower().encode("ascii") for header in config.set)
        """Names of the gateway's own headers: a client's of the same name never passes."""
        self.forward = frozenset(name.lower().encode("ascii") for name in config.forward) - self.set
        """Names that pass on top of the usual ones."""

    def passes(self, name: bytes) -> bool:
        """Whether a client's header may go on; its name in lower case."""
        return name not in self.set and (name in PASSED or name in self.forward or name.startswith(_PARAM))

    def added(self) -> list[bytes] | Refusal:
        """Lines that the gateway adds. A credential that cannot be read is a refusal: without it, the server would
        see somebody else.
        """
        lines = []
        for start, source in self._set:
            if isinstance(source, bytes):
                lines.append(start + source + b"\r\n")
                continue
            try:
                value = source.content().strip()
            except Unreadable as error:
                return unavailable("a credential for the server is missing", retry_after=5, detail=str(error))
            if not value or not is_field_value(value):
                return unavailable(
                    "a credential for the server cannot be used",
                    retry_after=5,
                    detail=f"{source.path} is not one line of printable text",
                )
            lines.append(start + value + b"\r\n")
        return lines


def is_field_value(value: bytes) -> bool:
    """Whether a header can hold it: no line ends, no other control characters."""
    return all(byte == 9 or 32 <= byte != 127 for byte in value)
