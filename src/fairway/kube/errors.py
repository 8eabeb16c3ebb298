"""What the API server can answer instead of yes, typed by who must act."""

import math
from collections.abc import Mapping
from typing import Any

import orjson


class KubeError(Exception):
    """A request that did not succeed. `status` is 0 when no HTTP answer arrived at all."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details or {}
        self.retry_after = retry_after

    def has_cause(self, reason: str) -> bool:
        return any(cause.get("reason") == reason for cause in self._causes)

    def blames(self, field: str) -> bool:
        return any(cause.get("field") == field for cause in self._causes)

    @property
    def _causes(self) -> list[Mapping[str, Any]]:
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.status else self.message


class Refused(KubeError):
    """The server understood and will say the same again: a person must change the object, the policy or the rights."""


class Stale(KubeError):
    """The world is not as the caller thought: look again, then decide anew."""


class Transient(KubeError):
    """Nobody is at fault for long: wait and retry."""


class BadRequest(Refused):
    """400: malformed; for server-side apply mostly a field that the schema does not have."""


class Unauthorized(Refused):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(Refused):
    """403: RBAC, quota, pod security or another admission policy said no."""


class Invalid(Refused):
    """422: a value that validation refuses."""


class TooLarge(Refused):
    """413: the object is bigger than the server takes."""


class NotAllowed(Refused):
    """405, 406, 415: the server does not do this with that resource."""


class NotFound(Stale):
    """404: no such object, or no such kind."""


class Conflict(Stale):
    """409: another resourceVersion, another uid, or a field that somebody else owns."""


class AlreadyExists(Conflict):
    """409: the name is in use."""


class Gone(Stale):
    """410: that resourceVersion or continue token is too old; list again."""


class TooManyRequests(Transient):
    """429: slow down, for `retry_after` seconds if the server says how long."""


class ServerUnavailable(Transient):
    """5xx."""


class Unreachable(Transient):
    """No usable answer: refused, reset, timed out, or cut short. A write may or may not have happened."""


class WatchSilent(Unreachable):
    """A watch delivered not one byte for so long that the connection must be dead."""


_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: NotAllowed,
    406: NotAllowed,
    408: Unreachable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: NotAllowed,
    422: Invalid,
    429: TooManyRequests,
}

# A server-side apply with a field that the schema lacks comes back as a 500 from the merge code, yet only the author
# of the object can cure it.
_SCHEMA_MISMATCH = "failed to create typed patch object"


def from_status(body: Mapping[str, Any], *, status: int | None = None, retry_after: float | None = None) -> KubeError:
    """The error for a decoded `Status`, from an HTTP body or from inside a watch stream."""
    said = body.get("code")
    code = status if status is not None else said if isinstance(said, int) and said >= 400 else 500
    reason = str(body.get("reason") or "")
    message = str(body.get("message") or reason or f"HTTP {code}")
    found = body.get("details")
    details = found if isinstance(found, dict) else {}
    if retry_after is None:
        retry_after = _seconds(details.get("retryAfterSeconds"))
    if reason == "AlreadyExists":
        kind: type[KubeError] = AlreadyExists
    elif code == 500 and message.startswith(_SCHEMA_MISMATCH):
        kind = Invalid
    else:
        kind = _BY_STATUS.get(code) or (ServerUnavailable if code >= 500 else Refused)
    return kind(message, status=code, reason=reason, details=details, retry_after=retry_after)


def from_response(status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """The error for an HTTP answer; whatever stands in front of the API server may answer something other than JSON."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    if not isinstance(decoded, dict):
        text = body[:300].decode("utf-8", "replace").strip()
        decoded = {"message": text or f"HTTP {status}"}
    return from_status(decoded, status=status, retry_after=retry_after)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value or "")
    except (ValueError, TypeError, OverflowError):
        return None  # an HTTP date: nobody in front of an API server sends one, and the backoff covers it
    return max(0.0, seconds) if math.isfinite(seconds) else None
