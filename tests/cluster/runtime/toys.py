"""A whole operator for a made-up kind: one ConfigMap, one Service and one Deployment for every Toy, and a status.

`python -m tests.cluster.runtime.toys --kubeconfig FILE --namespace NS` runs it; when it stops it prints what it wrote.
"""

import argparse
import asyncio
import json
import os
import resource as process
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop

from fairway.kube.config import load_access
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SERVICE, WELL_KNOWN, Obj, Resource
from fairway.runtime.apply import WriteCounts
from fairway.runtime.controller import Controller
from fairway.runtime.endpoints import Address
from fairway.runtime.lease import LeaseTerms
from fairway.runtime.logs import configure_logs
from fairway.runtime.manager import Identity, Manager, Options
from fairway.runtime.outcome import Notice, Outcome
from fairway.runtime.world import World

GROUP = "runtime.example.dev"
TOY = Resource(GROUP, "v1", "Toy", "toys")
CHILDREN = (CONFIG_MAP, SERVICE, DEPLOYMENT)
HASH = f"{GROUP}/applied-hash"
FIELD_MANAGER = "toy-operator"
CATALOGUE = WELL_KNOWN.plus((TOY,))

_TEXT = {"type": "string"}
_NAMED_VALUE = {"type": "object", "required": ["name"], "properties": {"name": _TEXT, "value": _TEXT}}
_SPEC = {
    "type": "object",
    "properties": {
        "image": _TEXT,
        "replicas": {"type": "integer", "default": 1},
        "autoscaled": {"type": "boolean"},
        "port": {"type": "integer", "default": 8080},
        "withoutService": {"type": "boolean"},
        "args": {"type": "array", "items": _TEXT},
        "env": {
            "type": "array",
            "items": _NAMED_VALUE,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "extra": {"type": "object", "additionalProperties": _TEXT},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
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
                            "spec": _SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def toy(name: str, namespace: str, **spec: Any) -> Obj:
    """About 2 KB as the server returns it."""
    return {
        "apiVersion": TOY.api_version,
        "kind": TOY.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "image": "registry.example.dev/server:v1",
            "args": ["--verbose", "--config=/etc/toy/config.json"],
            "env": [{"name": f"KEY_{number}", "value": "v" * 20} for number in range(8)],
            **spec,
        },
    }


def desired(owner: Obj) -> list[Obj]:
    """Pure: what there should be for a Toy."""
    name, spec = owner["metadata"]["name"], owner["spec"]
    labels = {"app": "toy-child", "toy": name}
    metadata: Obj = {"name": name, "labels": labels}
    container = {
        "name": "server",
        "image": spec["image"],
        "args": spec["args"],
        "env": spec["env"],
        "ports": [{"name": "http", "containerPort": spec["port"], "protocol": "TCP"}],
    }
    deployment: Obj = {
        "selector": {"matchLabels": {"toy": name}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{**container, **spec.get("template", {})}]},
        },
    }
    if not spec.get("autoscaled"):
        deployment["replicas"] = spec["replicas"]
    data = {"config.json": orjson.dumps(spec).decode(), **spec.get("extra", {})}
    objects: list[Obj] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
    ]
    if not spec.get("withoutService"):
        port = {"name": "http", "port": spec["port"], "targetPort": spec["port"], "protocol": "TCP"}
        service = {"selector": {"toy": name}, "ports": [port]}
        objects.insert(1, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    return objects


async def reconcile(owner: Obj, world: World) -> Outcome:
    applied = await world.apply(owner=owner, objects=desired(owner))
    pruned = await world.prune(owner=owner, keep=applied.refs)
    metadata = owner["metadata"]
    status: Obj = {
        "phase": "Ready" if applied.complete else "Failed",
        "observedGeneration": metadata["generation"],
        "url": f"http://{metadata['name']}.{metadata['namespace']}:8080",
    }
    if applied.name_taken:
        status["taken"] = sorted(map(str, applied.name_taken))
    if applied.rejected:
        status["rejected"] = sorted(map(str, applied.rejected))
    return Outcome(status=status, events=tuple(Notice("Pruned", f"removed {ref}") for ref in pruned))


def controller() -> Controller:
    return Controller(resource=TOY, reconcile=reconcile, owns=CHILDREN)


def manager(kubeconfig: Path, namespace: str, *, using: Controller | None = None, **options: Any) -> Manager:
    return Manager(
        load_access(kubeconfig=kubeconfig),
        controllers=[using or controller()],
        catalogue=CATALOGUE,
        identity=Identity(
            name=f"{GROUP}/operator", field_manager=FIELD_MANAGER, hash_annotation=HASH, metrics_prefix="toys"
        ),
        options=Options(namespaces=(namespace,), **options),
    )


async def run(arguments: argparse.Namespace) -> int:
    lease = LeaseTerms(arguments.namespace, "toy-operator") if arguments.lease else None
    made = manager(arguments.kubeconfig, arguments.namespace, lease=lease, probes=Address("127.0.0.1", 0), metrics=None)
    clock = _Clock(made.world.counts)
    watching = [asyncio.create_task(work) for work in (_announce(made), clock.run())]
    code = await made.run()
    for task in watching:
        task.cancel()
    usage = process.getrusage(process.RUSAGE_SELF)
    counts = made.world.counts
    report = {
        "last_write_s": round(clock.last_write, 2),
        "applied": counts.applied,
        "statuses": counts.statuses,
        "deleted": counts.deleted,
        "noop": counts.noop,
        "cpu": round(usage.ru_utime + usage.ru_stime, 3),
        "rss_mb": _most_memory(),
    }
    print(json.dumps(report), flush=True)
    return code


def _most_memory() -> float:
    """Megabytes. Not ru_maxrss: that begins with what the parent had when it started us."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)


class _Clock:
    """How old the process was at its last write, to within a few hundredths of a second."""

    def __init__(self, counts: WriteCounts) -> None:
        self._counts = counts
        self._started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf(
            "SC_CLK_TCK"
        )
        self.last_write = 0.0

    async def run(self) -> None:
        known = 0
        while True:
            if self._counts.writes != known:
                known, self.last_write = self._counts.writes, time.clock_gettime(time.CLOCK_BOOTTIME) - self._started
            await asyncio.sleep(0.02)


async def _announce(made: Manager) -> None:
    while "probes" not in made.addresses:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(f"probes {made.addresses['probes']}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--lease", action="store_true")
    arguments = parser.parse_args()
    configure_logs(level="info")
    return uvloop.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
