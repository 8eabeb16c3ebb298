"""One route as it is served right now: its settings, its servers, what it has counted."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from fairway.api import proxystatus
from fairway.api.proxystatus import EndpointState
from fairway.api.runconfig import Route
from fairway.mcp.client import Session, ToolList
from fairway.mcp.offer import summarise
from fairway.mcp.probe import Outcome, introduced, shake
from fairway.proxy import prober
from fairway.proxy.endpoints import Endpoint, EndpointSet, Place
from fairway.proxy.metrics import Counts
from fairway.proxy.pipeline import Policy

HANDOVER: Final = 10.0
"""Seconds that the servers of the last settings go on while none of the new ones is good yet."""
_LARGE_LIST: Final = 256 << 10


class LiveRoute:
    """Lives from the first RunConfig that has the route to the last; a reload changes it in place."""

    def __init__(self, route: Route, route_hash: str, *, loopback: bool, on_ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_ready = on_ready
        self._loopback = loopback
        self.counts = Counts()
        self.listens_on = ""
        self.route = route
        self.hash = route_hash
        self.policy = Policy(route, loopback)
        self.upstream = self._new_set(route)
        """The servers that get requests."""
        self._next: EndpointSet | None = None
        """The servers of new settings, until one of them is good."""
        self._handover: asyncio.TimerHandle | None = None
        self.ready = False
        self._session: Session | None = None
        self._listed: ToolList | None = None
        self._list_error = ""
        self._tools: proxystatus.Tools | None = None
        self._probes: dict[Endpoint, asyncio.Task[None]] = {}
        self._retired: list[EndpointSet] = []

    @property
    def name(self) -> str:
        return self.route.name

    def _new_set(self, route: Route) -> EndpointSet:
        return EndpointSet(route.name, route.upstream, idle=route.timeouts.idle, loop=self._loop)

    def load(self, route: Route, route_hash: str, *, loopback: bool) -> None:
        """Takes over new settings. Requests at work keep those that they began with."""
        before = self.route
        if route_hash == self.hash and loopback == self._loopback:
            return
        self.route, self.hash, self._loopback = route, route_hash, loopback
        self.policy = Policy(route, loopback)
        if route.upstream != before.upstream or route.timeouts.idle != before.timeouts.idle:
            self.ready = False
            self._drop_next()
            self._next = self._new_set(route)
            self._handover = self._loop.call_later(HANDOVER, self._hand_over)
        elif self._listed is not None or self._list_error:
            self._tools = summarise(self._listed, self._list_error, route.tools.view())

    def place(self, places: Iterable[Place]) -> None:
        """Takes over where the servers are."""
        target = self._next or self.upstream
        came, went = target.replace(places)
        for endpoint in went:
            self._stop_probe(endpoint)
        for endpoint in came:
            self._probes[endpoint] = self._loop.create_task(
                prober.watch(endpoint, self._shake, self._hear), name=f"handshake {endpoint.place.address}"
            )

    async def _shake(self, endpoint: Endpoint) -> Outcome:
        return await shake(
            address=endpoint.place.address,
            path=endpoint.upstream.path,
            host_header=endpoint.host_header,
            connect_seconds=self.policy.connect_seconds,
        )

    def _hear(self, endpoint: Endpoint, outcome: Outcome, good: bool) -> None:
        owner = self._owner(endpoint)
        if owner is None:
            return
        succeeded = outcome.state is EndpointState.OK
        owner.judge(endpoint, outcome.state, outcome.message, good=good and (succeeded or endpoint.good))
        if not succeeded or owner is not (self._next or self.upstream):
            return
        self._session = outcome.session
        self._listed, self._list_error = outcome.tools, outcome.tools_error
        self._tools = summarise(outcome.tools, outcome.tools_error, self.route.tools.view())
        if owner is self._next:
            self._hand_over()
        if not self.ready:
            self.ready = True
            self._on_ready()

    def _owner(self, endpoint: Endpoint) -> EndpointSet | None:
        for candidate in (self._next, self.upstream):
            if candidate is not None and endpoint in candidate.by_address.values():
                return candidate
        return None

    def _hand_over(self) -> None:
        following = self._next
        if following is None:
            return
        before, self.upstream, self._next = self.upstream, following, None
        following.take_sessions_of(before)
        self._cancel_handover()
        self._retire(before)

    def _drop_next(self) -> None:
        self._cancel_handover()
        if self._next is not None:
            self._retire(self._next)
            self._next = None

    def _cancel_handover(self) -> None:
        if self._handover is not None:
            self._handover.cancel()
            self._handover = None

    def _retire(self, endpoints: EndpointSet) -> None:
        for endpoint in endpoints.endpoints:
            self._stop_probe(endpoint)
        endpoints.close()

    def _stop_probe(self, endpoint: Endpoint) -> None:
        task = self._probes.pop(endpoint, None)
        if task is not None:
            task.cancel()

    def connect_failed(self, endpoint: Endpoint, error: OSError | TimeoutError) -> None:
        """A request could not reach a server: no other is sent there before it has shaken hands again."""
        owner = self._owner(endpoint)
        if owner is None:
            return
        port = endpoint.place.split()[1]
        if isinstance(error, ConnectionRefusedError):
            message = f"nothing listens on :{port}"
        else:
            message = f"no connection to {endpoint.place.address}: {error.strerror or 'it takes too long'}"
        owner.judge(endpoint, EndpointState.UNREACHABLE, message, good=False)
        endpoint.recheck.set()

    def sweep(self) -> None:
        for endpoint in self.upstream.endpoints:
            endpoint.pool.sweep()

    async def close(self) -> None:
        """Stops asking, and closes idle connections; requests at work finish."""
        self._drop_next()
        tasks = list(self._probes.values())
        self._retire(self.upstream)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> proxystatus.Route:
        shown = self._next or self.upstream
        session = self._session
        return proxystatus.Route(
            name=self.name,
            hash=self.hash,
            ready=self.ready,
            listen=self.listens_on,
            endpoints=tuple(
                proxystatus.Endpoint(
                    address=endpoint.place.address,
                    pod=endpoint.place.pod,
                    uid=endpoint.place.uid,
                    state=endpoint.state,
                    message=endpoint.message,
                )
                for endpoint in shown.endpoints
            ),
            server=None if session is None else introduced(session),
            tools=self._tools,
        )
