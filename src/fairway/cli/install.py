"""`fairway install`: CRDs, rights and the operator, applied to the cluster of a kubeconfig."""

import asyncio
import sys
from typing import Annotated, Any

import typer

from fairway.cli import typed


def main(arguments: list[str]) -> int:
    return typed.run(install, arguments, verb="install")


def install(
    image: Annotated[str, typer.Option(metavar="REF", help="Fairway image for the operator and what it makes.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where the operator runs.")] = "fairway-system",
    replicas: Annotated[int, typer.Option(min=1, max=9, help="Operators; one leads, the others stand by.")] = 2,
    crds_only: Annotated[
        bool, typer.Option("--crds-only", help="Only the kinds; the operator runs elsewhere.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until it is ready; 0 does not wait.")] = 120.0,
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Default: what kubectl would use.")] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = "",
) -> int:
    """Installs or upgrades Fairway in a cluster. What is as it should be is left alone."""
    from fairway.controllers.install import objects
    from fairway.controllers.operator import DEFAULT_IMAGE
    from fairway.kube.config import AccessError, load_access
    from fairway.kube.errors import KubeError

    wanted = objects(image=image or DEFAULT_IMAGE, namespace=namespace, replicas=replicas)
    if crds_only:
        wanted = [obj for obj in wanted if obj["kind"] == "CustomResourceDefinition"]
    try:
        access = load_access(kubeconfig=kubeconfig or None, context=context or None)
    except AccessError as error:
        print(f"fairway install: {error}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_install(access, wanted, timeout=timeout))
    except KubeError as error:
        print(f"fairway install: {access.origin}: {error}", file=sys.stderr)
        return 2


async def _install(access: Any, wanted: list[dict[str, Any]], *, timeout: float) -> int:
    import fairway
    from fairway.kube.client import Client
    from fairway.kube.resource import WELL_KNOWN
    from fairway.kube.transport import Transport

    transport = Transport(access, user_agent=f"fairway-install/{fairway.__version__}", connections=4)
    async with Client(transport, field_manager="fairway-install") as client:
        for obj in wanted:
            resource = WELL_KNOWN.of(obj)
            metadata = obj["metadata"]
            before = await client.get_metadata(resource, metadata.get("namespace"), metadata["name"])
            after = await client.apply(resource, obj, force=True)
            unchanged = before and before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
            what = "unchanged" if unchanged else "changed" if before else "created"
            print(f"{what:<10} {obj['kind']}/{metadata['name']}")
        waiting = [obj for obj in wanted if obj["kind"] in ("CustomResourceDefinition", "Deployment")]
        if timeout and not await _all_ready(client, waiting, timeout=timeout):
            return 1
    return 0


async def _all_ready(client: Any, objects: list[dict[str, Any]], *, timeout: float) -> bool:
    from fairway.kube.resource import WELL_KNOWN

    missing: list[str] = []
    try:
        async with asyncio.timeout(timeout):
            while True:
                live = [
                    await client.get(WELL_KNOWN.of(o), o["metadata"].get("namespace"), o["metadata"]["name"])
                    for o in objects
                ]
                missing = [f"{o['kind']}/{o['metadata']['name']}" for o in live if not _is_ready(o)]
                if not missing:
                    return True
                await asyncio.sleep(0.25)
    except TimeoutError:
        print(f"not ready after {timeout:g} s: {', '.join(missing)}", file=sys.stderr)
        return False


def _is_ready(obj: dict[str, Any]) -> bool:
    status = obj.get("status") or {}
    if obj["kind"] == "CustomResourceDefinition":
        return any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or ())
    current = status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
    wanted = obj["spec"]["replicas"]
    return bool(current and status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == wanted)
