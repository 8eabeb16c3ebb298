"""`python -m rig`: a real Kubernetes on this machine."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rig.binary import ensure_binaries, ensure_policy_enforcer, kubernetes_version
from rig.bringup import Options, up
from rig.crds import default_crds
from rig.errors import RigError
from rig.gomodule import discard_private_caches
from rig.image import load_image
from rig.packages import ensure_packages, missing
from rig.progress import Progress
from rig.state import State
from rig.status import status
from rig.teardown import down, guard

DESCRIPTION = """\
A real Kubernetes on this machine, for tests and for people without a cluster.

  python -m rig up              etcd, kube-apiserver, kube-controller-manager, kube-scheduler on loopback; no root
  python -m rig up --node       also containerd, kubelet, kube-proxy and DNS, so that pods run; needs root
  eval "$(python -m rig env)"   KUBECONFIG and kubectl for this shell
  python -m rig down --wipe     stop it and forget everything

The node has no way to the internet, so it pulls nothing: `docker save` an image and load it with `image load`.
"""
EPILOG = """\
environment:
  RIG_STATE   directory of the cluster (default .rig in the repository); several rigs can run side by side
  RIG_BIN     directory with the Kubernetes binaries, instead of building them
  FAIRWAY_NO_APT=1   never install system packages
"""


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(
        prog="python -m rig",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("up", help="start what does not run yet")
    command.add_argument("--node", action="store_true", help="with a node, so that pods run (root)")
    command.add_argument("--crds", type=Path, metavar="DIR", help="CRDs to apply first (default: deploy/crds if there)")
    command.add_argument(
        "--owner", type=int, metavar="PID", help="take the rig down and wipe it when this process ends"
    )
    command.add_argument(
        "--apiserver-option",
        action="append",
        default=[],
        metavar="--FLAG=VALUE",
        help="one more option for kube-apiserver; write it as --apiserver-option=--flag=value; repeatable",
    )
    command.add_argument("--quiet", action="store_true", help="say only what goes wrong")

    command = commands.add_parser("down", help="stop it")
    command.add_argument("--wipe", action="store_true", help="forget the cluster and its certificates too")

    commands.add_parser("env", help="print what to `eval` in a shell")
    commands.add_parser("status", help="what runs, and with how much memory")
    commands.add_parser("build", help="build Kubernetes and what the node tier adds into the cache, unless it is there")

    command = commands.add_parser("packages", help="which system packages the node tier lacks")
    command.add_argument("--install", action="store_true", help="install them with apt-get (root)")

    command = commands.add_parser("image", help="images for the node")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    load = actions.add_parser("load", help="import a docker-archive, as `docker save` writes it, into the node")
    load.add_argument("file", type=Path)

    # Without help it is not listed: `up --owner` starts it, people do not.
    command = commands.add_parser("guard")
    command.add_argument("--owner", type=int, required=True)
    command.add_argument("--owner-started", type=int, required=True)
    return main_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done; 1 not all runs (`status`) or is there (`packages`); 2 somebody has to change something."""
    options = parser().parse_args(arguments)
    try:
        return run(options)
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nrig: interrupted; `python -m rig down` stops what already runs", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    state = State.from_environment(os.environ)
    if options.command == "up":
        return _up(state, options)
    if options.command == "down":
        down(state, wipe=options.wipe)
    elif options.command == "env":
        return _env(state)
    elif options.command == "status":
        return _status(state)
    elif options.command == "build":
        return _build()
    elif options.command == "packages":
        return _packages(install=options.install)
    elif options.command == "image":
        load_image(state, options.file)
    elif options.command == "guard":
        guard(state, owner=options.owner, started=options.owner_started)
    return 0


def _up(state: State, options: argparse.Namespace) -> int:
    if options.crds is not None and not options.crds.exists():
        raise RigError(f"--crds {options.crds}: there is nothing")
    for option in options.apiserver_option:
        if not re.fullmatch(r"--[a-z][a-z0-9-]*(=.*)?", option):
            raise RigError(f"--apiserver-option {option}: is no option", fix="--apiserver-option=--name=value")
    progress = Progress(quiet=options.quiet)
    try:
        _bring_up(state, options, progress=progress)
    except RigError:
        progress.close()
        if state.run.exists():
            print("rig: what runs already goes on; `python -m rig down` stops it", file=sys.stderr)
        raise
    progress.milestone(f'Kubernetes {kubernetes_version()} is up.   eval "$(python -m rig env)"')
    return 0


def _bring_up(state: State, options: argparse.Namespace, *, progress: Progress) -> None:
    up(
        state,
        Options(
            node=options.node,
            crds=options.crds or default_crds(),
            owner=options.owner,
            apiserver_options=options.apiserver_option,
        ),
        progress=progress,
    )


def _env(state: State) -> int:
    if not state.kubeconfig.exists():
        raise RigError("there is no rig here", fix="python -m rig up")
    print(f"export KUBECONFIG={shlex.quote(str(state.kubeconfig))}")
    print(f'export PATH={shlex.quote(str(state.bin))}:"$PATH"')
    return 0


def _status(state: State) -> int:
    report = status(state)
    if not report.components:
        print(f"no rig is running here ({state.root})")
        return 1
    print(f"{report.server}   {'ready' if report.ready else 'NOT READY'}   KUBECONFIG={state.kubeconfig}")
    for component in report.components:
        running = f"pid {component.pid:<8} {component.megabytes:6.0f} MB" if component.pid else "not running"
        print(f"  {component.name:<26} {running}")
    return 0 if report.ready else 1


def _build() -> int:
    print(ensure_binaries(progress=Progress()).directory)
    print(ensure_policy_enforcer(progress=Progress()).parent)
    discard_private_caches()
    return 0


def _packages(*, install: bool) -> int:
    if install:
        ensure_packages(progress=Progress())
    lacking = missing()
    if not lacking:
        print("the node tier has every package that it needs")
        return 0
    print(f"missing: {', '.join(lacking.programs)}")
    print(f"  fix: apt-get install --no-install-recommends {' '.join(lacking.packages)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
