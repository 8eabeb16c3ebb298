"""W3C trace context: which trace a request belongs to, and the header that tells the server so."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_STATE: Final = 512
"""Characters of the longest `tracestate` that is passed on; the recommendation asks for at least that many."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_SOME_TRACE: Final = "0" * 31 + "1"
_SOME_SPAN: Final = "0" * 15 + "1"
_SAMPLED: Final = 1
_KNOWN_FLAGS: Final = 3
"""Sampled, and that the trace id is random: other bits are not ours to pass on."""


@dataclass(slots=True)  # not frozen, as each request makes one, and that would cost three times as much
class Trace:
    """One request's place in a trace; `span_id` is the proxy's own. Never changed."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    flags: int = 0
    state: str = ""

    @property
    def sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """The header for the server: its parent is the proxy."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def lines(self) -> bytes:
        """The headers for the server, each with its line end."""
        line = f"traceparent: 00-{self.trace_id}-{self.span_id}-{self.flags:02x}\r\n"
        return (f"{line}tracestate: {self.state}\r\n" if self.state else line).encode("ascii")


class Tracer:
    """Continues the trace that a client began, else begins one.

    A trace that begins here is marked as sampled only if `sampled` says that somebody collects spans: servers follow
    their parent, and a proxy that does not trace must not switch them on.
    """

    def __init__(self, *, sampled: bool = False, bits: Callable[[int], int] | None = None) -> None:
        self._flags = _SAMPLED if sampled else 0
        self._bits = bits or random.Random().getrandbits  # noqa: S311  unique is enough, and the system's is a syscall

    def begin(self, traceparent: str | None, tracestate: str | None = None) -> Trace:
        """What came from the client is used only if it is exactly what the recommendation says."""
        ids = f"{self._bits(192):048x}"
        trace_id, span_id = ids[:32], ids[32:]
        if span_id == _NO_SPAN:
            span_id = _SOME_SPAN
        parent = None if traceparent is None else _parse(traceparent)
        if parent is None:
            return Trace(trace_id if trace_id != _NO_TRACE else _SOME_TRACE, span_id, "", self._flags, "")
        trace_id, parent_id, flags = parent
        return Trace(trace_id, span_id, parent_id, flags, _state(tracestate))


def _parse(traceparent: str) -> tuple[str, str, int] | None:
    match = _PARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or parent_id == _NO_SPAN:
        return None
    return trace_id, parent_id, int(flags, 16) & _KNOWN_FLAGS


def _state(tracestate: str | None) -> str:
    if not tracestate or len(tracestate) > MAX_STATE or not all(" " <= c <= "~" for c in tracestate):
        return ""
    return tracestate
