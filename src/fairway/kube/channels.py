"""What Kubernetes sends over a websocket of exec and attach: numbered channels, and how the command ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import orjson

V5: Final = "v5.channel.k8s.io"
"""Since Kubernetes 1.30. Differs from v4 in that one channel can be closed, which is how stdin gets to its end."""
V4: Final = "v4.channel.k8s.io"
PROTOCOLS: Final = (V5, V4)

_CLOSE: Final = 255


class Channel(IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3


class ForeignMessage(Exception):
    """A message that is none of this protocol."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How it ended. `code` is None if there is none to tell: the command never ran, or an attachment was ended."""

    code: int | None
    reason: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0


def write(channel: Channel, data: bytes) -> bytes:
    return channel.to_bytes(1, "big") + data


def end_of(channel: Channel, protocol: str) -> bytes | None:
    """The message that closes our side of a channel; None where the protocol has none."""
    return bytes((_CLOSE, channel)) if protocol == V5 else None


def read(message: bytes) -> tuple[Channel, bytes] | None:
    """The channel and what came on it; None for a message that carries nothing."""
    if not message:
        raise ForeignMessage("a message without a channel")
    number = message[0]
    if number == _CLOSE:
        return None  # the server says that one of its channels has ended, which the exit tells as well
    if number not in (Channel.STDOUT, Channel.STDERR, Channel.ERROR):
        raise ForeignMessage(f"a message on channel {number}")
    return (Channel(number), message[1:]) if len(message) > 1 else None


def read_exit(status: bytes) -> Exit:
    """The exit from the Status object that the error channel carries."""
    try:
        decoded = orjson.loads(status)
    except orjson.JSONDecodeError:
        decoded = None
    if not isinstance(decoded, dict) or decoded.get("status") not in ("Success", "Failure"):
        raise ForeignMessage("the error channel carries no Status")
    if decoded["status"] == "Success":
        return Exit(0)
    reason = str(decoded.get("reason") or "")
    return Exit(_code(decoded) if reason == "NonZeroExitCode" else None, reason, str(decoded.get("message") or ""))


def _code(status: Mapping[str, Any]) -> int | None:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            try:
                return int(cause["message"])
            except (KeyError, TypeError, ValueError):
                break
    raise ForeignMessage("a Status of NonZeroExitCode without an exit code")
