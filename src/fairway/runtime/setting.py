"""What the operator of a controller process can set, and how the text of each value is read."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairway.runtime.endpoints import Address, AddressError
from fairway.runtime.logs import LEVELS
from fairway.runtime.selector import LabelSelector

T_co = TypeVar("T_co", covariant=True)


class InvalidSetting(ValueError):
    """A value that cannot be used; the message says where it stands and what is expected."""


@dataclass(frozen=True, slots=True)
class Setting(Generic[T_co]):
    """One value, under one name everywhere: `--name`, `$PREFIX_NAME`, and `name:` in a file.

    `read` makes it from text, or raises ValueError with a message that goes on after the text itself ("is no ...").
    A `live` setting takes effect when the file changes; the others need a restart.
    """

    name: str
    read: Callable[[str], T_co]
    default: str
    help: str
    metavar: str = "TEXT"
    live: bool = False
    switch: bool = False

    def variable(self, prefix: str) -> str:
        return f"{prefix}_{self.name}".upper().replace("-", "_")


def boolean(text: str) -> bool:
    match text.lower():
        case "true" | "yes" | "on" | "1":
            return True
        case "false" | "no" | "off" | "0":
            return False
    raise ValueError("is neither true nor false")


def whole(*, least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ValueError(f"is no whole number of at least {least}")
        return number

    return read


def rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError("is no number of requests a second; write 50, or 0 for no limit")
    return number


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def duration(*, zero: bool) -> Callable[[str], float]:
    """Seconds, from text such as 5ms, 1.5s or 1h30m; 0 needs no unit."""

    def read(text: str) -> float:
        if _DURATION.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        else:
            seconds = 0.0 if text == "0" else -1.0
        if seconds < 0 or (seconds == 0 and not zero):
            raise ValueError("is no time; write 5ms, 30s or 1h30m" + (", or 0 for none" if zero else ""))
        return seconds

    return read


def address(text: str) -> Address | None:
    if text == "0":
        return None
    try:
        return Address.parse(text)
    except AddressError:
        raise ValueError("is no address to listen on; write host:port, :port, or 0 for none") from None


_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"is no list of namespaces: {name!r} can be the name of none")
    return names


def selector(text: str) -> str:
    try:
        return LabelSelector(text).text
    except ValueError as error:
        raise ValueError(f"is no label selector: {error}") from None


def choice(*known: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"is not one of {', '.join(known)}")
        return text

    return read


METRICS = Setting("metrics-bind-address", address, ":8080", "where /metrics is served; 0 for nowhere", "HOST:PORT")
PROBES = Setting(
    "health-probe-bind-address", address, ":8081", "where /healthz and /readyz are served; 0 for nowhere", "HOST:PORT"
)
LEADER_ELECT = Setting("leader-elect", boolean, "false", "work only while holding the Lease", switch=True)
NAMESPACES = Setting("namespaces", namespaces, "", "watch only these; empty for all", "A,B")
SELECTOR = Setting(
    "selector", selector, "", "work only on objects with these labels; others can still be referred to", "LABELS"
)
LOG_LEVEL = Setting("log-level", choice(*LEVELS), "info", ", ".join(LEVELS), "LEVEL", live=True)
LOG_FORMAT = Setting(
    "log-format", choice("auto", "json", "text"), "auto", "json, text, or auto: text on a terminal", "FORMAT"
)
WORKERS = Setting("workers", whole(least=1), "16", "objects of a kind that are worked on at once", "N", live=True)
BASE_DELAY = Setting("base-delay", duration(zero=False), "5ms", "first wait after a failure", "TIME", live=True)
MAX_DELAY = Setting("max-delay", duration(zero=False), "5m", "longest wait between retries", "TIME", live=True)
QPS = Setting("kube-api-qps", rate, "0", "requests a second to the API server; 0 for no limit", "N", live=True)
BURST = Setting("kube-api-burst", whole(least=1), "100", "requests at once beyond that", "N", live=True)
RESYNC = Setting(
    "resync", duration(zero=True), "0", "look at every object again this often, changed or not; 0 for never", "TIME",
    live=True,
)  # fmt: skip

RUNTIME_SETTINGS: tuple[Setting[object], ...] = (
    METRICS, PROBES, LEADER_ELECT, NAMESPACES, SELECTOR, LOG_LEVEL, LOG_FORMAT, WORKERS, BASE_DELAY, MAX_DELAY, QPS,
    BURST, RESYNC,
)  # fmt: skip
"""What every controller process can be told, whatever it controls."""
