"""Who a request comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

ANONYMOUS_SUBJECT: Final = "anonymous"
"""Reserved: no token can carry it."""


@dataclass(frozen=True, slots=True, eq=False)
class Principal:
    """One client, as one token describes it. Equal only to itself: two tokens of one client can differ in every claim.

    `key` is the same for all tokens of a client and for no other client; limits, sessions and tasks belong to it.
    """

    subject: str
    issuer: str = ""
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float = inf
    """Seconds since the epoch: streams of this principal end here."""
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.issuer}\0{self.subject}")


def anonymous() -> Principal:
    return Principal(ANONYMOUS_SUBJECT)
