"""Sessions of the session era that end at the proxy: the server behind it knows of none of them."""

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairway.proxy.bridge.call import Call
    from fairway.proxy.bridge.exchange import Exchange

MAX_SESSIONS: Final = 50_000
MAX_IDLE: Final = 1800.0
"""Seconds after which a session that has no stream and asks nothing is forgotten; clients then open another."""


class Session:
    """One client of the session era."""

    __slots__ = ("calls", "capabilities", "id", "legacy", "stream", "used", "watched")

    def __init__(self, session_id: bytes, capabilities: frozenset[str], now: float) -> None:
        self.id = session_id
        self.capabilities = capabilities
        """Of what the client said that it can do, what it can be asked for."""
        self.legacy = False
        """Of the old transport, where a session is no more than its stream."""
        self.stream: Exchange | None = None
        """Where it gets what is no answer to a request of its own."""
        self.calls: set[Call] = set()
        self.watched: set[str] = set()
        self.used = now


class Sessions:
    """All of one server. The one that was idle for longest goes when there are too many."""

    def __init__(self, *, bound: int = MAX_SESSIONS) -> None:
        self._by_id: OrderedDict[bytes, Session] = OrderedDict()
        self._bound = bound

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, capabilities: frozenset[str], now: float) -> Session:
        session = Session(secrets.token_urlsafe(24).encode(), capabilities, now)
        self._by_id[session.id] = session
        return session

    def find(self, session_id: bytes, now: float) -> Session | None:
        session = self._by_id.get(session_id)
        if session is not None:
            session.used = now
            self._by_id.move_to_end(session_id)
        return session

    def forget(self, session: Session) -> None:
        self._by_id.pop(session.id, None)

    def only(self) -> Session | None:
        """The session, if there is exactly one."""
        return next(iter(self._by_id.values())) if len(self._by_id) == 1 else None

    def all(self) -> list[Session]:
        return list(self._by_id.values())

    def expired(self, now: float) -> list[Session]:
        """Sessions that nobody seems to hold any more, and the idlest ones beyond the bound."""
        late = []
        surplus = len(self._by_id) - self._bound
        for session in self._by_id.values():
            if surplus <= 0 and now - session.used < MAX_IDLE:
                break  # the rest was used later
            silent = session.stream is None or not session.stream.open
            if surplus > 0 or (silent and not session.calls):
                late.append(session)
                surplus -= 1
        return late
