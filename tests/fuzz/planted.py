"""Bugs to be found: each breaks a parser the way that parsers of others have been broken."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from fairway.mcp import sse
from fairway.proxy import envelope, reader


@dataclass(frozen=True)
class Bug:
    """What it does to a parser, and which target must notice."""

    target: str
    plant: Callable[[], None]


def _replace(holder: Any, name: str, by: Any) -> None:
    getattr(holder, name)  # what is called otherwise by now cannot be broken under its old name
    setattr(holder, name, by)


def _duplicates_by_the_letter() -> None:
    """Members are compared as they are written, so that name and Name pass side by side."""

    def check(pairs: Iterable[tuple[str, Any]], _: Any, where: str) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise envelope.Unreadable(envelope.ErrorCode.INVALID_REQUEST, f"{where}{key} is there twice")
            seen.add(key)

    _replace(envelope, "_check_names", check)


def _trusts_the_fast_reader() -> None:
    """Nobody counts whether the members that were read are all there are: the last of two wins."""
    _replace(envelope, "_covers", lambda *_: True)


def _forgets_the_limit() -> None:
    """The size of chunks is not added up."""

    class Forgetful(reader.RequestReader):
        def on_body(self, piece: bytes) -> None:
            self._size = 0
            super().on_body(piece)

    _replace(reader, "RequestReader", Forgetful)


def _keeps_headers_of_the_connection() -> None:
    """What a Connection header names is passed on all the same."""
    _replace(reader, "without_named", lambda lines, _: lines)


def _takes_any_encoding() -> None:
    """A transfer encoding counts as chunked if the last one of several is."""
    check = reader.RequestReader._check_http

    def lenient(self: Any, request: Any) -> Any:
        request.repeated = tuple(name for name in request.repeated if name != b"transfer-encoding")
        refusal = check(self, request)
        if request.headers.get(b"transfer-encoding"):
            request.repeated += (b"transfer-encoding",)
        return refusal

    _replace(reader.RequestReader, "_check_http", lenient)


def _forgets_where_it_was() -> None:
    """A blank line that comes in two pieces is not seen."""

    class Forgetful(sse.EventSplitter):
        def feed(self, data: bytes) -> list[bytes]:
            self._searched = len(self._buffer)
            return super().feed(data)

    _replace(sse, "EventSplitter", Forgetful)


def _splits_the_last_line_end() -> None:
    """A line feed after a carriage return is a line end of its own, though it comes late."""

    class Forgetful(sse.EventSplitter):
        def feed(self, data: bytes) -> list[bytes]:
            if self._after_cr:
                data = data.removeprefix(b"\n")
            return super().feed(data)

    _replace(sse, "EventSplitter", Forgetful)


BUGS: Final[dict[str, Bug]] = {
    "duplicates-by-the-letter": Bug("jsonrpc", _duplicates_by_the_letter),
    "trusts-the-fast-reader": Bug("jsonrpc", _trusts_the_fast_reader),
    "forgets-the-limit": Bug("http", _forgets_the_limit),
    "keeps-headers-of-the-connection": Bug("http", _keeps_headers_of_the_connection),
    "takes-any-encoding": Bug("http", _takes_any_encoding),
    "forgets-where-it-was": Bug("events", _forgets_where_it_was),
    "splits-the-last-line-end": Bug("events", _splits_the_last_line_end),
}
