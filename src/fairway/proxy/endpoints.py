"""The servers behind one route: which of them may get requests, and which one gets the next."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from fairway.api.proxystatus import EndpointState
from fairway.api.runconfig import Upstream
from fairway.proxy.answers import Refusal, no_endpoint
from fairway.proxy.dialing import Dialer, Lookup, Trust, server_name, trust_in
from fairway.proxy.upstream import Pool

if TYPE_CHECKING:
    from fairway.mcp.probe import Outcome
    from fairway.proxy.bridge.core import Bridge

MAX_IDLE: Final = 256
MAX_UPSTREAM_IDLE: Final = 4.0
"""Seconds: common servers drop idle connections after five, and a request must not cross with that."""


SOCKETED: Final = "unix:"
"""Begins the address of a server behind a Unix socket; the path follows, relative to the working directory."""

Pin = tuple[str, str]
"""Names one server for as long as it lives: its pod and the pod's uid, or its address where there are no pods."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server is."""

    address: str
    """host:port"""
    pod: str = ""
    uid: str = ""
    leaving: bool = False
    """It still serves, and will soon be gone: for requests that nobody else can take."""

    def split(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def pin(self) -> Pin:
        return self.pod or self.address, self.uid


class LineServer(Protocol):
    """A server that is reached over lines, such as a child's pipes, and not over HTTP. It works from start to stop."""

    bridge: "Bridge"

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the server comes up and when it goes down: see `bridge.link`."""

    async def shake(self) -> "Outcome":
        """Waits until it is up, and tells what it is."""

    async def stop(self) -> None: ...


class Endpoint:
    """One server: its connections, and what the last handshake gave."""

    __slots__ = (
        "_heads",
        "_host_header",
        "bridge",
        "dialer",
        "good",
        "in_flight",
        "lines",
        "message",
        "place",
        "pool",
        "recheck",
        "removed",
        "state",
        "upstream",
    )

    def __init__(self, place: Place, upstream: Upstream, *, idle: float, trust: Trust | None = None) -> None:
        self.place = place
        self.upstream = upstream
        self.lines = _line_server(place, upstream)
        self.bridge = None if self.lines is None else self.lines.bridge
        host, port = ("", 0) if self.lines is not None else place.split()
        remote = upstream.remote
        self.dialer = Dialer(
            host,
            port,
            trust=trust,
            server_name=server_name(upstream),
            lookup=None if remote is None else Lookup(remote),
        )
        self.pool = Pool(self.dialer, idle_seconds=min(idle, MAX_UPSTREAM_IDLE), max_idle=MAX_IDLE)
        self.in_flight = 0
        self.state = EndpointState.PENDING
        self.message = ""
        self.good = False
        self.removed = False
        self.recheck = asyncio.Event()
        """Set when the server should be asked again now."""
        usual = f"localhost:{port}" if remote is None else remote.authority
        self._host_header = (upstream.host_header or usual).encode()
        self._heads: dict[bytes, bytes] = {}

    @property
    def host_header(self) -> str:
        return self._host_header.decode()

    def head(self, method: bytes, query: bytes, target: bytes = b"") -> bytes:
        """The start of a request to this server: request line and Host. A `target` goes in place of its endpoint."""
        usual = not query and not target
        if usual:
            head = self._heads.get(method)
            if head is not None:
                return head
        target = target or self.upstream.endpoint_path.encode() + (b"?" + query if query else b"")
        head = b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, target, self._host_header)
        if usual:
            self._heads[method] = head
        return head


def _line_server(place: Place, upstream: Upstream) -> LineServer | None:
    # who serves HTTP servers only does not pay for what reaches others
    if upstream.command is not None:
        from fairway.proxy.stdio import ChildServer

        return ChildServer(upstream.command, name=place.address)
    if upstream.attach is not None and place.address.startswith(SOCKETED):
        from fairway.proxy.socketed import SocketedServer

        return SocketedServer(place.address.removeprefix(SOCKETED), name=place.address)
    if upstream.attach is not None:
        from fairway.proxy.attach import AttachedServer

        return AttachedServer(upstream.attach, name=place.address)
    return None


class EndpointSet:
    """All servers of one upstream. Those that have gone stay only for the requests that they still answer."""

    __slots__ = ("_by_pin", "_good", "_idle", "_next", "by_address", "name", "trust", "upstream")

    def __init__(self, name: str, upstream: Upstream, *, idle: float) -> None:
        self.name = name
        self.upstream = upstream
        self.by_address: dict[tuple[str, str], Endpoint] = {}
        self._by_pin: dict[Pin, Endpoint] = {}
        self.trust = trust_in(upstream)
        self._idle = idle
        self._good: list[Endpoint] = []
        self._next = 0

    @property
    def endpoints(self) -> list[Endpoint]:
        return list(self.by_address.values())

    @property
    def has_good(self) -> bool:
        return bool(self._good)

    def replace(self, places: Iterable[Place]) -> tuple[list[Endpoint], list[Endpoint]]:
        """Takes over where the servers are now; returns those that came and those that went."""
        wanted = {(place.address, place.uid): place for place in places}
        went = [endpoint for key, endpoint in self.by_address.items() if key not in wanted]
        came = [
            Endpoint(place, self.upstream, idle=self._idle, trust=self.trust)
            for key, place in wanted.items()
            if key not in self.by_address
        ]
        fresh = {(endpoint.place.address, endpoint.place.uid): endpoint for endpoint in came}
        self.by_address = {key: self.by_address.get(key) or fresh[key] for key in wanted}
        for key, endpoint in self.by_address.items():
            endpoint.place = wanted[key]
        staying = (endpoint for endpoint in self.by_address.values() if not endpoint.place.leaving)
        self._by_pin = {endpoint.place.pin: endpoint for endpoint in staying}
        for endpoint in went:
            endpoint.removed = True
            endpoint.good = False
            endpoint.pool.close()
        self._regroup()
        return came, went

    def judge(self, endpoint: Endpoint, state: EndpointState, message: str, *, good: bool) -> None:
        """Takes over what is now known of one server."""
        endpoint.state = state
        endpoint.message = message
        endpoint.good = good and not endpoint.removed
        self._regroup()

    def _regroup(self) -> None:
        good = [endpoint for endpoint in self.by_address.values() if endpoint.good]
        # a successor is not always known as soon as its predecessor is told to go
        self._good = [endpoint for endpoint in good if not endpoint.place.leaving] or good

    def pick(self, pin: Pin | None) -> Endpoint | Refusal:
        """The server for the next request: the one that holds its session, else the one with the least to do."""
        if pin is not None:
            holder = self._by_pin.get(pin)
            if holder is None:
                return Refusal(404, "Session not found: the server that held it is gone")
            return holder if holder.good else no_endpoint(self.name, holder.message)
        good = self._good
        if len(good) == 1:
            return good[0]
        if not good:
            return no_endpoint(self.name, self._why())
        # starting at another one each time spreads what is equal
        self._next = (self._next + 1) % len(good)
        return min(good[self._next :] + good[: self._next], key=_load)

    def _why(self) -> str:
        if not self.by_address:
            return "there are no endpoints"
        messages = {endpoint.message for endpoint in self.by_address.values() if endpoint.message}
        return "; ".join(sorted(messages)[:3])

    def close(self) -> None:
        for endpoint in self.by_address.values():
            endpoint.removed = True
            endpoint.pool.close()


def _load(endpoint: Endpoint) -> int:
    return endpoint.in_flight
