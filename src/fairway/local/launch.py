"""How a container of the cluster becomes a process of this machine: command, environment and files. Pure.

What differs from a cluster, in full:

* The container runs Fairway's own image, so its arguments are those of `fairway`; any other image cannot start here.
* Every container port gets a free loopback port. A program learns of it where it would have read the container's port:
  from the variables in `PORT_VARIABLES`, and for Fairway's own commands from `--port`.
* Whatever would listen on all addresses listens on 127.0.0.1: the variables in `HOST_VARIABLES`, and `--host`.
* Mount paths are directories below the pod's own run directory; paths in arguments and variables are rewritten.
* Of the environment of `fairway up` only `INHERITED` is passed on.
* The termination message goes to the file named by FAIRWAY_TERMINATION_LOG.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.local import pod as pods
from fairway.local.environment import ConfigMissing, Lookup, environment_of, expand
from fairway.local.volumes import Volume, mounts_of, rewritten, volumes_of

Obj = Mapping[str, Any]

PORT_VARIABLES = frozenset({"MCP_PORT", "FASTMCP_PORT", "PORT"})
HOST_VARIABLES = frozenset({"MCP_HOST", "FASTMCP_HOST", "HOST"})
INHERITED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
TERMINATION_LOG = "FAIRWAY_TERMINATION_LOG"
COMMANDS_WITH_HOST_AND_PORT = frozenset({"tools"})
"""Sub-commands of ours that take --host and --port."""

_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that starting the process takes."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    volumes: tuple[Volume, ...]
    termination_log: Path


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the container waits, in the words of containerStatuses[].state.waiting."""

    reason: str
    message: str


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a child gets of our own environment; it runs in a directory of its own, so search paths become absolute."""
    found = {name: environment[name] for name in INHERITED if name in environment}
    if "PYTHONPATH" in found:
        found["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in found["PYTHONPATH"].split(os.pathsep) if p)  # noqa: PTH100
    return found


def launch_of(
    pod: Obj, container: Obj, *, image: str, run_directory: Path, lookup: Lookup, inherited: Mapping[str, str]
) -> Launch | Refused:
    """The process for one container of the pod; `image` is the one that stands for this very program."""
    if container.get("image") != image:
        return Refused(
            "NeedsContainerRuntime",
            f"image {container.get('image')} needs a container runtime, and local mode starts inline tools only: "
            "use spec.inlineTools here, or run this server on a cluster",
        )
    if pod["spec"].get("initContainers"):
        return Refused("CreateContainerConfigError", "local mode does not run init containers")
    if container.get("command"):
        return Refused("CreateContainerConfigError", "local mode runs the image's own command only; remove `command`")
    try:
        environment = environment_of(pod, container, lookup)
        volumes = volumes_of(pod, run_directory, lookup)
    except ConfigMissing as missing:
        return Refused("CreateContainerConfigError", str(missing))
    ports = pods.host_ports(pod)
    mounts = mounts_of(container, volumes)
    arguments = [rewritten(expand(a, environment), mounts) for a in container.get("args") or ()]
    termination_log = run_directory / f"{container['name']}.termination-log"
    local = {name: _local_value(name, value, ports, mounts) for name, value in environment.items()}
    return Launch(
        argv=(sys.executable, "-m", "fairway", *on_loopback(arguments, ports)),
        env={
            **inherited,
            "PYTHONUNBUFFERED": "1",
            "HOME": str(run_directory),
            **local,
            TERMINATION_LOG: str(termination_log),
        },
        volumes=tuple(volumes.values()),
        termination_log=termination_log,
    )


def _local_value(name: str, value: str, ports: Mapping[int, int], mounts: Mapping[str, Path]) -> str:
    if name in PORT_VARIABLES and value.isdecimal() and int(value) in ports:
        return str(ports[int(value)])
    if name in HOST_VARIABLES and value in _ALL_ADDRESSES:
        return pods.HOST
    return rewritten(value, mounts)


def on_loopback(arguments: Sequence[str], ports: Mapping[int, int]) -> list[str]:
    """The arguments of one of our commands, moved to loopback and to the port that it has on this machine."""
    if not arguments or arguments[0] not in COMMANDS_WITH_HOST_AND_PORT:
        return list(arguments)
    moved: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, joined, value = argument.partition("=")
        if option not in ("--host", "--port"):
            moved.append(argument)
            continue
        value = value if joined else next(waiting, "")
        if option == "--port":
            moved += ["--port", str(ports[int(value)]) if value.isdecimal() and int(value) in ports else value]
    return [*moved, "--host", pods.HOST]
