"""Local mode itself: a world, the controllers, and a node that runs the pods. It shows nothing."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from fairway.api import names
from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver.ask import Asker
from fairway.controllers.rehearsal import NowAndThen, rehearse
from fairway.controllers.resources import CATALOGUE, MCP_SERVER
from fairway.controllers.settings import Settings
from fairway.controllers.wiring import controllers
from fairway.kube.resource import CONFIG_MAP, POD, SECRET, Obj, Resource
from fairway.local import pod as pods
from fairway.local import view
from fairway.local.backing import Front, SharedProxy, is_proxy_pod, route_of
from fairway.local.box import working_runtime
from fairway.local.deployments import Deployments
from fairway.local.forward import Forwarder
from fairway.local.issuer import LocalIssuer, asks_for_it
from fairway.local.kubelet import Kubelet, Machine
from fairway.local.launch import ANNOTATION, COMMAND, inherited_environment
from fairway.local.manifests import DEFAULT_NAMESPACE, Key, Manifests
from fairway.local.ports import Assignment, PortBook
from fairway.local.statedir import StateDirectory, shown_path
from fairway.local.topology import address_of
from fairway.local.view import Row
from fairway.mcp.http import HttpClient
from fairway.process.pace import RestartPace
from fairway.process.warden import Warden
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.store import Change

IMAGE = "fairway"
"""Stands for this very program in the objects of the world."""


class LocalMode:
    """Runs what `put` gives it, until it is cancelled; `stop` then ends every process.

    Those who asked through `on_change` are told whenever something that the rows show may be different.
    """

    def __init__(
        self,
        state: StateDirectory,
        warden: Warden,
        *,
        port_base: int,
        pace: RestartPace | None = None,
        containers: Callable[[], str] = working_runtime,
    ) -> None:
        self.world = MemoryWorld(catalogue=CATALOGUE)
        self._state = state
        self._listeners: list[Callable[[], None]] = []
        self.http = HttpClient()
        self._issuer = LocalIssuer(state.path)
        self._book = PortBook(state.ports, base=port_base)
        self._admin_port = self._book.any_free()
        self._from_files: Mapping[Key, Mapping[str, Any]] = {}
        self._by_hand: dict[Key, Mapping[str, Any] | None] = {}
        self._user_objects: dict[Key, Mapping[str, Any]] = {}
        pace = pace or RestartPace()
        inherited = inherited_environment(os.environ)
        self._proxy = SharedProxy(
            self.world,
            Front(
                place=state,
                keeper=warden,
                http=self.http,
                admin_port=self._admin_port,
                port_of=self._port_of,
                inherited=inherited,
                pace=pace,
            ),
        )
        machine = Machine(
            image=IMAGE,
            place=state,
            keeper=warden,
            http=self.http,
            drained=self._proxy.drained,
            pace=pace,
            inherited=inherited,
            as_command=self._as_command,
            containers=containers,
        )
        self._kubelet = Kubelet(self.world, machine, mine=lambda pod: not is_proxy_pod(pod))
        self._forwarder = Forwarder(self.world.store, bare=self._bare, ready_addresses=self._ready_addresses)
        self._deployments = Deployments(self.world, ports_for=self._ports_for)
        self._asker = Asker()
        contents = ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=self._whole_object)
        self._settings = _settings(
            state,
            os.environ,
            url_here=lambda namespace, name: (
                f"http://{pods.HOST}:{self._port_of(f'{namespace}/{name}')}{names.MCP_PATH}"
            ),
        )
        self._controllers = controllers(
            settings=self._settings, ask=self._asker, nudge=_nothing_to_nudge, contents=contents
        )
        for controller in self._controllers.all:
            for resource, indexes in controller.indexes.items():
                self.world.store.register(resource, indexes=indexes)
        self.world.subscribe(MCP_SERVER, lambda _: self._changed())
        self.world.subscribe(POD, self._pod_changed)

    def put(self, manifests: Manifests) -> list[str]:
        """Makes the world hold what the files say; returns what a person should know, in words.

        What was applied or removed by hand stays so, until the files say something new of that very object.
        """
        before, now = self._from_files, manifests.objects
        by_hand = {key: obj for key, obj in self._by_hand.items() if before.get(key) == now.get(key)}
        notes = self._settle(now, by_hand)
        self._from_files, self._by_hand = now, by_hand
        return notes

    def apply(self, objects: Mapping[Key, Mapping[str, Any]]) -> list[str]:
        """Adds or replaces objects of the user."""
        by_hand = {**self._by_hand, **objects}
        notes = self._settle(self._from_files, by_hand)
        self._by_hand = by_hand
        return notes

    def remove(self, keys: Iterable[Key]) -> None:
        """Removes objects of the user, whatever the files say."""
        self._by_hand |= dict.fromkeys(keys)
        self._settle(self._from_files, self._by_hand)

    def _settle(
        self, files: Mapping[Key, Mapping[str, Any]], by_hand: Mapping[Key, Mapping[str, Any] | None]
    ) -> list[str]:
        wanted = {key: obj for key, obj in {**files, **by_hand}.items() if obj is not None}
        wanted |= self._issuer.added(wanted)
        assignments = self._book.assign(_server_keys(wanted))
        notes = [_moved(route, a) for route, a in assignments.items() if a.moved]
        for key in self._user_objects.keys() - wanted.keys():
            self.world.delete(self.world.catalogue.ref(self._user_objects[key]))
        for obj in wanted.values():
            self.world.put(obj)
        self._user_objects = wanted
        self._forwarder.look()
        self._changed()
        return notes

    async def rehearse(self, objects: Mapping[Key, Mapping[str, Any]]) -> NowAndThen:
        """What the controllers want now, and what they would want if these objects were applied."""
        catalogue = self.world.catalogue
        live = {ref: obj for r in catalogue.values() for obj in self.world.store.list(r) if (ref := catalogue.ref(obj))}
        then = live | {ref: _as_if(obj, live.get(ref)) for obj in objects.values() if (ref := catalogue.ref(obj))}
        now_and_then = []
        for world in (live, then):

            async def fetch(resource: Resource, namespace: str, name: str, world: Any = world) -> Obj | None:
                return cast("Obj | None", world.get(resource.ref(namespace, name)))

            contents = ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=fetch)
            now_and_then.append(
                await rehearse(
                    world.values(),
                    settings=self._settings,
                    contents=contents,
                    catalogue=catalogue,
                    hash_annotation=None,
                )
            )
        return now_and_then[0], now_and_then[1]

    def objects(self) -> list[Obj]:
        """Everything in the world; of a server, `status.url` is where it is reached on this machine."""
        return [
            self._with_address(obj) if resource == MCP_SERVER else obj
            for resource in self.world.catalogue.values()
            for obj in self.world.store.list(resource)
        ]

    def _with_address(self, server: Obj) -> Obj:
        if "url" not in (server.get("status") or {}):
            return server
        status = server["status"]
        return {**server, "status": {**status, "url": view.url_at(self._address_of(server), status["url"])}}

    def rows(self) -> list[Row]:
        return view.rows(
            self.world.store.list(MCP_SERVER),
            address_of=self._address_of,
            log_of=self._log_of,
            token_of=lambda server: shown_path(self._issuer.token_file) if asks_for_it(server) else "",
        )

    def servers(self) -> tuple[Obj, ...]:
        return self.world.store.list(MCP_SERVER)

    def pods_of(self, namespace: str, name: str) -> list[Obj]:
        """The pods of the server itself, newest first."""
        selector = names.selector(name, names.COMPONENT_SERVER)
        found = [
            pod
            for pod in self.world.store.list(POD, namespace)
            if selector.items() <= (pod["metadata"].get("labels") or {}).items()
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)

    async def run(self) -> None:
        """Works until cancelled. An exception out of here is a bug."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deployments.run(), name="deployments")
            tasks.create_task(self._kubelet.run(), name="kubelet")
            tasks.create_task(self._proxy.run(), name="proxy")
            tasks.create_task(self._forwarder.run(), name="forwarder")
            for controller in self._controllers.all:
                tasks.create_task(controller.run(self.world, grace=1.0), name=controller.name)

    async def stop(self, *, grace: float) -> None:
        """After `run` was cancelled: first the proxy, so that clients see an orderly end, then the servers."""
        await self._controllers.observer.stop()
        await self._proxy.stop(grace=grace)
        await self._kubelet.stop(grace=grace)
        await self._asker.aclose()
        await self.http.aclose()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls the listener from now on, until what this returns is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _as_command(self, pod: Mapping[str, Any]) -> bool:
        metadata = pod["metadata"]
        server = self.world.store.get(MCP_SERVER, metadata["namespace"], metadata["labels"].get(names.LABEL_SERVER, ""))
        return server is not None and (server["metadata"].get("annotations") or {}).get(ANNOTATION) == COMMAND

    async def _whole_object(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        return self.world.store.get(resource, namespace, name)

    def _changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _ports_for(self, deployment: Mapping[str, Any]) -> dict[int, int]:
        if is_proxy_pod(deployment):
            inside = pods.named_port(deployment["spec"]["template"]["spec"], names.PORT_MCP) or names.PROXY_PORT
            return {inside: self._port_of(route_of(deployment)), names.ADMIN_PORT: self._admin_port}
        spec = deployment["spec"]["template"]["spec"]
        return {port: self._book.any_free() for port in pods.container_ports(spec)}

    def _pod_changed(self, change: Change) -> None:
        self._changed()
        if change.new is None and not is_proxy_pod(change.obj):
            self._book.give_back(pods.host_ports(change.obj).values())

    def _address_of(self, server: Mapping[str, Any]) -> str:
        return f"{pods.HOST}:{self._port_of(view.key_of(server))}"

    def _log_of(self, server: Mapping[str, Any]) -> str:
        for pod in self.pods_of(server["metadata"]["namespace"], server["metadata"]["name"]):
            log = self._state.log_of(pod["metadata"]["name"])
            if log.exists() and log.stat().st_size:
                return shown_path(log)
        return ""

    def _port_of(self, server: str) -> int:
        return self._book.assign([server])[server].port

    def _bare(self) -> dict[str, int]:
        """Servers without a proxy, and where they are reached."""
        bare = (view.key_of(server) for server in self.servers() if view.proxy_mode(server) == "none")
        return {key: self._port_of(key) for key in bare}

    def _ready_addresses(self, server: str) -> list[str]:
        namespace, _, name = server.partition("/")
        ready = (pod for pod in self.pods_of(namespace, name) if pods.is_ready(pod))
        return [address for pod in ready if (address := address_of(pod, names.PORT_MCP))]


def _server_keys(objects: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> list[str]:
    return [f"{namespace}/{name}" for kind, namespace, name in objects if kind == MCP_SERVER.kind]


def _as_if(obj: Mapping[str, Any], live: Mapping[str, Any] | None) -> Obj:
    """The object as the world would have it; one that is not there yet gets a uid that nobody has."""
    kept = live["metadata"] if live else {"uid": "not-yet", "generation": 1}
    metadata = {**obj["metadata"], "uid": kept["uid"], "generation": kept["generation"], "resourceVersion": "1"}
    return {**obj, "metadata": metadata}


def _settings(state: StateDirectory, environ: Mapping[str, str], *, url_here: Callable[[str, str], str]) -> Settings:
    """What this place is. Where packages come from, uv and npm are told as they would be by hand."""

    def first(*variables: str) -> str:
        return next((environ[name] for name in variables if environ.get(name)), "")

    return Settings(
        image=IMAGE,
        publishes=False,
        processes=True,
        proxy_directory=str(state.proxy / "files"),
        shared_proxy=True,
        url_here=url_here,
        package_cache=str(state.packages),
        package_index=first("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"),
        npm_registry=first("npm_config_registry", "NPM_CONFIG_REGISTRY"),
        package_proxy=first("HTTPS_PROXY", "https_proxy"),
        package_no_proxy=first("NO_PROXY", "no_proxy"),
        runtimes=f"{DEFAULT_NAMESPACE}/fairway-runtimes",
    )


def _moved(route: str, assignment: Assignment) -> str:
    name = route.removeprefix("default/")
    return f"port {assignment.wanted} is taken by another program; {name} listens on {assignment.port} this time"


async def _nothing_to_nudge(pod: Mapping[str, Any], wanted: str) -> None:
    """The proxy's files are written at once here; there is no kubelet to hurry."""
