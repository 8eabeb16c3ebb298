"""What the machine must be able to do, checked before anything is started."""

import os
import platform
from pathlib import Path

from rig.errors import CannotRunError
from rig.packages import ensure_packages
from rig.progress import Progress

CGROUPS = Path("/sys/fs/cgroup")
# Bit numbers of the capabilities without which no container starts.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


def require_linux() -> None:
    if platform.system() != "Linux":
        raise CannotRunError(
            f"the rig runs on Linux only, this is {platform.system()}",
            fix="use a Linux machine or VM, or point RIG_KUBECONFIG to a cluster that you may break",
        )


def require_node(*, progress: Progress) -> None:
    """Everything that running pods takes; installs packages where it may."""
    require_linux()
    if os.geteuid() != 0:
        raise CannotRunError("the node tier needs root", fix="run it with sudo, or do without --node")
    lacking = lacking_capabilities(Path("/proc/self/status").read_text())
    if lacking:
        raise CannotRunError(
            f"the node tier needs {' and '.join(lacking)}, which root lacks here (a container?)",
            fix="run it on the machine itself or in a privileged container",
        )
    if not os.access(CGROUPS, os.W_OK) or not cgroup_hierarchies():
        raise CannotRunError(f"no cgroups can be made under {CGROUPS}", fix="mount cgroups there, writable")
    ensure_packages(progress=progress)


def lacking_capabilities(status: str) -> list[str]:
    """The needed capabilities that a /proc/PID/status does not show as effective."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    return list(CAPABILITIES)


def cgroup_hierarchies(mounts: str | None = None) -> list[Path]:
    """Where a kubelet wants cgroups: one place in version 2, each hierarchy in version 1, named ones too."""
    text = mounts if mounts is not None else Path("/proc/self/mounts").read_text()
    found = []
    for line in text.splitlines():
        _, where, kind = line.split()[:3]
        path = Path(where)
        if path.is_relative_to(CGROUPS) and (kind == "cgroup" or (kind == "cgroup2" and path == CGROUPS)):
            found.append(path)
    return found
