"""Which request headers reach the server, and which the gateway adds.

An allow-list: what is not known to be needed stays behind. So no header of the client can carry its credentials, say
who it is, or change how the connection is read; and the server's own credentials, from files, are never in a log.
"""

from collections.abc import Callable, Sequence
from typing import Final

from fairway.api import policy
from fairway.mcp.protocol import PARAM_HEADER_PREFIX, Header
from fairway.proxy.middleware.refusal import Refusal, unavailable
from fairway.proxy.middleware.watched import Unreadable, WatchedFile

Pair = tuple[bytes, bytes]

PASSED: Final = frozenset(
    {"accept", "accept-language", "content-type", "user-agent", *(header.value.lower() for header in Header)}
)
"""Headers of HTTP content and of MCP; `Mcp-Param-*` comes on top. Trace headers are written by the proxy itself."""

_PARAM: Final = PARAM_HEADER_PREFIX.lower().encode()


class Outbound:
    """Turns a client's headers into those for the server. `clock` gives seconds that never go back."""

    def __init__(self, config: policy.Headers, *, clock: Callable[[], float]) -> None:
        self._set = tuple(
            (
                header.name.encode("ascii"),
                header.prefix.encode("ascii"),
                header.value.encode("ascii")
                if header.value is not None
                else WatchedFile(header.value_file or "", clock=clock),
            )
            for header in config.set
        )
        ours = {header.name.lower() for header in config.set}
        self._passed = frozenset(
            name.encode("ascii") for name in (PASSED | {name.lower() for name in config.forward}) - ours
        )
        self._ours = frozenset(name.encode("ascii") for name in ours)

    def passes(self, name: bytes) -> bool:
        """Whether a client's header may go on; its name in lower case."""
        return name in self._passed or (name.startswith(_PARAM) and name not in self._ours)

    def added(self) -> list[Pair] | Refusal:
        """What the gateway adds. A credential that cannot be read is a refusal: without it, the server would see
        somebody else.
        """
        added = []
        for name, prefix, source in self._set:
            if isinstance(source, bytes):
                added.append((name, source))
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
            added.append((name, prefix + value))
        return added

    def headers(self, received: Sequence[Pair]) -> list[Pair] | Refusal:
        """All headers for the server; `received` has names in lower case."""
        added = self.added()
        if isinstance(added, Refusal):
            return added
        named = _named_by_connection(received)
        return [pair for pair in received if self.passes(pair[0]) and pair[0] not in named] + added


def _named_by_connection(received: Sequence[Pair]) -> frozenset[bytes]:
    """What the sender declared to be for this connection only."""
    values = [value for name, value in received if name == b"connection" and value.lower() not in _USUAL]
    return frozenset(token.strip().lower() for value in values for token in value.split(b",")) if values else _NONE


_USUAL: Final = (b"keep-alive", b"close")
_NONE: Final[frozenset[bytes]] = frozenset()


def is_field_value(value: bytes) -> bool:
    """Whether a header can hold it: no line ends, no other control characters."""
    return all(byte == 9 or 32 <= byte != 127 for byte in value)


def without_hop_by_hop(received: Sequence[Pair]) -> list[Pair]:
    """An answer's headers as they may go on to the client; names in lower case."""
    named = _named_by_connection(received)
    return [(name, value) for name, value in received if name not in _HOP_BY_HOP and name not in named]


_HOP_BY_HOP: Final = frozenset(name.encode("ascii") for name in policy.HOP_BY_HOP)
