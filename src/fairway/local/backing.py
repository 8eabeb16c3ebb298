"""One proxy process for all servers, shown in the world as the proxy pods that a cluster would have."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fairway.api import names, proxystatus
from fairway.api.proxystatus import EndpointState, ProxyStatus
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, POD, SECRET, SERVICE, Obj
from fairway.local import pod as pods
from fairway.local.ending import last_words, size_of
from fairway.local.launch import TERMINATION_LOG
from fairway.local.process import CannotStart, Keeper, Process, Register
from fairway.local.proxyfiles import keep_files
from fairway.local.topology import endpoints_of, sockets_of
from fairway.local.volumes import replace_file
from fairway.mcp.http import HttpClient, HttpError
from fairway.process.pace import RestartPace
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.store import Change

REPLACEMENT_LIMIT = 10.0
DRAIN_LIMIT = 3.0
FIRST_LOOK, LONGEST_LOOK, GROWTH = 0.04, 0.5, 1.4


class Place(Register, Protocol):
    """Where the proxy finds its files."""

    @property
    def proxy(self) -> Path: ...
    def log_of(self, name: str) -> Path: ...


def is_proxy_pod(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is one of our proxies in front of a server, which here share one process."""
    return (pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_PROXY


def route_of(obj: Mapping[str, Any]) -> str:
    """The name of the route that a proxy's pod or RunConfig stands for."""
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['labels'][names.LABEL_SERVER]}"


@dataclass(frozen=True, slots=True)
class Front:
    """What the shared proxy is run with."""

    place: Place
    keeper: Keeper
    http: HttpClient
    admin_port: int
    port_of: Callable[[str], int]
    """The port of this machine on which clients reach a route."""
    inherited: Mapping[str, str]
    pace: RestartPace


class SharedProxy:
    """Keeps the proxy's files equal to the world, its process running, and the proxy pods telling how it is."""

    def __init__(self, world: MemoryWorld, front: Front) -> None:
        self._world = world
        self._front = front
        self._process: Process | None = None
        self._container = pods.Container(names.CONTAINER_PROXY, "")
        self._ready: set[str] = set()
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._answered = asyncio.Condition()
        self._endpoints: Mapping[str, EndpointState] = {}
        self._released: set[str] = set()
        self._unheard: set[str] = set()
        """Routes that have no port to listen on."""
        self._draining = 0

    async def run(self) -> None:
        """Works until cancelled; `stop` ends the process."""
        unsubscribe = [self._world.subscribe(kind, self._changed) for kind in (CONFIG_MAP, SERVICE, POD)]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_files())
                tasks.create_task(self._keep_running())
                tasks.create_task(self._keep_looking())
        finally:
            for stop in unsubscribe:
                stop()

    async def stop(self, *, grace: float) -> None:
        if self._process is not None:
            await self._process.stop(grace=grace)

    async def drained(self, pod: Obj) -> None:
        """Returns once the proxy no longer sends to this pod, or has had long enough to notice.

        A pod that is ready is not yet one that the proxy has shaken hands with: until it has, the old one serves on.
        """
        self._draining += 1
        self._news.set()
        uid = pod["metadata"]["uid"]
        try:
            await self._until_answers(lambda: not self._replacement_is_pending(pod), within=REPLACEMENT_LIMIT)
            self._released.add(uid)
            self.write_files()
            await self._until_answers(lambda: uid not in self._endpoints, within=DRAIN_LIMIT)
        finally:
            self._draining -= 1

    async def _until_answers(self, holds: Callable[[], bool], *, within: float) -> None:
        """Waits for answers of the proxy until one makes it hold; not at all where no proxy runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within), self._answered:
                while self._process is not None and not self._process.ended:
                    await self._answered.wait()
                    if holds():
                        return

    def _replacement_is_pending(self, pod: Obj) -> bool:
        if self._endpoints.get(pod["metadata"]["uid"]) is not EndpointState.OK:
            return False  # nothing is lost with it: it answers nobody, or has no proxy in front
        owners = [owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()]
        ready = [p for owner in owners for p in self._world.store.owned_by(owner, POD) if pods.is_ready(p)]
        good = [p for p in ready if self._endpoints.get(p["metadata"]["uid"]) is EndpointState.OK]
        return bool(ready) and not good

    # the world

    def _changed(self, change: Change) -> None:
        self._news.set()
        if change.resource is POD and change.new is None:
            self._released.discard(change.obj["metadata"]["uid"])
        if change.resource is POD and change.new is not None and is_proxy_pod(change.new):
            # not right here: others have yet to hear of this change, and should not hear of the next one first
            asyncio.get_running_loop().call_soon(self._pod_changed, change.new, change.old is None)

    def _pod_changed(self, pod: Obj, is_new: bool) -> None:
        if pods.is_gone(pod):
            self._ready.discard(pod["metadata"]["uid"])
            self._world.delete(POD.ref(pod["metadata"]["namespace"], pod["metadata"]["name"]))
        elif is_new:
            self._wanted.set()
            self._tell(pod)

    def _pods(self) -> list[Obj]:
        return [pod for pod in self._world.store.list(POD) if is_proxy_pod(pod) and not pods.is_gone(pod)]

    def _tell(self, pod: Obj) -> None:
        spec = pod["spec"]["containers"][0]
        ready = pod["metadata"]["uid"] in self._ready and "running" in self._container.state
        container = replace(self._container, name=spec["name"], image=spec.get("image", ""), ready=ready)
        if route_of(pod) in self._unheard and not ready:
            port = self._front.port_of(route_of(pod))
            container = container.waits("PortTaken", f"port {port} on {pods.HOST} is taken by another program")
        status = pods.status_of(pod, [container], now=pods.timestamp())
        self._world.set_status(POD.ref(pod["metadata"]["namespace"], pod["metadata"]["name"]), status)

    def _set(self, container: pods.Container) -> None:
        self._container = container
        for pod in self._pods():
            self._tell(pod)

    # the files

    async def _keep_files(self) -> None:
        news = asyncio.Event()
        unsubscribe = [
            self._world.subscribe(kind, lambda _: news.set()) for kind in (CONFIG_MAP, SECRET, DEPLOYMENT, SERVICE, POD)
        ]
        try:
            while True:
                self.write_files()
                await news.wait()
                news.clear()
        finally:
            for stop in unsubscribe:
                stop()

    def write_files(self) -> None:
        """RunConfigs byte for byte, and where their listeners and Services are on this machine."""
        directory = self._front.place.proxy / "config"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        configs = {
            f"{config['metadata']['namespace']}.{config['metadata']['name']}.json": config
            for config in self._world.store.list(CONFIG_MAP)
            if (config["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_PROXY
            and names.RUNCONFIG_KEY in (config.get("data") or {})
        }
        topology = {
            "listen": {
                (route := route_of(config)): f"{pods.HOST}:{self._front.port_of(route)}" for config in configs.values()
            },
            "endpoints": endpoints_of(
                self._world.store.list(SERVICE), self._world.store.list(POD), released=self._released
            ),
            "attach": sockets_of(self._world.store.list(POD), released=self._released),
        }
        # where a route listens is known before the route is
        replace_file(self.topology_file, json.dumps(topology, indent=2, sort_keys=True).encode() + b"\n")
        # what a RunConfig names is there before it is
        keep_files(self._world.store, self._front.place.proxy / "files")
        for name, config in configs.items():
            replace_file(directory / name, config["data"][names.RUNCONFIG_KEY].encode())
        for path in directory.glob("*.json"):
            if path.name not in configs:
                path.unlink()

    @property
    def topology_file(self) -> Path:
        return self._front.place.proxy / "topology.json"

    # the process

    async def _keep_running(self) -> None:
        await self._wanted.wait()  # nobody needs a proxy where every server goes without
        crashes = 0
        while True:
            started = time.monotonic()
            ended = await self._one_run()
            crashes = self._front.pace.crashes(crashes, lasted=time.monotonic() - started)
            wait = self._front.pace.wait(crashes)
            self._ready.clear()
            self._set(self._container.crashed(ended, wait=wait))
            await asyncio.sleep(wait)
            self._container = replace(self._container, restarts=self._container.restarts + 1)

    async def _one_run(self) -> pods.Obj:
        front, since, log = self._front, pods.timestamp(), self._front.place.log_of("proxy")
        termination_log = front.place.proxy / "termination-log"
        termination_log.unlink(missing_ok=True)
        log_start = size_of(log)
        self.write_files()
        try:
            self._process = await Process.start(
                self._command(),
                env={**front.inherited, "PYTHONUNBUFFERED": "1", TERMINATION_LOG: str(termination_log)},
                directory=front.place.proxy,
                log=log,
                keeper=front.keeper,
                register=front.place,
            )
        except CannotStart as error:
            return pods.terminated(
                exit_code=128,
                signal=0,
                started=since,
                finished=pods.timestamp(),
                message=str(error),
                reason="StartError",
            )
        self._set(self._container.running(since=since))
        self._news.set()
        ended = await self._process.wait()
        return pods.terminated(
            exit_code=ended.code,
            signal=ended.signal,
            started=since,
            finished=pods.timestamp(),
            message=last_words(termination_log, log, log_start, ended),
        )

    def _command(self) -> list[str]:
        place = self._front.place.proxy
        return [
            *(sys.executable, "-m", "fairway", "proxy"),
            *("--config", str(place / "config")),
            *("--admin", f"{pods.HOST}:{self._front.admin_port}"),
            *("--topology", str(self.topology_file)),
            *("--pre-stop", "0"),
        ]

    # its answers

    async def _keep_looking(self) -> None:
        """Asks the proxy how its routes are, but only while somebody waits for the answer."""
        pace = FIRST_LOOK
        while True:
            if not self._somebody_waits():
                self._news.clear()
                await self._news.wait()
                pace = FIRST_LOOK
                continue
            status = await self._status()
            if status is not None:
                await self._hear(status)
            await asyncio.sleep(pace)
            pace = min(pace * GROWTH, LONGEST_LOOK)

    def _somebody_waits(self) -> bool:
        if self._process is None or self._process.ended:
            return False
        return self._draining > 0 or any(pod["metadata"]["uid"] not in self._ready for pod in self._pods())

    async def _status(self) -> ProxyStatus | None:
        url = f"http://{pods.HOST}:{self._front.admin_port}{proxystatus.PATH}"
        with suppress(HttpError, ValueError):
            response = await self._front.http.request("GET", url, timeout=2.0)
            if response.status == 200:
                return proxystatus.parse(response.body)
        return None

    async def _hear(self, status: ProxyStatus) -> None:
        self._endpoints = {e.uid: e.state for route in status.routes for e in route.endpoints}
        by_name = {route.name: route for route in status.routes}
        self._unheard = {name for name, route in by_name.items() if not route.listen} if status.config.error else set()
        for pod in self._pods():
            route = by_name.get(route_of(pod))
            if route is not None and route.ready and route.listen:
                self._ready.add(pod["metadata"]["uid"])
            self._tell(pod)
        async with self._answered:
            self._answered.notify_all()
