"""The answers that the proxy gives itself: always JSON, always with the reason."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from fairway.mcp.protocol import ErrorCode, error_body

REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


_STATUS_LINES: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, phrase) for status, phrase in REASONS.items()}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not passed on."""

    status: int
    message: str
    code: int = ErrorCode.INVALID_REQUEST
    headers: bytes = b""
    """More header lines."""


def render(
    refusal: Refusal, *, request_id: bytes = b"", close: bool, http10: bool = False, without_body: bool = False
) -> bytes:
    """The whole answer. `request_id` is raw JSON; empty where it is not known."""
    body = error_body(msgspec.Raw(request_id) if request_id else None, refusal.code, refusal.message)
    connection = b"Connection: close\r\n" if close else b"Connection: keep-alive\r\n" if http10 else b""
    head = b"%bContent-Type: application/json\r\nContent-Length: %d\r\n%b%b\r\n" % (
        status_line(refusal.status),
        len(body),
        refusal.headers,
        connection,
    )
    return head if without_body else head + body


RETRY_SOON: Final = b"Retry-After: 1\r\n"


def no_endpoint(name: str, why: str) -> Refusal:
    detail = f": {why}" if why else ""
    return Refusal(503, f"no server behind {name} is ready{detail}", ErrorCode.INTERNAL_ERROR, RETRY_SOON)


def bad_gateway(message: str) -> Refusal:
    return Refusal(502, message, ErrorCode.INTERNAL_ERROR)


def timed_out(message: str) -> Refusal:
    return Refusal(504, message, ErrorCode.INTERNAL_ERROR)
