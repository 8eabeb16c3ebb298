"""What the node tier needs from the system, and how it gets there."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import CannotRunError
from rig.progress import Progress
from rig.state import cache_directory

# The PATH of an ordinary shell often lacks the directories of the administrator.
SYSTEM_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
APT_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Need:
    """A program, and the Debian package that has it."""

    program: str
    package: str


NEEDS = (
    Need("containerd", "containerd"),
    Need("containerd-shim-runc-v2", "containerd"),
    Need("ctr", "containerd"),
    Need("runc", "runc"),
    Need("nft", "nftables"),
    Need("iptables", "iptables"),
    Need("ipset", "ipset"),
    Need("ip", "iproute2"),
    Need("nsenter", "util-linux"),
    Need("mount", "mount"),
)
CNI_PACKAGE = "containernetworking-plugins"


@dataclass(frozen=True)
class Missing:
    """Programs that are not there, and the packages that would bring them."""

    programs: Sequence[str]
    packages: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.programs)


def find_program(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join([environ.get("PATH", ""), *SYSTEM_PATH]))
    return Path(found) if found else None


def program(name: str) -> Path:
    found = find_program(name)
    if found is None:
        package = next((need.package for need in NEEDS if need.program == name), name)
        raise CannotRunError(f"{name} is not installed", fix=f"apt-get install {package}")
    return found


def cni_directory(candidates: Sequence[Path] = CNI_DIRECTORIES) -> Path | None:
    """Where all the network plug-ins lie."""
    for directory in candidates:
        if all(os.access(directory / plugin, os.X_OK) for plugin in CNI_PLUGINS):
            return directory
    return None


def missing(
    *,
    find: Callable[[str], Path | None] = find_program,
    cni: Callable[[], Path | None] = cni_directory,
) -> Missing:
    absent = [need for need in NEEDS if find(need.program) is None]
    programs = [need.program for need in absent]
    packages = [need.package for need in absent]
    if cni() is None:
        programs.append("CNI plug-ins (" + ", ".join(CNI_PLUGINS) + ")")
        packages.append(CNI_PACKAGE)
    return Missing(programs=programs, packages=sorted(set(packages)))


def refusal(lacking: Missing, *, root: bool, apt: bool, environ: Mapping[str, str]) -> CannotRunError | None:
    """Why these packages are not installed right now; None if they are to be."""
    names = " ".join(lacking.packages)
    problem = f"the node tier needs {', '.join(lacking.programs)}"
    if not apt:
        return CannotRunError(problem, fix=f"install what Debian calls {names} with this system's package manager")
    if environ.get("FAIRWAY_NO_APT") == "1":
        return CannotRunError(f"{problem}; FAIRWAY_NO_APT=1 forbids installing", fix=f"apt-get install {names}")
    if not root:
        return CannotRunError(problem, fix=f"sudo apt-get install --no-install-recommends {names}")
    return None


def ensure_packages(*, progress: Progress, environ: Mapping[str, str] = os.environ) -> None:
    """Install what is missing where that is possible and not forbidden."""
    lacking = missing()
    if not lacking:
        return
    refused = refusal(lacking, root=os.geteuid() == 0, apt=find_program("apt-get") is not None, environ=environ)
    if refused:
        raise refused
    # apt-get waits for others that install, but not for others that update its lists
    directory = cache_directory(environ)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if lacking := missing():
            _install(list(lacking.packages), progress=progress, environ=environ)


def _install(names: list[str], *, progress: Progress, environ: Mapping[str, str]) -> None:
    progress.milestone(f"installing {' '.join(names)} with apt-get (FAIRWAY_NO_APT=1 forbids it)")
    _apt(["update", "-qq"], names=names, environ=environ)
    _apt(["install", "-qq", "-y", "--no-install-recommends", *names], names=names, environ=environ)
    still = missing()
    if still:
        raise CannotRunError(
            f"apt-get installed {' '.join(names)}, and yet {', '.join(still.programs)} cannot be found",
            fix="look where the packages put them, and add that to PATH",
        )


def _apt(arguments: list[str], *, names: list[str], environ: Mapping[str, str]) -> None:
    answer = subprocess.run(
        ["apt-get", "-o", "DPkg::Lock::Timeout=120", *arguments],
        env={**environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=APT_TIMEOUT_SECONDS,
        check=False,
    )
    if answer.returncode != 0:
        last = "\n  ".join((answer.stderr or answer.stdout).strip().splitlines()[-4:])
        raise CannotRunError(
            f"apt-get {arguments[0]} failed:\n  {last}", fix=f"apt-get install {' '.join(names)} by hand"
        )
