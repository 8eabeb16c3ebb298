"""The answers that the proxy gives itself: refusals, always JSON with the reason, and the few that are none."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from fairway.mcp.protocol import ErrorCode, error_body

REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}

Headers = tuple[tuple[str, str], ...]


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


_STATUS_LINES: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, phrase) for status, phrase in REASONS.items()}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not passed on.

    `code` is the HTTP status where JSON-RPC and MCP have no code for the reason: the specification closes its own range
    to everybody else. Nothing in it is secret; `detail` is for the audit log and never sent.
    """

    status: int
    message: str
    code: int = ErrorCode.INVALID_REQUEST
    headers: Headers = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for, though no server was asked."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    content_type: str = "application/json"


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("latin-1")


def render(
    answer: Refusal | Answer,
    *,
    request_id: bytes = b"",
    close: bool,
    http10: bool = False,
    without_body: bool = False,
    more: bytes = b"",
) -> bytes:
    """The whole answer. `request_id` is raw JSON, empty where it is not known; `more` are further header lines."""
    if isinstance(answer, Refusal):
        body = error_body(msgspec.Raw(request_id) if request_id else None, answer.code, answer.message)
        kind = "application/json"
    else:
        body, kind = answer.body, answer.content_type
    # the length of nothing is not told: 204 must not have one
    described = (
        b"" if answer.status == 204 else b"Content-Type: %b\r\nContent-Length: %d\r\n" % (kind.encode(), len(body))
    )
    connection = b"Connection: close\r\n" if close else b"Connection: keep-alive\r\n" if http10 else b""
    head = b"%b%b%b%b%b\r\n" % (status_line(answer.status), described, header_lines(answer.headers), more, connection)
    return head if without_body else head + body


RETRY_SOON: Final[Headers] = (("Retry-After", "1"),)


def unavailable(message: str, *, retry_after: int = 1, detail: str = "") -> Refusal:
    """Something that the decision needs cannot be had right now: neither yes nor no."""
    return Refusal(503, message, 503, (("Retry-After", str(retry_after)),), detail)


def no_endpoint(name: str, why: str) -> Refusal:
    detail = f": {why}" if why else ""
    return Refusal(503, f"no server behind {name} is ready{detail}", ErrorCode.INTERNAL_ERROR, RETRY_SOON)


def bad_gateway(message: str) -> Refusal:
    return Refusal(502, message, ErrorCode.INTERNAL_ERROR)


def timed_out(message: str) -> Refusal:
    return Refusal(504, message, ErrorCode.INTERNAL_ERROR)
