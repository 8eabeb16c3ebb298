"""Where Services lead on this machine: the ready pods behind each, by address. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fairway.api import names
from fairway.local import pod as pods
from fairway.local.stdio import SOCKET

Obj = Mapping[str, Any]


def endpoints_of(
    services: Iterable[Obj], all_pods: Iterable[Obj], *, released: Collection[str] = ()
) -> dict[str, list[dict[str, str]]]:
    """For each namespace/service, its ready pods, as an endpoints controller would list them.

    A pod on its way out still serves: it stays until its uid is among the released ones, or until it is not ready.
    """
    serving = (pod for pod in all_pods if pods.serves(pod) and pod["metadata"]["uid"] not in released)
    ready = sorted(serving, key=lambda pod: str(pod["metadata"]["name"]))
    found: dict[str, list[dict[str, str]]] = {}
    for service in services:
        metadata, spec = service["metadata"], service.get("spec") or {}
        selector = spec.get("selector")
        ports = spec.get("ports") or ()
        if not selector or not ports:
            continue
        target = ports[0].get("targetPort", ports[0].get("port"))
        found[f"{metadata['namespace']}/{metadata['name']}"] = [
            {"address": address, "pod": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            for pod in ready
            if pod["metadata"]["namespace"] == metadata["namespace"]
            and selector.items() <= (pod["metadata"].get("labels") or {}).items()
            and (address := address_of(pod, target)) is not None
        ]
    return found


def sockets_of(all_pods: Iterable[Obj], *, released: Collection[str] = ()) -> dict[str, dict[str, str]]:
    """For each server over standard input and output, where those of its newest serving pod are.

    A cluster's StatefulSet calls that pod NAME-0, and a RunConfig names it so.
    """
    found: dict[str, dict[str, str]] = {}
    for pod in sorted(all_pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        metadata = pod["metadata"]
        server = (metadata.get("labels") or {}).get(names.LABEL_SERVER)
        stdin = any(container.get("stdin") for container in pod["spec"]["containers"])
        if server and stdin and pods.serves(pod) and metadata["uid"] not in released:
            # from where the proxy runs: the path of a socket may have no more than some 100 bytes
            path = f"../run/{metadata['name']}/{SOCKET}"
            place = {"socket": path, "pod": metadata["name"], "uid": metadata["uid"]}
            found[f"{metadata['namespace']}/{server}-0"] = place
    return found


def address_of(pod: Obj, target: str | int) -> str | None:
    """Where a port of the pod, by name or number, is on this machine."""
    port = pods.named_port(pod["spec"], target)
    local = pods.host_ports(pod).get(port) if port is not None else None
    return f"{pods.HOST}:{local}" if local is not None else None
