"""A small controller to torment: a ConfigMap, a Service and a Deployment for every Toy, more on wish, and a status.

`python -m tests.faultproxy.toy --kubeconfig FILE --namespace NAME` runs it until it is told to stop.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from fairway.kube.config import AccessError, load_access
from fairway.kube.http import Connection
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SERVICE, WELL_KNOWN, Obj, Resource
from fairway.runtime.controller import Controller
from fairway.runtime.lease import LeaseTerms
from fairway.runtime.logs import configure_logs
from fairway.runtime.manager import Identity, Manager, Options
from fairway.runtime.outcome import Outcome
from fairway.runtime.world import World

GROUP = "fairwaytest.dev"
TOY = Resource(GROUP, "v1", "Toy", "toys")
CHILDREN = (CONFIG_MAP, SERVICE, DEPLOYMENT)
LABEL = f"{GROUP}/toy"
LEASE_NAME = "toy-controller"
FIELD_MANAGER = "toy-controller"
HASH_ANNOTATION = f"{GROUP}/applied-hash"
_WRITES = (b"PATCH ", b"POST ", b"PUT ", b"DELETE ")

CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"toys.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "text": {"type": "string"},
                                    "replicas": {"type": "integer"},
                                    "port": {"type": "integer"},
                                    "pages": {"type": "integer"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "observedGeneration": {"type": "integer"},
                                    "text": {"type": "string"},
                                    "children": {"type": "integer"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def toy(name: str, *, text: str = "hello", replicas: int = 1, port: int = 8080, pages: int = 0) -> Obj:
    """`pages` are further ConfigMaps, which go when the number goes down."""
    spec = {"text": text, "replicas": replicas, "port": port, "pages": pages}
    return {"apiVersion": TOY.api_version, "kind": TOY.kind, "metadata": {"name": name}, "spec": spec}


def desired(owner: Obj) -> list[Obj]:
    name, spec = owner["metadata"]["name"], owner["spec"]
    labels = {LABEL: name}
    metadata: Obj = {"name": name, "labels": labels}
    ports = [{"name": "http", "port": spec["port"], "protocol": "TCP", "targetPort": spec["port"]}]
    container = {
        "name": "toy",
        "image": "example.invalid/toy:1",
        "env": [{"name": "TEXT", "value": spec["text"]}],
        "ports": [{"containerPort": spec["port"], "protocol": "TCP"}],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    pages = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-{number}", "labels": labels},
            "data": {"page": str(number), "text": spec["text"]},
        }
        for number in range(spec["pages"])
    ]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": spec["text"]}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": ports, "type": "ClusterIP"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": spec["replicas"], "selector": {"matchLabels": labels}, "template": template},
        },
        *pages,
    ]


async def reconcile(owner: Obj, world: World) -> Outcome:
    applied = await world.apply(owner=owner, objects=desired(owner))
    await world.prune(owner=owner, keep=applied.refs)
    status = {
        "phase": "Ready" if applied.complete else "Failed",
        "observedGeneration": owner["metadata"]["generation"],
        "text": owner["spec"]["text"],
        "children": len(applied.live),
    }
    return Outcome(status=status)


def stop_before_the_write(number: int) -> None:
    """Stops this very process (SIGSTOP) in front of its `number`th write: all checks are done, not a byte is sent."""
    begin: Callable[..., None] = Connection.begin
    seen = 0

    def stopping(self: Connection, data: bytes, sink: Any) -> None:
        nonlocal seen
        start = data.partition(b" HTTP/1.1\r\n")[0]
        if start.startswith(_WRITES) and b"/leases" not in start and b"/events" not in start:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGSTOP)
        begin(self, data, sink)

    # All that follows is the call that hands the bytes to the event loop's transport.
    Connection.begin = stopping  # type: ignore[method-assign]


async def run(arguments: argparse.Namespace) -> int:
    lease = None
    if arguments.lease == "default":
        lease = LeaseTerms(arguments.namespace, LEASE_NAME)
    elif arguments.lease:
        duration, renew_within, retry = map(float, arguments.lease.split(","))
        lease = LeaseTerms(arguments.namespace, LEASE_NAME, duration=duration, renew_within=renew_within, retry=retry)
    manager = Manager(
        load_access(kubeconfig=arguments.kubeconfig),
        controllers=[Controller(resource=TOY, reconcile=reconcile, owns=CHILDREN)],
        catalogue=WELL_KNOWN.plus((TOY,)),
        identity=Identity(
            name="toy",
            field_manager=FIELD_MANAGER,
            hash_annotation=HASH_ANNOTATION,
            metrics_prefix="toy",
        ),
        options=Options(namespaces=(arguments.namespace,), lease=lease),
    )
    return await manager.run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="toy")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument(
        "--lease", metavar="D,W,R", help="take part in an election: duration, renew within, retry; or `default`"
    )
    parser.add_argument("--stop-before-write", type=int, metavar="N")
    arguments = parser.parse_args()
    configure_logs(level="info")
    if arguments.stop_before_write:
        stop_before_the_write(arguments.stop_before_write)
    try:
        return uvloop.run(run(arguments))
    except AccessError as error:
        print(f"toy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
