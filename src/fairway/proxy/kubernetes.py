"""The topology of a cluster: the servers behind a Service are what its EndpointSlices say."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import fairway
from fairway.api import names
from fairway.api.runconfig import Attach, Route
from fairway.kube.client import Client
from fairway.kube.config import AccessError, ClusterAccess, load_access
from fairway.kube.resource import ENDPOINT_SLICE
from fairway.kube.transport import Transport
from fairway.proxy.address import Address
from fairway.proxy.endpoints import Place
from fairway.proxy.topology import Service, listen_address, through_api_server
from fairway.runtime.reflector import Reflector
from fairway.runtime.store import Store

SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(slots=True)
class _Followed:
    """One Service that matters."""

    store: Store
    reflector: Reflector
    task: asyncio.Task[None] | None = None


class KubernetesTopology:
    """Listens as the RunConfig says; watches the EndpointSlices of exactly the Services that are followed."""

    def __init__(self, access: ClusterAccess | None = None) -> None:
        self._access = access
        self._client: Client | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._wanted: frozenset[Service] = frozenset()
        self._followed: dict[Service, _Followed] = {}
        self._access_error = ""

    @property
    def error(self) -> str:
        """Only what keeps a Service from being known at all; a watch that breaks is opened again and is no error."""
        unknown = (
            f"Service {'/'.join(service)}: {followed.reflector.last_error}"
            for service, followed in self._followed.items()
            if followed.reflector.last_error is not None and not followed.store.synced(ENDPOINT_SLICE)
        )
        return self._access_error or "; ".join(unknown)

    def address(self, route: Route) -> Address | None:
        return listen_address(route.listen)

    def places(self, service: Service, port: int) -> Collection[Place]:
        followed = self._followed.get(service)
        return () if followed is None else places_in(followed.store.list(ENDPOINT_SLICE), port)

    def attached(self, attach: Attach) -> Collection[Place]:
        return through_api_server(attach)

    def follow(self, services: Collection[Service]) -> None:
        self._wanted = frozenset(services)
        if self._client is not None:
            self._settle()

    def refresh(self) -> bool:
        return False

    async def start(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        try:
            access = self._access or load_access()
        except AccessError as error:
            self._access_error = str(error)
            return
        transport = Transport(access, user_agent=f"fairway-proxy/{fairway.__version__}", connections=4)
        self._client = Client(transport, field_manager=names.FIELD_MANAGER)
        self._settle()

    async def stop(self) -> None:
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._client is not None:
            await self._client.close()

    def _settle(self) -> None:
        for service in self._followed.keys() - self._wanted:
            task = self._followed.pop(service).task
            if task is not None:
                task.cancel()
        for service in self._wanted - self._followed.keys():
            self._followed[service] = self._start(service)

    def _start(self, service: Service) -> _Followed:
        assert self._client is not None
        namespace, name = service
        store = Store()
        reflector = Reflector(
            client=self._client,
            store=store,
            resource=ENDPOINT_SLICE,
            namespace=namespace,
            label_selector=f"{SERVICE_NAME}={name}",
        )
        store.subscribe(ENDPOINT_SLICE, lambda _: self._on_change())
        return _Followed(
            store, reflector, asyncio.create_task(reflector.run(), name=f"endpoints of {namespace}/{name}")
        )


def places_in(slices: Iterable[Mapping[str, Any]], port: int) -> list[Place]:
    """The endpoints that serve, each once; `port` counts where a slice does not say which of its ports is MCP's."""
    found: dict[str, Place] = {}
    for piece in slices:
        number = _port(piece.get("ports") or (), port)
        for endpoint in piece.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            # an absent `ready` means ready; of what is terminating, `ready` says nothing about what it still does
            leaving = bool(conditions.get("terminating"))
            serves = conditions.get("serving", conditions.get("ready")) if leaving else conditions.get("ready")
            if serves is False:
                continue
            target = endpoint.get("targetRef") or {}
            for host in endpoint.get("addresses") or ():
                address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
                found[address] = Place(address, target.get("name", ""), target.get("uid", ""), leaving)
    return [found[address] for address in sorted(found)]


def _port(ports: Collection[Mapping[str, Any]], given: int) -> int:
    named = [p["port"] for p in ports if p.get("name") == names.PORT_MCP and p.get("port")]
    if named:
        return int(named[0])
    only = [p["port"] for p in ports if p.get("port")]
    return int(only[0]) if len(only) == 1 else given
