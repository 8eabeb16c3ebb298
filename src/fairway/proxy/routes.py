"""One route as it is served right now: its settings, its servers, what it has counted."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from fairway.api import proxystatus
from fairway.api.proxystatus import EndpointState
from fairway.api.runconfig import Route
from fairway.mcp.client import Session, ToolList
from fairway.mcp.offer import named, summarise
from fairway.mcp.probe import Outcome, Way, introduced, shake
from fairway.proxy import prober
from fairway.proxy.answers import Refusal
from fairway.proxy.dialing import CannotDial, explain
from fairway.proxy.endpoints import Endpoint, EndpointSet, Place
from fairway.proxy.files import Fingerprint, fingerprint
from fairway.proxy.guards import build, policy_files
from fairway.proxy.legacy import LegacyStream
from fairway.proxy.metrics import Counts
from fairway.proxy.parts import Parts, UnusablePolicy
from fairway.proxy.pipeline import Policy

HANDOVER: Final = 10.0
"""Seconds that the servers of the last settings go on while none of the new ones is good yet."""

log = logging.getLogger("fairway.proxy")


class LiveRoute:
    """Lives from the first RunConfig that has the route to the last; a reload changes it in place."""

    def __init__(
        self, route: Route, route_hash: str, *, loopback: bool, parts: Parts, on_ready: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._on_ready = on_ready
        self.name = route.name
        self.counts = Counts()
        self.listens_on = ""
        self.route = route
        self.hash = ""
        """Of the settings that are in force; empty as long as none are."""
        self._refused = ""
        self._tried: tuple[str, bool, Fingerprint] | None = None
        self._files: list[Path] = []
        self.policy = Policy(route, None, self.counts)
        self.upstream = self._new_set(route)
        """The servers that get requests."""
        self._next: EndpointSet | None = None
        """The servers of new settings, until one of them is good."""
        self._handover: asyncio.TimerHandle | None = None
        self.ready = False
        self._session: Session | None = None
        self._listed: ToolList | None = None
        self._list_error = ""
        self._resources: proxystatus.Offered | None = None
        self._prompts: proxystatus.Offered | None = None
        self._tools: proxystatus.Tools | None = None
        self.tool_names: frozenset[str] = frozenset()
        """Tools that metrics tell apart: those that there are, whatever clients ask for."""
        self.streams: dict[bytes, LegacyStream] = {}
        """Open streams of the old transport, by the sealed session that their clients post with."""
        self._probes: dict[Endpoint, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self.load(route, route_hash, loopback=loopback)

    def _new_set(self, route: Route) -> EndpointSet:
        return EndpointSet(route.name, route.upstream, idle=route.timeouts.idle)

    def load(self, route: Route, route_hash: str, *, loopback: bool) -> None:
        """Takes over new settings. Requests at work keep those that they began with."""
        self._files = policy_files(route.policy)
        wanted = route_hash, loopback, fingerprint(self._files)
        if wanted == self._tried:
            return
        self._tried = wanted
        try:
            guards = build(route.name, route.policy, loopback=loopback, parts=self._parts, before=self.policy.guards)
        except UnusablePolicy as error:
            self._refused = str(error)
            log.error("policy refused", extra={"route": route.name, "reason": self._refused})
            return  # what was good goes on
        self._refused = ""
        before = self.route
        self.route, self.hash = route, route_hash
        self.policy = Policy(route, guards, self.counts)
        if route.upstream != before.upstream or route.timeouts.idle != before.timeouts.idle:
            self.ready = False
            self._drop_next()
            self._next = self._new_set(route)
            self._handover = self._loop.call_later(HANDOVER, self._hand_over)
        elif self._listed is not None or self._list_error:
            self._sum_up()

    @property
    def error(self) -> str:
        """Why the newest settings, or files that they name, are not in force."""
        trust = self.upstream.trust
        return self._refused or (trust.error if trust is not None else "")

    @property
    def outdated(self) -> bool:
        """Whether a file that the policy rests on has changed since it was last looked at."""
        return bool(self._files) and self._tried is not None and fingerprint(self._files) != self._tried[2]

    @property
    def open(self) -> bool:
        """Whether there is a policy to let anybody in by."""
        return self.policy.guards is not None

    def place(self, places: Iterable[Place]) -> None:
        """Takes over where the servers are."""
        target = self._next or self.upstream
        came, went = target.replace(places)
        for endpoint in went:
            self._stop_probe(endpoint)
            self._end(endpoint)
        for endpoint in came:
            if endpoint.lines is not None:
                endpoint.lines.start(partial(self._lines_changed, endpoint))
            self._probes[endpoint] = self._loop.create_task(
                prober.watch(endpoint, self._shake, self._hear), name=f"handshake {endpoint.place.address}"
            )

    def _lines_changed(self, endpoint: Endpoint) -> None:
        """A server that has died gets nothing until it is up again, and then at once."""
        owner = self._owner(endpoint)
        if owner is None or endpoint.bridge is None:
            return
        if not endpoint.bridge.link.up:
            owner.judge(endpoint, EndpointState.UNREACHABLE, endpoint.bridge.link.why, good=False)
            endpoint.recheck.set()
        elif self.ready:
            owner.judge(endpoint, EndpointState.OK, "", good=True)

    def _end(self, endpoint: Endpoint) -> None:
        if endpoint.lines is not None:
            task = self._loop.create_task(endpoint.lines.stop(), name=f"end of {endpoint.place.address}")
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    async def _shake(self, endpoint: Endpoint) -> Outcome:
        if endpoint.lines is not None:
            return await endpoint.lines.shake()
        added = self.policy.guards.outbound.added() if self.policy.guards is not None else []
        if isinstance(added, Refusal):
            return Outcome(EndpointState.FAILED, f"{added.message}: {added.detail}")
        own = (line.decode("latin-1").rstrip("\r\n").partition(": ") for line in added)
        dialer = endpoint.dialer
        try:
            tls = None if dialer.trust is None else await dialer.trust.context()
        except CannotDial as error:
            return Outcome(EndpointState.UNREACHABLE, str(error.strerror))
        way = Way(
            address=endpoint.place.address,
            path=endpoint.upstream.endpoint_path,
            legacy=endpoint.upstream.transport == "sse",
            headers={"Host": endpoint.host_header, **{name: value for name, _, value in own}},
            tls=tls,
            server_name=dialer.server_name,
            resolve=None if dialer.lookup is None else dialer.resolve,
        )
        return await shake(way, connect_seconds=self.policy.connect_seconds)

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
        self._resources, self._prompts = named(outcome.resources), named(outcome.prompts)
        self._sum_up()
        if owner is self._next:
            self._hand_over()
        if not self.ready:
            self.ready = True
            self._on_ready()

    def _sum_up(self) -> None:
        self._tools = summarise(self._listed, self._list_error, self.route.tools.view())
        self.tool_names = frozenset(self._tools.names)

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
            self._end(endpoint)
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
        message = explain(error, endpoint.place.address, pod=endpoint.dialer.lookup is None)
        owner.judge(endpoint, EndpointState.UNREACHABLE, message, good=False)
        endpoint.recheck.set()

    def sweep(self) -> None:
        for endpoint in self.upstream.endpoints:
            endpoint.pool.sweep()
            if endpoint.bridge is not None:
                endpoint.bridge.tick()

    async def close(self) -> None:
        """Stops asking, and closes idle connections; requests at work finish."""
        self._drop_next()
        tasks = list(self._probes.values())
        self._retire(self.upstream)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._endings, return_exceptions=True)

    def status(self) -> proxystatus.Route:
        shown = self._next or self.upstream
        session = self._session
        return proxystatus.Route(
            name=self.name,
            hash=self.hash,
            ready=self.ready and self.open,
            error=self.error,
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
            resources=self._resources,
            prompts=self._prompts,
        )
