"""The operator as a process of its own, under its own account and rights, against the rig's API server."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairway.api import names
from fairway.controllers.install import NAME, NAMESPACE, objects
from fairway.controllers.resources import OPTIONAL
from fairway.kube.resource import Resource
from rig.api import Object, condition_of, wait_for
from rig.testcluster import RigCluster

SERVERS = "/apis/fairway.dev/v1alpha1/namespaces/{}/mcpservers"
HANDS_OFF = "test.fairway.dev/hands-off"
"""Label of objects that the session's operator leaves to a test."""
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass
class Operator:
    """A running operator, and what the API server's audit log says of it."""

    rig: RigCluster
    kubeconfig: Path
    log: Path
    config: Path
    image: str = "fairway:test"
    version: str = ""
    """What it takes itself for; empty is what it is."""
    options: tuple[str, ...] = ("--selector", f"!{HANDS_OFF}", "--leader-elect")
    metrics_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    _seen: list[dict[str, Any]] = field(default_factory=list)
    _read: int = 0

    def start(self) -> None:
        self.starts += 1
        pretend = f"import fairway; fairway.__version__ = {self.version!r}; " if self.version else ""
        command = [
            sys.executable,
            "-c",
            f"{pretend}import sys; from fairway.controllers.operator import main; sys.exit(main())",
            *("--kubeconfig", str(self.kubeconfig), "--image", self.image, "--reach-pods", "direct"),
            *("--health-probe-bind-address", "0", "--log-format", "json", "--config", str(self.config)),
            *("--metrics-bind-address", f"127.0.0.1:{self.metrics_port}" if self.metrics_port else "0"),
            *self.options,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(20) == 0
            self.process = None
            # A write that changes nothing is a builder that does not say what the server will store.
            stopped = [json.loads(line) for line in self.log.read_text().splitlines() if '"stopped"' in line]
            assert [said["noop"] for said in stopped] == [0] * self.starts

    def kill(self) -> None:
        """However it is with it; nothing is asked of its log."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def requests(self, namespace: str | None = None, *, stage: str = "ResponseComplete") -> list[dict[str, Any]]:
        """What the operator asked of the API server, in order; watches are complete when they end."""
        assert self.rig.audit_log is not None
        user = f"system:serviceaccount:{NAMESPACE}:{NAME}"
        # the log is of the whole session: only what is new is read, and only what may be ours is understood
        with self.rig.audit_log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if user.encode() in line:
                    self._seen.append(json.loads(line))
        return [
            e
            for e in self._seen
            if e["user"]["username"] == user
            and e["stage"] == stage
            and (namespace is None or e.get("objectRef", {}).get("namespace") == namespace)
        ]

    def writes(self, namespace: str) -> list[str]:
        """Verb and object of each write, events apart."""
        return [
            f"{e['verb']} {e['objectRef']['resource']}/{e['objectRef'].get('name')}"
            + (f"/{e['objectRef']['subresource']}" if "subresource" in e["objectRef"] else "")
            for e in self.requests(namespace)
            if e["verb"] in WRITES and e["objectRef"]["resource"] != "events"
        ]


def until(what: str, check: Callable[[], Any], *, seconds: float = 30) -> Any:
    """Waits for something true and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {seconds:g} s")


def anything(resource: Resource) -> Object:
    """A CRD that lets any object of that kind pass; the real ones are others' to make."""
    whatever = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": whatever, "status": whatever}}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
    }
    called = {"plural": resource.plural, "kind": resource.kind}
    # of a group that belongs to Kubernetes, the API server wants to know who said so
    annotations = {"api-approved.kubernetes.io": "unapproved, for tests"} if "k8s.io" in resource.group else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": annotations},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": called, "versions": [version]},
    }


def played(rig: RigCluster, namespace: str, server: str, *, component: str, address: str, ready: bool = True) -> None:
    """Plays the kubelet for the one pod of a server or of its proxy: it runs, at an address of this machine."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    labels = names.selector(server, component)

    def made() -> Object | None:
        of_it = (p for p in rig.api.items(pods) if labels.items() <= (p["metadata"].get("labels") or {}).items())
        return next(of_it, None)

    pod = until(f"the pod of {server} ({component})", made)
    path = f"{pods}/{pod['metadata']['name']}"
    if "nodeName" not in pod["spec"]:
        bound = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": "nowhere"}}
        rig.api.post(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **bound})
    container = {"name": pod["spec"]["containers"][0]["name"], "image": "x:1", "imageID": "", "restartCount": 0}
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{**container, "ready": ready, "started": True, "state": state}],
    }
    rig.api.merge(f"{path}/status", {"status": status})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def mcp_server(source: Path) -> Iterator[int]:
    """A real MCP server on loopback; its port."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "fairway",
        "tools",
        "--file",
        str(source),
        "--port",
        str(port),
        "--host",
        "0.0.0.0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def running_operator(rig_api: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    for obj in (*objects(image="fairway:test"), *map(anything, OPTIONAL)):
        if obj["kind"] != "Deployment":
            rig_api.api.apply(obj)
    served = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{0.plural}.{0.group}".format
    wait_for(
        "the optional kinds",
        lambda: all(condition_of(rig_api.api.get(served(kind)), "Established") == "True" for kind in OPTIONAL),
        seconds=30,
    )
    directory = tmp_path_factory.mktemp("operator")
    (directory / "operator.yaml").touch()
    running = Operator(
        rig=rig_api,
        kubeconfig=rig_api.service_account_kubeconfig(NAMESPACE, NAME),
        log=directory / "log",
        config=directory / "operator.yaml",
    )
    running.start()
    yield running
    running.stop()
    assert "Traceback" not in running.log.read_text()
