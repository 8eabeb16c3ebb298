"""HTTP requests and responses as handlers see them, and what a client may take."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One whole request. Header names are lower case; a repeated header is one value, joined by commas.

    `path` and `query` are as they were sent: nothing is decoded or normalised.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str]
    body: bytes = b""
    peer: str = ""
    """The address that it came from."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: a body of known length, or pieces that are sent as they come and end with the iterator."""

    status: int = 200
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | AsyncIterator[bytes] = b""


Handler = Callable[[Request], Response | Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may take; whatever exceeds a limit is refused with the status that says so."""

    header_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 8 << 20
    buffered_bytes: int = 128 << 20
    """All unanswered bodies together."""
    connections: int = 4096
    pipelined: int = 8
    header_seconds: float = 10
    body_seconds: float = 60
    idle_seconds: float = 75
    write_seconds: float = 60
    linger_seconds: float = 2
    tick_seconds: float = 1
    """How often deadlines are looked at."""


def refusal(status: int, text: str) -> Response:
    """An answer that says only why there is no other."""
    return Response(status=status, content_type="application/json", body=msgspec.json.encode({"error": text}))


def check_headers(response: Response) -> None:
    for name, value in response.headers:
        if "\r" in value or "\n" in value:
            raise ValueError(f"line break in the value of header {name}")
