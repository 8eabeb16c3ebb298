"""The kubelet of this machine: runs the containers of pods as processes and writes the pods' status."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fairway.kube.resource import CONFIG_MAP, POD, SECRET, Obj, ObjectRef
from fairway.local import pod as pods
from fairway.local.box import Box
from fairway.local.ending import last_words, size_of
from fairway.local.environment import names_used
from fairway.local.launch import Launch, Refused, launch_of
from fairway.local.ports import is_free
from fairway.local.process import CannotStart, Exit, Keeper, Process, Register
from fairway.local.readiness import probe_of, readiness
from fairway.local.stdio import StdioSocket
from fairway.local.volumes import materialise
from fairway.mcp.http import HttpClient
from fairway.process.pace import RestartPace
from fairway.runtime.memory import MemoryWorld
from fairway.runtime.store import Change


class Place(Register, Protocol):
    """Where pods keep their files."""

    def remember_box(self, box: Box) -> None: ...
    def forget_box(self, box: Box) -> None: ...
    @property
    def run(self) -> Path: ...
    def log_of(self, name: str) -> Path: ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What every pod on this machine is run with."""

    image: str
    place: Place
    keeper: Keeper
    http: HttpClient
    drained: Callable[[Obj], Awaitable[None]]
    """Returns when nobody sends to the pod any more; then its processes may be stopped."""
    pace: RestartPace
    inherited: Mapping[str, str]
    """Our own environment, of which a pod gets little."""
    as_command: Callable[[Obj], bool]
    """Whether the pod's owner wants its command run on this machine, without its image."""
    containers: Callable[[], str]
    """The container runtime that works here: docker, podman, or none. Asked only where an image needs one."""


class Kubelet:
    """Runs every pod that `mine` picks, from the moment it is in the world until it has gone from it."""

    def __init__(self, world: MemoryWorld, machine: Machine, *, mine: Callable[[Mapping[str, Any]], bool]) -> None:
        self._world = world
        self._machine = machine
        self._mine = mine
        self._running: dict[str, _PodRunner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Works until cancelled; `stop` ends the pods."""
        self._failed = asyncio.get_running_loop().create_future()
        unsubscribe = [
            self._world.subscribe(POD, self._pod_changed),
            self._world.subscribe(CONFIG_MAP, self._config_changed),
            self._world.subscribe(SECRET, self._config_changed),
        ]
        for pod in self._world.store.list(POD):
            self._pod_changed(Change(POD, None, pod))
        try:
            await self._failed
        finally:
            for stop in unsubscribe:
                stop()

    async def stop(self, *, grace: float) -> None:
        """Stops every pod at once."""
        for runner in self._running.values():
            runner.retire(grace=grace, drain=False)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _pod_changed(self, change: Change) -> None:
        uid = change.obj["metadata"]["uid"]
        runner = self._running.get(uid)
        if runner is None:
            if change.new is not None and self._mine(change.new) and not pods.is_gone(change.new):
                self._begin(uid, change.new)
        elif change.new is None:
            runner.retire(drain=False)
        elif pods.is_gone(change.new):
            runner.retire(drain=True)

    def _begin(self, uid: str, pod: Obj) -> None:
        runner = self._running[uid] = _PodRunner(self._world, self._machine, pod)
        task = asyncio.create_task(runner.run(), name=f"pod {pod['metadata']['name']}")
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._running.pop(uid, None)
            if not task.cancelled() and (error := task.exception()) and self._failed and not self._failed.done():
                self._failed.set_exception(error)  # a bug here must not look like a quiet pod

        task.add_done_callback(ended)

    def _config_changed(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        for runner in self._running.values():
            runner.config_changed(change.resource.kind, metadata["namespace"], metadata["name"])


class _PodRunner:
    """One pod: its containers side by side, one status."""

    def __init__(self, world: MemoryWorld, machine: Machine, pod: Obj) -> None:
        self._world = world
        self._machine = machine
        self._pod = pod
        self._ref: ObjectRef = POD.ref(pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._retired = asyncio.Event()
        self._at_once = asyncio.Event()
        self._containers = {
            spec["name"]: pods.Container(spec["name"], spec.get("image", "")) for spec in pod["spec"]["containers"]
        }
        self._runners = [_ContainerRunner(self, machine, pod, spec) for spec in pod["spec"]["containers"]]

    def retire(self, *, grace: float | None = None, drain: bool) -> None:
        self._grace = self._grace if grace is None else min(grace, self._grace)
        if not drain:
            self._at_once.set()
        self._retired.set()

    def config_changed(self, kind: str, namespace: str, name: str) -> None:
        if namespace == self._ref.namespace:
            for runner in self._runners:
                runner.config_changed(kind, name)

    def update(self, container: pods.Container) -> None:
        self._containers[container.name] = container
        live = self._world.store.get_ref(self._ref)
        if live is not None and live["metadata"]["uid"] == self._pod["metadata"]["uid"]:
            status = pods.status_of(live, list(self._containers.values()), now=pods.timestamp())
            self._world.set_status(self._ref, status)

    def lookup(self, kind: str, namespace: str, name: str) -> Obj | None:
        return self._world.store.get(SECRET if kind == "Secret" else CONFIG_MAP, namespace, name)

    async def run(self) -> None:
        tasks = [asyncio.create_task(runner.run(), name=f"container {runner.name}") for runner in self._runners]
        retired = asyncio.create_task(self._retired.wait())
        try:
            await asyncio.wait([*tasks, retired], return_when=asyncio.FIRST_COMPLETED)
            if self._retired.is_set():
                await self._until_drained()
        finally:
            retired.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(runner.stop(self._grace) for runner in self._runners))
            results = await asyncio.gather(*tasks, return_exceptions=True)
        live = self._world.store.get_ref(self._ref)
        if live is not None and live["metadata"]["uid"] == self._pod["metadata"]["uid"]:
            self._world.delete(self._ref)
        shutil.rmtree(self._machine.place.run / self._ref.name, ignore_errors=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _until_drained(self) -> None:
        if self._at_once.is_set():
            return
        waits = [asyncio.ensure_future(self._machine.drained(self._pod)), asyncio.ensure_future(self._at_once.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class _ContainerRunner:
    """One container: start, probe, await the end, wait, start again."""

    def __init__(self, owner: _PodRunner, machine: Machine, pod: Obj, spec: Mapping[str, Any]) -> None:
        self.name: str = spec["name"]
        self._owner = owner
        self._machine = machine
        self._pod = pod
        self._spec = spec
        self._state = pods.Container(spec["name"], spec.get("image", ""))
        self._directory = machine.place.run / pod["metadata"]["name"]
        self._log = machine.place.log_of(pod["metadata"]["name"])
        self._depends_on = names_used(spec, pod["spec"].get("volumes") or ())
        self._config_news = asyncio.Event()
        self._start: asyncio.Task[Process] | None = None

    def config_changed(self, kind: str, name: str) -> None:
        if (kind, name) not in self._depends_on:
            return
        self._config_news.set()
        if self._start is not None and isinstance(launch := self._launch(), Launch):
            materialise(launch.volumes)  # mounted files follow their object, as on a cluster

    async def run(self) -> None:
        crashes = 0
        while True:
            launch = await self._launchable()
            started = time.monotonic()
            ended = await self._one_run(launch)
            crashes = self._machine.pace.crashes(crashes, lasted=time.monotonic() - started)
            wait = self._machine.pace.wait(crashes)
            self._set(self._state.crashed(ended, wait=wait))
            await asyncio.sleep(wait)
            self._state = replace(self._state, restarts=self._state.restarts + 1)

    async def stop(self, grace: float) -> None:
        if self._start is not None:
            with suppress(CannotStart):
                await (await self._start).stop(grace=grace)

    def _launch(self) -> Launch | Refused:
        return launch_of(
            self._pod,
            self._spec,
            image=self._machine.image,
            as_command=self._machine.as_command(self._pod),
            containers=self._machine.containers,
            run_directory=self._directory,
            lookup=self._owner.lookup,
            inherited=self._machine.inherited,
        )

    async def _launchable(self) -> Launch:
        """Waits, visibly, for as long as something is missing."""
        while True:
            self._config_news.clear()
            launch = self._launch()
            if isinstance(launch, Refused):
                self._set(self._state.waits(launch.reason, launch.message))
                await self._config_news.wait()
                continue
            own = [port["hostPort"] for port in self._spec.get("ports") or ()]
            taken = next((port for port in own if not is_free(port)), None)
            if taken is None:
                return launch
            self._set(self._state.waits("PortTaken", f"port {taken} on {pods.HOST} is taken by another program"))
            await asyncio.sleep(1.0)

    async def _one_run(self, launch: Launch) -> pods.Obj:
        """Runs the process to its end; returns how it ended, as containerStatuses would say it."""
        started, log_start = pods.timestamp(), size_of(self._log)
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            launch.termination_log.unlink(missing_ok=True)
            materialise(launch.volumes)
            if launch.box is not None:
                self._machine.place.remember_box(launch.box)
            process = await self._started(launch)
        except (CannotStart, OSError) as error:
            return pods.terminated(
                exit_code=128,
                signal=0,
                started=started,
                finished=pods.timestamp(),
                message=str(error),
                reason="StartError",
            )
        self._set(self._state.running(since=started))
        probing = asyncio.create_task(self._probe())
        try:
            ended = await self._until_its_end(process)
        finally:
            probing.cancel()
            if launch.box is not None:
                await asyncio.to_thread(launch.box.remove)
                self._machine.place.forget_box(launch.box)
        message = last_words(launch.termination_log, self._log, log_start, ended)
        self._note(ended)
        return pods.terminated(
            exit_code=ended.code, signal=ended.signal, started=started, finished=pods.timestamp(), message=message
        )

    async def _until_its_end(self, process: Process) -> Exit:
        if not self._spec.get("stdin"):
            return await process.wait()
        async with StdioSocket(self._directory, process.child):
            return await process.wait()

    async def _started(self, launch: Launch) -> Process:
        self._start = asyncio.create_task(
            Process.start(
                launch.argv,
                env=launch.env,
                directory=self._directory,
                log=self._log,
                keeper=self._machine.keeper,
                register=self._machine.place,
                pipes=bool(self._spec.get("stdin")),
            )
        )
        return await asyncio.shield(self._start)  # retired meanwhile, the child still comes, and `stop` ends it

    async def _probe(self) -> None:
        async for ready in readiness(probe_of(self._pod, self._spec), self._machine.http):
            self._set(replace(self._state, ready=ready))

    def _set(self, state: pods.Container) -> None:
        self._state = state
        self._owner.update(state)

    def _note(self, ended: Exit) -> None:
        how = f"signal {ended.signal}" if ended.signal else f"code {ended.code}"
        with suppress(OSError), self._log.open("a") as log:
            log.write(f"--- fairway: container {self.name} ended with {how}, {pods.timestamp()}\n")
