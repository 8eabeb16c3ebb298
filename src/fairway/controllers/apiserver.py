"""What is known of the cluster's API server: where it is, and who signs its tokens."""

import asyncio
import ipaddress
import json
from collections.abc import Iterable
from urllib.parse import urlsplit

import structlog

from fairway.controllers.settings import ClusterIssuer
from fairway.kube.client import Client
from fairway.kube.errors import KubeError, Transient
from fairway.kube.resource import ENDPOINT_SLICE, SERVICE

_log = structlog.get_logger("operator")
_DISCOVERY = "/.well-known/openid-configuration"
_KEYS = "https://kubernetes.default.svc/openid/v1/jwks"
"""Not where discovery says: that may be a place outside of the cluster, which pods need not reach."""
_SLICES = "kubernetes.io/service-name=kubernetes"


async def addresses(client: Client, server: str, *, wait: bool) -> tuple[str, ...]:
    """As networks of one address: its Service, and what stands behind that. A policy may be applied before or after.

    `server` is where it is reached from here; `wait`: go on trying while it cannot be.
    """
    known = urlsplit(server).hostname or ""
    while True:
        try:
            return as_networks([known, *await of_service(client)])
        except Transient as error:
            if not wait:
                return ()
            _log.info("waiting for the API server", error=str(error))
            await asyncio.sleep(1.0)
        except KubeError as error:
            _log.warning("servers' permissions cannot leave out the API server", error=str(error))
            return as_networks([known])


async def of_service(client: Client) -> list[str]:
    """Where pods find it."""
    service = await client.get(SERVICE, "default", "kubernetes")
    found = [] if service is None else list(service["spec"].get("clusterIPs") or [service["spec"].get("clusterIP", "")])
    page = await client.list_page(ENDPOINT_SLICE, namespace="default", label_selector=_SLICES)
    return found + [a for item in page.items for e in item.get("endpoints") or () for a in e.get("addresses") or ()]


async def issuer_of(client: Client) -> ClusterIssuer | None:
    """Of the tokens of ServiceAccounts; None if the cluster does not say.

    Any ServiceAccount may read its keys, so that a proxy needs no right to have tokens reviewed.
    """
    try:
        answer = await client.fetch(_DISCOVERY)
        document = json.loads(answer.body) if answer.status == 200 else {}
    except (KubeError, ValueError) as error:
        _log.warning("servers cannot admit tokens of the cluster", error=str(error))
        return None
    name = document.get("issuer") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name:
        return None
    return ClusterIssuer(name, jwks_url=_KEYS)


def as_networks(addresses: Iterable[str]) -> tuple[str, ...]:
    networks = set()
    for address in addresses:
        try:
            networks.add(str(ipaddress.ip_network(address)))
        except ValueError:
            continue
    return tuple(sorted(networks))
