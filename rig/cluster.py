"""Bringing a rig up, taking it down, and saying how it is."""

import contextlib
import fcntl
import functools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rig.api import Api, ApiError, condition_of, read_manifests, wait_for
from rig.binary import Binaries, ensure_binaries
from rig.controlplane import NAMES, ControlPlane
from rig.errors import RigError
from rig.machine import require_linux
from rig.pki import ensure_pki, identities
from rig.process import Daemon, ProcessTable, start_ticks
from rig.progress import Progress
from rig.state import REPOSITORY, Ports, Settings, State, free_ports, new_settings, port_is_free

NODE_NAME = "rig-node"
GUARD = "guard"
READY_SECONDS = 120.0
ADDRESS_IN_USE = "address already in use"
START_TRIES = 3
MADE_HERE = ("kubeconfig", "pki", "config", "log", "run", "bin", "etcd", "rig.json", "lock")


@dataclass(frozen=True)
class Options:
    """What `up` was asked for."""

    node: bool = False
    crds: Path | None = None
    # The process without which the rig has no reason to live.
    owner: int | None = None
    apiserver_options: Sequence[str] = ()


def default_crds() -> Path | None:
    directory = REPOSITORY / "deploy" / "crds"
    return directory if directory.is_dir() else None


@contextlib.contextmanager
def locked(state: State) -> Iterator[None]:
    """One `up` or `down` at a time for one state directory."""
    state.root.mkdir(parents=True, exist_ok=True)
    path = state.root / "lock"
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever held it before may have wiped the directory, and this file with it.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return
        state.root.mkdir(parents=True, exist_ok=True)


def table_of(state: State) -> ProcessTable:
    return ProcessTable(run=state.run, logs=state.logs)


def up(state: State, options: Options, *, progress: Progress) -> None:
    """Start what does not run yet. Returns when the API serves, and with `node` when pods can run."""
    require_linux()
    binaries = ensure_binaries(progress=progress)
    with locked(state):
        settings = _settings(state, options)
        ensure_pki(state.pki, identities(network=settings.network, node=NODE_NAME))
        table = table_of(state)
        if options.owner is not None:
            _start_guard(table, state, options.owner)
        for last in [False] * (START_TRIES - 1) + [True]:
            try:
                _start_control_plane(state, settings, binaries, options, progress=progress)
                break
            except RigError as error:
                if last or ADDRESS_IN_USE not in str(error):
                    raise
            table.stop(NAMES, at_once=True)
            settings = replace(settings, ports=free_ports())
            state.remember(settings)
        progress.close()


def _settings(state: State, options: Options) -> Settings:
    remembered = state.settings()
    if remembered is None:
        settings = replace(new_settings(taken=[]), node=options.node)
    else:
        settings = replace(remembered, node=remembered.node or options.node)
        if not _runs(table_of(state)) and not _all_free(settings.ports):
            settings = replace(settings, ports=free_ports())
    if settings != remembered:
        state.remember(settings)
    return settings


def _runs(table: ProcessTable) -> bool:
    return any(table.pid(name) for name in NAMES)


def _all_free(ports: Ports) -> bool:
    return all(port_is_free(getattr(ports, name)) for name in Ports.__dataclass_fields__)


def _start_control_plane(
    state: State, settings: Settings, binaries: Binaries, options: Options, *, progress: Progress
) -> None:
    plane = ControlPlane(
        state=state, settings=settings, binaries=binaries, apiserver_options=tuple(options.apiserver_options)
    )
    plane.write_files()
    _link_kubectl(state, binaries)
    table = table_of(state)
    api = Api.from_kubeconfig(state.kubeconfig)
    table.start(plane.etcd())
    if table.start(plane.apiserver()):
        progress.update("etcd and kube-apiserver start")
    wait_for(
        "the API server to be ready",
        api.is_ready,
        seconds=READY_SECONDS,
        meanwhile=lambda: table.require(["etcd", "kube-apiserver"]),
    )
    progress.milestone(f"kube-apiserver ready at {plane.server}")
    new_kinds = apply_crds(api, options.crds)
    if new_kinds:
        progress.milestone(f"{len(new_kinds)} CRDs established")
        # The garbage collector learns kinds at its start and then only every 30 s.
        table.stop(["kube-controller-manager"], at_once=True)
    started = [table.start(plane.controller_manager()), table.start(plane.scheduler())]
    wait_for(
        "the service account `default`",
        lambda: api.find("/api/v1/namespaces/default/serviceaccounts/default"),
        seconds=READY_SECONDS,
        meanwhile=lambda: table.require(NAMES),
    )
    if any(started):
        progress.milestone("kube-controller-manager and kube-scheduler ready")


def _link_kubectl(state: State, binaries: Binaries) -> None:
    """The multi-call binary is whatever it is called by."""
    state.bin.mkdir(parents=True, exist_ok=True)
    link = state.bin / "kubectl"
    if os.access(binaries.of("kubectl"), os.X_OK):
        link.unlink(missing_ok=True)
        link.symlink_to(binaries.of("kubectl"))


def apply_crds(api: Api, source: Path | None) -> list[str]:
    """Apply every CRD there and wait until all are served; the names of those that did not exist before."""
    manifests = (
        [manifest for manifest in read_manifests(source) if manifest["kind"] == "CustomResourceDefinition"]
        if source
        else []
    )
    new = []
    for manifest in manifests:
        name = str(manifest["metadata"]["name"])
        if api.find(_crd_path(name)) is None:
            new.append(name)
        try:
            api.apply(manifest)
        except ApiError as error:
            raise RigError(f"the API server refuses the CRD {name}: {error}") from None
    for manifest in manifests:
        name = str(manifest["metadata"]["name"])
        wait_for(f"the CRD {name} to be established", functools.partial(_established, api, name), seconds=20)
    return new


def _crd_path(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"


def _established(api: Api, name: str) -> bool:
    manifest = api.get(_crd_path(name))
    if condition_of(manifest, "NamesAccepted") == "False":
        raise RigError(f"the names of the CRD {name} are taken by another one")
    return condition_of(manifest, "Established") == "True"


def _start_guard(table: ProcessTable, state: State, owner: int) -> None:
    started = start_ticks(owner)
    if started is None:
        raise RigError(f"--owner {owner}: there is no such process")
    argv = (sys.executable, "-m", "rig", "guard", "--owner", str(owner), "--owner-started", str(started))
    table.start(
        Daemon(
            name=GUARD,
            argv=argv,
            executable=Path(sys.executable),
            environment=(("RIG_STATE", str(state.root)), ("PYTHONPATH", str(REPOSITORY))),
        )
    )


@dataclass(frozen=True)
class Component:
    """One daemon as `status` shows it."""

    name: str
    pid: int | None
    megabytes: float


@dataclass(frozen=True)
class Status:
    """What of a rig runs, and whether its API answers."""

    server: str
    ready: bool
    components: Sequence[Component]


def status(state: State) -> Status:
    table = table_of(state)
    sizes = table.resident_megabytes()
    components = [Component(name, table.pid(name), sizes.get(name, 0.0)) for name in table.names()]
    if not components or not state.kubeconfig.exists():
        return Status(server="", ready=False, components=[])
    api = Api.from_kubeconfig(state.kubeconfig)
    ready = all(component.pid for component in components) and api.is_ready()
    return Status(server=api.access.server, ready=ready, components=components)


def down(state: State, *, wipe: bool, keep_guard: bool = False) -> None:
    """Stop everything that `up` started; with `wipe` forget the cluster too."""
    with locked(state):
        table = table_of(state)
        settings = state.settings() if state.settings_file.exists() else None
        if not keep_guard:
            table.stop([GUARD], at_once=True)
        # etcd last: what is still writing must find it.
        table.stop([name for name in NAMES if name != "etcd"], at_once=wipe)
        table.stop(["etcd"], at_once=wipe)
        if wipe and settings is not None:
            _forget(state)


def _forget(state: State) -> None:
    """Remove what the rig made, and nothing else: the directory is the user's choice and may hold more."""
    for name in MADE_HERE:
        path = state.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state.root.rmdir()
