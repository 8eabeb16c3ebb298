"""What can go wrong with a request or with an event of a watch, as data."""

import signal
from dataclasses import dataclass
from enum import Enum, auto


class When(Enum):
    """A moment in the life of a request, seen from the wire."""

    BEFORE_SEND = auto()
    """The API server never hears of it."""
    AFTER_SEND = auto()
    """The API server has done it and answered; the client has not got a byte of the answer."""
    AFTER_HEADERS = auto()
    MID_BODY = auto()
    AFTER_RESPONSE = auto()
    """The client has been sent everything."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An error in the API server's own form. With `after_send` the server has done what was asked, and only the
    answer is another one: what a timeout in front of it looks like."""

    status: int
    reason: str
    message: str = "made up by the fault proxy"
    retry_after: int | None = None
    after_send: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection ends with a TCP reset."""

    when: When = When.BEFORE_SEND


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more is sent, and the connection stays open."""

    when: When = When.BEFORE_SEND


@dataclass(frozen=True, slots=True)
class Trickle:
    """The answer comes, slowly."""

    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Delay:
    """The request travels for that long before the API server hears of it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """The request waits in the network until `FaultProxy.release(gate)`, and arrives even if its sender is gone."""

    gate: str = "gate"


@dataclass(frozen=True, slots=True)
class StaleList:
    """A list, or the initial events of a watch, as they were `revisions` revisions of the cluster ago, or `at` one.

    If the API server's history does not reach back that far, as old as it can be. For `frozen` seconds no watch that
    continues from there delivers anything: the view stays old.
    """

    revisions: int = 0
    frozen: float = 0.0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """The client's process (`FaultProxy.client_pid`) gets a signal.

    A killed client's request goes no further than `when` says. A stopped client's does, at once or, with a gate,
    after `FaultProxy.release`.
    """

    number: signal.Signals
    when: When
    gate: str = ""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these, by the dice of the rule."""

    actions: "tuple[RequestAction, ...]"


RequestAction = Answer | Reset | Hang | Trickle | Delay | Hold | StaleList | Signal | OneOf


@dataclass(frozen=True, slots=True)
class Drop:
    """The event is never delivered."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The event comes twice."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """The event, and with it everything behind it, comes later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Corrupt:
    """The line of the event is cut in its middle: no JSON."""


@dataclass(frozen=True, slots=True)
class Swap:
    """The event comes after the one that follows it."""


@dataclass(frozen=True, slots=True)
class InStreamError:
    """An ERROR event comes instead of the event, and the watch ends."""

    status: int = 410
    reason: str = "Expired"
    message: str = "too old resource version (made up by the fault proxy)"


@dataclass(frozen=True, slots=True)
class CloseAfter:
    """The event is delivered, then the watch ends in the normal way."""


@dataclass(frozen=True, slots=True)
class SilentAfter:
    """The event is delivered, then nothing more, and the connection stays open."""


EventAction = Drop | Duplicate | Postpone | Corrupt | Swap | InStreamError | CloseAfter | SilentAfter


def conflict(*, after_send: bool = False) -> Answer:
    return Answer(409, "Conflict", after_send=after_send)


def gone() -> Answer:
    return Answer(410, "Expired")


def too_many_requests(retry_after: int | None = 1) -> Answer:
    return Answer(429, "TooManyRequests", retry_after=retry_after)


def internal_error() -> Answer:
    return Answer(500, "InternalError")


def unavailable() -> Answer:
    return Answer(503, "ServiceUnavailable")


def gateway_timeout(*, after_send: bool = True) -> Answer:
    return Answer(504, "Timeout", after_send=after_send)
