"""Every request that passed, and what became of it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.faultproxy.request import Request
from tests.faultproxy.rules import Requests, writes


@dataclass(slots=True)
class Exchange:
    """`status` is what the client was told (0: nothing yet, or never), `upstream` what the API server said."""

    request: Request
    began: float
    status: int = 0
    upstream: int = 0
    fault: str = ""
    ended: float = 0.0
    events: int = 0
    event_faults: list[str] = field(default_factory=list)
    body: bytes = b""

    @property
    def done(self) -> bool:
        """The API server did what was asked, whatever the client heard of it."""
        return 200 <= self.upstream < 300

    def __str__(self) -> str:
        fault = f" [{self.fault}]" if self.fault else ""
        return f"{self.request} -> {self.status or '-'} (upstream {self.upstream or '-'}){fault}"


class Log:
    """Written by the proxy's thread, read by any."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._changed = threading.Condition()

    def begin(self, request: Request, body: bytes = b"") -> Exchange:
        exchange = Exchange(request, time.monotonic(), body=body)
        with self._changed:
            self._exchanges.append(exchange)
            self._changed.notify_all()
        return exchange

    def changed(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(tuple(self._exchanges))

    def matching(self, on: Requests, *, since: int = 0) -> list[Exchange]:
        """Exchanges whose request matches and has a number above `since`."""
        return [entry for entry in self if entry.request.number > since and on.match(entry.request)]

    def writes(self, *, since: int = 0) -> list[Exchange]:
        """The writes of a controller's work (dry runs, Leases and Events apart)."""
        return [entry for entry in self.matching(writes(), since=since) if entry.request.is_write]

    def careless_deletes(self) -> list[Exchange]:
        """Deletes that did not say which object in which version they mean."""
        return [entry for entry in self if entry.request.verb == "delete" and not _is_careful(entry.body)]

    def wait(self, what: str, found: Callable[["Log"], bool], *, seconds: float) -> None:
        """Until `found` is true; it is asked again whenever a request begins or gets further."""
        with self._changed:
            if not self._changed.wait_for(lambda: found(self), timeout=seconds):
                tail = "\n".join(f"  {entry}" for entry in list(self)[-20:])
                raise TimeoutError(f"waited {seconds:g} s in vain for {what}; the last requests:\n{tail}")


def _is_careful(options: bytes) -> bool:
    preconditions = json.loads(options or b"{}").get("preconditions", {})
    return bool(preconditions.get("uid") and preconditions.get("resourceVersion"))
