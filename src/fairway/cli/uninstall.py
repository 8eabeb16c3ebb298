"""`fairway uninstall`: takes the operator out of a cluster again."""

import asyncio
import sys
from typing import Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake

_KINDS_OF_USERS = ("Namespace", "CustomResourceDefinition")


def main(arguments: list[str]) -> int:
    return typed.run(uninstall, arguments, verb="uninstall")


def uninstall(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where the operator runs.")] = "fairway-system",
    crds: Annotated[
        bool, typer.Option("--crds", help="The kinds too, and with them EVERY server of the cluster.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Default: what kubectl would use.")] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = "",
) -> int:
    """Removes the operator and its rights. Servers stay, and keep running, unless --crds takes them along.

    Exit codes: 0 removed, 1 not agreed to, 2 an error.
    """
    from fairway.kube.config import AccessError, load_access
    from fairway.kube.errors import KubeError

    try:
        access = load_access(kubeconfig=kubeconfig or None, context=context or None)
    except AccessError as error:
        raise Mistake(str(error)) from None
    if not yes and not _agreed(access.origin, crds):
        return 1
    try:
        return asyncio.run(_uninstall(access, namespace, crds=crds))
    except KubeError as error:
        raise Mistake(f"{access.origin}: {error}") from None


def _agreed(origin: str, crds: bool) -> bool:
    what = "the operator, the kinds and EVERY server" if crds else "the operator"
    if not sys.stdin.isatty():
        print(f"not removed: nobody is there to ask; --yes removes {what} from {origin}", file=sys.stderr)
        return False
    return input(f"remove {what} from {origin}? [y/N] ").strip().lower() in ("y", "yes")


async def _uninstall(access: Any, namespace: str, *, crds: bool) -> int:
    import fairway
    from fairway.controllers.install import objects
    from fairway.kube.client import Client
    from fairway.kube.errors import NotFound
    from fairway.kube.resource import WELL_KNOWN
    from fairway.kube.transport import Transport

    transport = Transport(access, user_agent=f"fairway-uninstall/{fairway.__version__}", connections=4)
    async with Client(transport, field_manager="fairway-install") as client:
        for obj in reversed(objects(image="none", namespace=namespace)):
            kind, name = obj["kind"], obj["metadata"]["name"]
            if kind in _KINDS_OF_USERS and not (crds and kind == "CustomResourceDefinition"):
                print(f"{'kept':<10} {kind}/{name}")
                continue
            try:
                await client.delete(WELL_KNOWN.of(obj), obj["metadata"].get("namespace"), name)
            except NotFound:
                print(f"{'not there':<10} {kind}/{name}")
            else:
                print(f"{'deleted':<10} {kind}/{name}", flush=True)
    return 0
