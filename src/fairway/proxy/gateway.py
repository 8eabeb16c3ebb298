"""Brings what is served into agreement with what is asked for, without losing a request."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from fairway import __version__
from fairway.api import proxystatus
from fairway.api.proxystatus import Config, ConfigState
from fairway.api.runconfig import ListenTLS, Route
from fairway.proxy.address import Address
from fairway.proxy.certificates import Certificate, NoCertificate
from fairway.proxy.endpoints import Place
from fairway.proxy.files import Loaded
from fairway.proxy.listener import CannotListen, Listener
from fairway.proxy.middleware.origin import is_loopback
from fairway.proxy.parts import Parts
from fairway.proxy.routes import LiveRoute
from fairway.proxy.topology import Service, Topology

SWEEP: Final = 0.5
LOOK: Final = 0.5
"""Seconds between two looks at the files."""

Key = tuple[str, int, str, ListenTLS | None]
"""What makes a listener: host, port, the route if the port is 0, and TLS."""

log = logging.getLogger("fairway.proxy")


class Configs(Protocol):
    """Where routes come from."""

    @property
    def routes(self) -> Mapping[str, Loaded]: ...

    @property
    def state(self) -> Config: ...

    def refresh(self) -> bool: ...


class Gateway:
    """All routes of this process. `run` keeps it up to date until it is cancelled."""

    def __init__(self, configs: Configs, topology: Topology) -> None:
        self._configs = configs
        self._topology = topology
        self._parts = Parts()
        self._listeners: dict[Key, Listener] = {}
        self.routes: dict[str, LiveRoute] = {}
        self._bind_errors: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._leaving: list[Listener] = []
        self._was_ready = False
        self._stopping = False
        self._reported = Config(state=ConfigState.OK)

    # state

    @property
    def ready(self) -> bool:
        """True once every route has had a good handshake, and from then on."""
        return self._was_ready

    def _note_ready(self) -> None:
        if not self._was_ready and self.routes and all(route.ready and route.open for route in self.routes.values()):
            self._was_ready = True
            log.info("ready")

    def config_state(self) -> Config:
        """The state of the files, and what else keeps the newest of them from being in force."""
        state = self._configs.state
        policies = [f"{name}: {route.error}" for name, route in sorted(self.routes.items()) if route.error]
        certificates = [each.certificate.error for each in self._listeners.values() if each.certificate is not None]
        problems = [state.error, self._topology.error, *policies, *certificates, *self._bind_errors.values()]
        error = "; ".join(filter(None, problems))
        if error and state.state is ConfigState.OK:
            return Config(state=ConfigState.INVALID, error=error)
        return Config(state=state.state, error=error)

    def status(self) -> proxystatus.ProxyStatus:
        return proxystatus.ProxyStatus(
            version=1,
            proxy_version=__version__,
            config=self.config_state(),
            routes=tuple(route.status() for _, route in sorted(self.routes.items())),
        )

    # work

    async def run(self) -> None:
        await self._topology.start(self._changed.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_looking())
                tasks.create_task(self._keep_sweeping())
                await self._keep_applying()
        finally:
            await self._topology.stop()

    async def _keep_looking(self) -> None:
        while True:
            # both are looked at each time: `or` would skip the second
            changed = self._configs.refresh() | self._topology.refresh()
            for listener in self._listeners.values():
                changed |= listener.certificate is not None and listener.certificate.refresh()
            if changed or self._bind_errors or any(route.outdated for route in self.routes.values()):
                self._changed.set()
            await asyncio.sleep(LOOK)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            for listener in (*self._listeners.values(), *self._leaving):
                listener.sweep()
            self._leaving = [listener for listener in self._leaving if listener.connections]
            for route in self.routes.values():
                route.sweep()

    async def _keep_applying(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._stopping:
                await self._apply()

    async def _apply(self) -> None:
        wanted = self._configs.routes
        gone = [route for name, route in self.routes.items() if name not in wanted]
        self.routes = {name: self._live(loaded) for name, loaded in wanted.items()}
        # not what is wanted, but what is in force: a policy that cannot be used keeps the settings before it
        self._topology.follow({_service(route.route) for route in self.routes.values()} - {None})  # type: ignore[arg-type]
        self._parts.keep([route.policy.guards.config for route in self.routes.values() if route.policy.guards])
        for route in self.routes.values():
            route.place(self._places(route.route))
        await self._bind()
        for route in gone:
            await route.close()
        self._note_ready()
        self._report()

    def _live(self, loaded: Loaded) -> LiveRoute:
        route = loaded.route
        address = self._topology.address(route)
        loopback = address is not None and is_loopback(address[0])
        live = self.routes.get(route.name)
        if live is None:
            log.info("route appears", extra={"route": route.name})
            return LiveRoute(route, loaded.hash, loopback=loopback, parts=self._parts, on_ready=self._note_ready)
        live.load(route, loaded.hash, loopback=loopback)
        return live

    def _places(self, route: Route) -> list[Place]:
        if route.upstream.command is not None:
            return [Place(f"stdio:{route.upstream.command.argv[0]}")]
        if (attach := route.upstream.attach) is not None:
            return list(self._topology.attached(attach))
        if (remote := route.upstream.remote) is not None:
            host = f"[{remote.host}]" if ":" in remote.host else remote.host
            return [Place(f"{host}:{remote.port}")]
        service = _service(route)
        if service is None or route.upstream.service is None:
            return [Place(address) for address in route.upstream.addresses]
        return list(self._topology.places(service, route.upstream.service.port))

    async def _bind(self) -> None:
        """New addresses first, so that a route that moves is never nowhere."""
        wanted: defaultdict[Key, list[LiveRoute]] = defaultdict(list)
        for route in self.routes.values():
            address = self._topology.address(route.route)
            if address is None:
                route.listens_on = ""
                continue
            wanted[_key(address, route)].append(route)
        self._bind_errors = {}
        for key in [
            key for key in self._listeners if key not in wanted and any(key[:3] == other[:3] for other in wanted)
        ]:
            self._close(key)  # the same address with other TLS: it can only be bound once
        for key, routes in wanted.items():
            listener = self._listeners.get(key)
            if any(key[:3] == other[:3] and key != other for other in self._listeners):
                self._bind_errors[f"{key[0]}:{key[1]}"] = (
                    f"{routes[0].name}: {key[0]}:{key[1]} is served with other TLS settings already"
                )
            elif listener is None:
                listener = await self._open(key)
            for route in routes:
                route.listens_on = "" if listener is None else listener.address
            if listener is not None:
                listener.serve(self._distinct(routes))
        for key in [key for key in self._listeners if key not in wanted]:
            self._close(key)

    def _close(self, key: Key) -> None:
        listener = self._listeners.pop(key)
        log.info("listener ends", extra={"address": listener.address})
        listener.serve(())
        listener.close()
        self._leaving.append(listener)

    async def _open(self, key: Key) -> Listener | None:
        host, port, _, tls = key
        try:
            listener = Listener(host, port, None if tls is None else Certificate(tls))
            await listener.open()
        except (CannotListen, NoCertificate) as error:
            self._bind_errors[f"{key[0]}:{key[1]}"] = str(error)
            return None
        self._listeners[key] = listener
        log.info("listening", extra={"address": listener.address})
        return listener

    def _distinct(self, routes: list[LiveRoute]) -> list[LiveRoute]:
        by_path: dict[str, LiveRoute] = {}
        for route in sorted(routes, key=lambda route: route.name):
            paths = route.route.listen.paths
            first = next((by_path[path] for path in paths if path in by_path), None)
            if first is None:
                by_path |= dict.fromkeys(paths, route)
            else:
                route.listens_on = ""
                self._bind_errors[route.name] = f"{route.name}: {first.name} is served at the same address and path"
        return list(dict.fromkeys(by_path.values()))

    def _report(self) -> None:
        state = self.config_state()
        if state != self._reported:
            self._reported = state
            level = logging.INFO if state.state is ConfigState.OK else logging.ERROR
            log.log(level, "configuration %s", state.state, extra={"error": state.error} if state.error else {})

    # the end

    def leave(self) -> None:
        """New connections are still taken, but none is kept: who listens elsewhere gets the next request."""
        for listener in self._listeners.values():
            listener.leaving = True

    async def stop(self, *, grace: float) -> None:
        """No new connections; idle ones and endless streams end at once, calls get `grace` seconds."""
        self._stopping = True
        listeners = [*self._listeners.values(), *self._leaving]
        for listener in listeners:
            listener.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for listener in listeners:
                    await listener.empty.wait()
        for listener in listeners:
            listener.abort()
        for route in self.routes.values():
            await route.close()
        await self._parts.aclose()


def _service(route: Route) -> Service | None:
    service = route.upstream.service
    return None if service is None else (service.namespace, service.name)


def _key(address: Address, route: LiveRoute) -> Key:
    """Routes share a listener when they name the same address, but port 0 means one of its own for each."""
    host, port = address
    return host, port, "" if port else route.name, route.route.listen.tls
