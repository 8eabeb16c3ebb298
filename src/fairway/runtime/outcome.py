"""What one reconcile came to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth an event on the object: a reason in CamelCase and a sentence."""

    reason: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    action: str = "Reconcile"


@dataclass(frozen=True, slots=True)
class Requeue:
    """Look again `after` so many seconds, even if nothing changes until then; `reason` says why, for the log."""

    after: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole status to write (None leaves it alone), when to look again, and what to tell.

    What a user did wrong is a condition in the status, never an exception. `reason` says for the log why it stands as
    it does.
    """

    status: Mapping[str, Any] | None = None
    requeue: Requeue | None = None
    reason: str = ""
    events: tuple[Notice, ...] = ()
