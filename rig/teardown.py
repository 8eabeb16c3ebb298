"""Taking a rig down: every process, and on request every trace."""

import contextlib
import shutil
from pathlib import Path

from rig import controlplane, node, remains
from rig.network import processes_in, remove_network
from rig.process import ProcessTable, end_processes, wait_for_exit
from rig.state import Settings, State, locked

GUARD = "guard"
MADE_HERE = (
    "kubeconfig",
    "pki",
    "config",
    "log",
    "run",
    "bin",
    "etcd",
    "containerd",
    "images",
    "ipam",
    "kubelet",
    "kubelet-pki",
    "pod-logs",
    "rig.json",
    "lock",
)


def down(state: State, *, wipe: bool, keep_guard: bool = False) -> None:
    """Stop everything that `up` started; with `wipe` forget the cluster too. Does nothing where there is no rig."""
    if not state.root.exists():
        return
    with locked(state):
        table = ProcessTable(run=state.run, logs=state.logs)
        # A settings file that cannot be read must not keep anybody from getting rid of the rig.
        settings = state.settings(broken_is_none=wipe)
        if not keep_guard:
            table.stop([GUARD], at_once=True)
        _stop_node(state, settings, table)
        # etcd last: what is still writing must find it.
        table.stop([name for name in controlplane.NAMES if name != "etcd"], at_once=wipe)
        table.stop(["etcd"], at_once=wipe)
        if wipe:
            _forget(state)


def guard(state: State, *, owner: int, started: int) -> None:
    """Wipe the rig once the program that it was made for is gone, however that one ended; a process of its own."""
    wait_for_exit(owner, started=started)
    down(state, wipe=True, keep_guard=True)


def _stop_node(state: State, settings: Settings | None, table: ProcessTable) -> None:
    # The kubelet first: it would start again what is ended.
    table.stop([name for name in reversed(node.NAMES) if table.pid(name)], at_once=True)
    if settings is None or not settings.node:
        return
    # What is in no pid file: the shims, and processes of pods.
    end_processes(processes_in(settings))
    remains.remove_cgroups(settings)
    remains.unmount([state.root, settings.sockets])
    remove_network(settings)
    shutil.rmtree(settings.sockets, ignore_errors=True)
    # The addresses that pods had: the pods are gone.
    shutil.rmtree(state.root / "ipam", ignore_errors=True)
    remains.restore_sysctls(state)


def _forget(state: State) -> None:
    """Remove what the rig made, and nothing else: the directory is the user's choice and may hold more."""
    for name in MADE_HERE:
        path: Path = state.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    remains.remove_log_links(state)
    with contextlib.suppress(OSError):
        state.root.rmdir()
