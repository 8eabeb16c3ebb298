"""Bringing a rig up: every step does nothing where its work is done already."""

import ipaddress
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rig import controlplane, remains
from rig.addons import apply_dns, apply_network_policy_rights, dns_answers, dns_image
from rig.api import Api, condition_of, wait_for
from rig.binary import Binaries, ensure_binaries, ensure_policy_enforcer
from rig.controlplane import ControlPlane
from rig.crds import apply_crds
from rig.errors import RigError
from rig.gomodule import discard_private_caches
from rig.image import load_image
from rig.machine import require_linux, require_node
from rig.network import make_network, network_exists, taken_networks
from rig.node import NODE_NAME, Node
from rig.pki import ensure_pki, identities
from rig.process import Daemon, ProcessTable, start_ticks
from rig.progress import Progress
from rig.state import REPOSITORY, Ports, Settings, State, free_ports, locked, new_settings, port_is_free
from rig.teardown import GUARD

READY_SECONDS = 120.0
ADDRESS_IN_USE = "address already in use"
START_TRIES = 3


@dataclass(frozen=True)
class Options:
    """What `up` was asked for."""

    node: bool = False
    crds: Path | None = None
    # The process without which the rig has no reason to live.
    owner: int | None = None
    apiserver_options: Sequence[str] = ()


def up(state: State, options: Options, *, progress: Progress) -> None:
    """Start what does not run yet. Returns when the API serves, and with `node` when pods can run."""
    require_linux()
    remembered = state.settings()
    with_node = options.node or bool(remembered and remembered.node)
    if with_node:
        require_node(progress=progress)
    binaries = ensure_binaries(progress=progress)
    enforcer = _policy_enforcer(progress) if with_node else None
    discard_private_caches()
    with locked(state):
        settings = _settings(state, node=with_node)
        ensure_pki(state.pki, identities(network=settings.network, node=NODE_NAME))
        rise = Rise(
            state=state,
            settings=settings,
            options=options,
            binaries=binaries,
            enforcer=enforcer,
            progress=progress,
        )
        rise.guard()
        if with_node:
            rise.runtime()
        rise.control_plane_on_free_ports()
        if with_node:
            rise.node()
        progress.close()


def _policy_enforcer(progress: Progress) -> Path | None:
    try:
        return ensure_policy_enforcer(progress=progress)
    except RigError as error:
        # A cluster without it is still good for everything else, and tests of policies see that it is not there.
        progress.milestone(f"NetworkPolicies are NOT ENFORCED: {error}")
        return None


def _settings(state: State, *, node: bool) -> Settings:
    remembered = state.settings()
    if remembered is None:
        settings = replace(new_settings(taken=taken_networks()), node=node)
    else:
        settings = replace(remembered, node=node)
        if not _runs(state) and not _all_free(settings.ports):
            settings = replace(settings, ports=free_ports())
    if node and not network_exists(settings):
        _refuse_taken_network(settings)
    if settings != remembered:
        state.remember(settings)
    return settings


def _refuse_taken_network(settings: Settings) -> None:
    ours = ipaddress.ip_network(settings.network.cidr)
    for taken in taken_networks():
        if ours.overlaps(ipaddress.ip_network(taken, strict=False)):
            raise RigError(
                f"the network {ours} of this rig is in use by now ({taken})",
                fix="python -m rig down --wipe, then python -m rig up --node",
            )


def _runs(state: State) -> bool:
    table = ProcessTable(run=state.run, logs=state.logs)
    return any(table.pid(name) for name in controlplane.NAMES)


def _all_free(ports: Ports) -> bool:
    return all(port_is_free(getattr(ports, name)) for name in Ports.__dataclass_fields__)


class Rise:
    """The steps of one `up`, in the order in which they are called."""

    def __init__(
        self,
        *,
        state: State,
        settings: Settings,
        options: Options,
        binaries: Binaries,
        enforcer: Path | None,
        progress: Progress,
    ) -> None:
        self._state = state
        self._settings = settings
        self._options = options
        self._binaries = binaries
        self._enforcer = enforcer
        self._progress = progress
        self._table = ProcessTable(run=state.run, logs=state.logs)
        self._background = ThreadPoolExecutor(max_workers=1)
        self._images: Future[None] = Future()

    @property
    def _plane(self) -> ControlPlane:
        return ControlPlane(
            state=self._state,
            settings=self._settings,
            binaries=self._binaries,
            apiserver_options=tuple(self._options.apiserver_options),
        )

    @property
    def _node(self) -> Node:
        return Node(state=self._state, settings=self._settings, binaries=self._binaries, plane=self._plane)

    def guard(self) -> None:
        """Leave a process behind that takes everything down when the owner ends, even by SIGKILL."""
        owner = self._options.owner
        if owner is None:
            return
        started = start_ticks(owner)
        if started is None:
            raise RigError(f"--owner {owner}: there is no such process")
        command = ("-m", "rig", "guard", "--owner", str(owner), "--owner-started", str(started))
        self._table.start(
            Daemon(
                name=GUARD,
                argv=(sys.executable, *command),
                executable=Path(sys.executable),
                environment=(("RIG_STATE", str(self._state.root)), ("PYTHONPATH", str(REPOSITORY))),
            )
        )

    def runtime(self) -> None:
        """The node's network and containerd: they need no API server and start beside it."""
        remains.make_cgroups(self._settings)
        make_network(self._settings)
        self._node.write_files()
        self._table.start(self._node.containerd())
        self._images = self._background.submit(self._load_images)

    def _load_images(self) -> None:
        wait_for(
            "containerd to answer",
            self._node.containerd_answers,
            seconds=READY_SECONDS,
            meanwhile=lambda: self._table.require(["containerd"]),
        )
        self._node.load_pause()
        load_image(self._state, dns_image())

    def control_plane_on_free_ports(self) -> None:
        for last in [False] * (START_TRIES - 1) + [True]:
            try:
                self._control_plane()
                return
            except RigError as error:
                # Somebody was quicker between the choice of a port and its use.
                if last or ADDRESS_IN_USE not in str(error):
                    raise
            self._table.stop(controlplane.NAMES, at_once=True)
            self._settings = replace(self._settings, ports=free_ports())
            self._state.remember(self._settings)

    def _control_plane(self) -> None:
        plane, table = self._plane, self._table
        plane.write_files()
        self._link_kubectl()
        api = Api.from_kubeconfig(self._state.kubeconfig)
        table.start(plane.etcd())
        table.start(plane.apiserver())
        self._progress.update("etcd and kube-apiserver start")
        wait_for(
            "the API server to be ready",
            api.is_ready,
            seconds=READY_SECONDS,
            meanwhile=lambda: table.require(["etcd", "kube-apiserver"]),
        )
        self._progress.milestone(f"kube-apiserver ready at {plane.server}")
        if new_kinds := apply_crds(api, self._options.crds):
            self._progress.milestone(f"{len(new_kinds)} CRDs established")
            # The garbage collector learns kinds at its start and then only every 30 s.
            table.stop(["kube-controller-manager"], at_once=True)
        started = [table.start(plane.controller_manager()), table.start(plane.scheduler())]
        wait_for(
            "the service account `default`",
            lambda: api.find("/api/v1/namespaces/default/serviceaccounts/default"),
            seconds=READY_SECONDS,
            meanwhile=lambda: table.require(controlplane.NAMES),
        )
        if any(started):
            self._progress.milestone("kube-controller-manager and kube-scheduler ready")

    def node(self) -> None:
        """kubelet and kube-proxy; returns when the node is Ready."""
        node, table = self._node, self._table
        remains.remember_sysctls(self._state)
        started = [table.start(node.kubelet()), table.start(node.proxy())]
        api = Api.from_kubeconfig(self._state.kubeconfig)
        self._images.result()
        wait_for(
            "the node to be Ready",
            lambda: condition_of(api.find(f"/api/v1/nodes/{NODE_NAME}") or {}, "Ready") == "True",
            seconds=READY_SECONDS,
            meanwhile=lambda: table.require(["containerd", "kubelet", "kube-proxy"]),
        )
        if any(started):
            self._progress.milestone(f"{NODE_NAME} ready at {self._settings.network.node_address}")
        if self._enforcer:
            apply_network_policy_rights(api)
            table.start(node.network_policy(self._enforcer))
        # Not before there is a node: the scheduler comes back to a pod that fitted nowhere only after a second.
        apply_dns(api, self._settings.network)
        wait_for(
            "names to resolve",
            lambda: dns_answers(self._settings.network),
            seconds=READY_SECONDS,
            meanwhile=lambda: table.require(["containerd", "kubelet", "kube-proxy"]),
        )
        if any(started):
            self._progress.milestone("names resolve")

    def _link_kubectl(self) -> None:
        """The multi-call binary is whatever it is called by."""
        kubectl = self._binaries.of("kubectl")
        self._state.bin.mkdir(parents=True, exist_ok=True)
        link = self._state.bin / "kubectl"
        if os.access(kubectl, os.X_OK):
            link.unlink(missing_ok=True)
            link.symlink_to(kubectl)
