"""How a container of the cluster becomes a process of this machine: command, environment and files. Pure.

What differs from a cluster, in full:

* A container of Fairway's own image is a `fairway` process with the same arguments.
* Any other image runs in docker or podman, where one of them works. Where its MCPServer is annotated
  `fairway.dev/local: command`, its command runs on this machine instead, without the image.
* Every container port gets a free loopback port. A program learns of it where it would have read the container's port:
  from the variables in `PORT_VARIABLES`, and for Fairway's own commands from `--port`.
* Whatever would listen on all addresses listens on 127.0.0.1: the variables in `HOST_VARIABLES`, and `--host`.
* Mount paths are directories below the pod's own run directory; paths in arguments and variables are rewritten.
* Of the environment of `fairway up` only `INHERITED` is passed on.
* The termination message goes to the file named by FAIRWAY_TERMINATION_LOG.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.local import pod as pods
from fairway.local.box import Box
from fairway.local.environment import ConfigMissing, Lookup, environment_of, expand
from fairway.local.volumes import Volume, mounts_of, rewritten, volumes_of

Obj = Mapping[str, Any]

PORT_VARIABLES = frozenset({"MCP_PORT", "FASTMCP_PORT", "PORT"})
HOST_VARIABLES = frozenset({"MCP_HOST", "FASTMCP_HOST", "HOST"})
INHERITED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
ANNOTATION = "fairway.dev/local"
COMMAND = "command"
TERMINATION_LOG = "FAIRWAY_TERMINATION_LOG"
COMMANDS_WITH_HOST_AND_PORT = frozenset({"tools"})
"""Sub-commands of ours that take --host and --port."""

_PYTHONS = frozenset({"python", "python3"})
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that starting the process takes."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    volumes: tuple[Volume, ...]
    termination_log: Path
    box: Box | None = None
    """The container that the process stands for, if it is only a client of a container runtime."""


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
    pod: Obj,
    container: Obj,
    *,
    image: str,
    run_directory: Path,
    lookup: Lookup,
    inherited: Mapping[str, str],
    as_command: bool = False,
    containers: Callable[[], str] = lambda: "",
) -> Launch | Refused:
    """The process for one container of the pod; `image` is the one that stands for this very program."""
    foreign = container.get("image") != image
    runtime = containers() if foreign and not as_command else ""
    if foreign and not as_command and not runtime:
        return Refused(
            "NeedsContainerRuntime",
            f"image {container.get('image')} needs docker or podman, and neither works here: start one, use "
            f"spec.inlineTools or spec.package, or annotate the MCPServer with {ANNOTATION}: {COMMAND} to run "
            "spec.command itself",
        )
    if pod["spec"].get("initContainers"):
        return Refused("CreateContainerConfigError", "local mode does not run init containers")
    if foreign and as_command and not container.get("command"):
        return Refused(
            "CreateContainerConfigError", f"{ANNOTATION}: {COMMAND} runs spec.command, and there is none; set it"
        )
    if container.get("command") and not foreign:
        return Refused("CreateContainerConfigError", "local mode runs the image's own command only; remove `command`")
    try:
        environment = environment_of(pod, container, lookup)
        volumes = volumes_of(pod, run_directory, lookup)
    except ConfigMissing as missing:
        return Refused("CreateContainerConfigError", str(missing))
    ports = pods.host_ports(pod)
    mounts = mounts_of(container, volumes)
    if foreign and not as_command:
        here = hashlib.sha256(os.fsencode(run_directory)).hexdigest()[:8]  # others run pods of the same name elsewhere
        name = f"fairway-{pod['metadata']['name']}-{here}"
        box = Box(runtime=runtime, name=name, image=str(container["image"]))
        return Launch(
            argv=tuple(box.command(container, environment=environment, ports=ports, mounts=mounts)),
            env={**inherited, **environment, **({"HOME": os.environ["HOME"]} if "HOME" in os.environ else {})},
            volumes=tuple(volumes.values()),
            termination_log=run_directory / f"{container['name']}.termination-log",
            box=box,
        )
    termination_log = run_directory / f"{container['name']}.termination-log"
    local = {name: _local_value(name, value, ports, mounts) for name, value in environment.items()}
    # the state directory may be below a path that the container mounts, such as /tmp, and is not what it means by it
    state = str(run_directory.parent.parent)
    given = [expand(a, local) for a in container.get("args") or ()]
    arguments = [a if state in a and not foreign else rewritten(a, mounts) for a in given]
    own = (sys.executable, "-m", "fairway", *on_loopback(arguments, ports))
    return Launch(
        argv=_command_of(container, environment, mounts, arguments) if foreign else own,
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


def _command_of(
    container: Obj, environment: Mapping[str, str], mounts: Mapping[str, Path], arguments: Sequence[str]
) -> tuple[str, ...]:
    program, *words = [rewritten(expand(word, environment), mounts) for word in container["command"]]
    if program in _PYTHONS and shutil.which(program) is None:
        program = sys.executable  # a laptop may have python3 only, or only the one that runs this
    return (program, *words, *arguments)


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
