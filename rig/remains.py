"""What a node leaves in the kernel when its processes are gone: cgroups, mounts, sysctls."""

import contextlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from rig.machine import cgroup_hierarchies
from rig.packages import program
from rig.process import end_processes
from rig.state import Settings, State

# What a kubelet sets for the whole machine.
KUBELET_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
SYSCTLS = Path("/proc/sys")
LEGACY_LOG_LINKS = Path("/var/log/containers")


def make_cgroups(settings: Settings, hierarchies: Iterable[Path] | None = None) -> None:
    """The root of this rig's cgroups; a kubelet does not make its own."""
    for hierarchy in cgroup_hierarchies() if hierarchies is None else hierarchies:
        directory = cgroup_directory(hierarchy, settings)
        directory.mkdir(exist_ok=True)
        controllers = hierarchy / "cgroup.controllers"
        if controllers.exists():
            # Version 2: what is not handed down to the children cannot limit them.
            enabled = " ".join(f"+{name}" for name in controllers.read_text().split())
            for parent in (hierarchy, directory):
                with contextlib.suppress(OSError):
                    (parent / "cgroup.subtree_control").write_text(enabled)


def cgroup_directory(hierarchy: Path, settings: Settings) -> Path:
    return hierarchy / settings.cgroup.lstrip("/")


def processes_in_cgroups(settings: Settings, hierarchies: Iterable[Path] | None = None) -> set[int]:
    """Everything that runs in a pod of this rig."""
    found: set[int] = set()
    for hierarchy in cgroup_hierarchies() if hierarchies is None else hierarchies:
        for file in cgroup_directory(hierarchy, settings).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found.update(int(line) for line in file.read_text().split() if line != "0")
    return found


def remove_cgroups(settings: Settings, hierarchies: Iterable[Path] | None = None) -> None:
    end_processes(processes_in_cgroups(settings, hierarchies))
    for hierarchy in cgroup_hierarchies() if hierarchies is None else hierarchies:
        top = cgroup_directory(hierarchy, settings)
        below = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
        for directory in [*below, top]:
            # The files in a cgroup are not removed, and do not keep it from being removed.
            with contextlib.suppress(OSError):
                directory.rmdir()


def mounts_below(directories: Iterable[Path], mounts: str | None = None) -> list[str]:
    """Mount points under these directories, the deepest first."""
    text = mounts if mounts is not None else Path("/proc/self/mounts").read_text()
    # Spaces in paths are written as \040.
    points = [line.split()[1].encode().decode("unicode_escape") for line in text.splitlines()]
    prefixes = tuple(f"{directory}/" for directory in directories)
    return sorted((point for point in points if point.startswith(prefixes)), reverse=True)


def unmount(directories: Iterable[Path]) -> None:
    points = mounts_below(directories)
    if points:
        # Lazily: a volume that something still looks at goes when it stops looking.
        subprocess.run([program("umount"), "--lazy", *points], capture_output=True, check=False)


def remember_sysctls(state: State, root: Path = SYSCTLS) -> None:
    file = _sysctl_file(state)
    if file.exists():
        return
    values = {}
    for name in KUBELET_SYSCTLS:
        with contextlib.suppress(OSError):
            values[name] = (root / name).read_text().strip()
    file.write_text(json.dumps(values))


def restore_sysctls(state: State, root: Path = SYSCTLS) -> None:
    file = _sysctl_file(state)
    if not file.exists():
        return
    values: Mapping[str, str] = json.loads(file.read_text())
    for name, value in values.items():
        # Another rig may be running: it set the same values, and its kubelet does not check them again.
        with contextlib.suppress(OSError):
            (root / name).write_text(value)
    file.unlink()


def remove_log_links(state: State, links: Path = LEGACY_LOG_LINKS) -> None:
    """The kubelet links every container's log here; once the logs are gone the links point nowhere."""
    if not links.is_dir():
        return
    for link in links.iterdir():
        if link.is_symlink() and link.readlink().is_relative_to(state.root):
            link.unlink(missing_ok=True)


def _sysctl_file(state: State) -> Path:
    return state.config / "machine-sysctls.json"
