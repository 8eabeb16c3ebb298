"""The operator as a process of its own, under its own account and rights, against the rig's API server."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairway.controllers.install import NAME, NAMESPACE, objects
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
            *("--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--log-format", "json"),
            *("--config", str(self.config), "--selector", f"!{HANDS_OFF}"),
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

    def requests(self, namespace: str | None = None) -> list[dict[str, Any]]:
        """What the operator asked of the API server, in order."""
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
            and e["stage"] == "ResponseComplete"
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


def until(what: str, check: Callable[[], Any], *, seconds: float = 15) -> Any:
    """Waits for something true and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {seconds:g} s")


def running_operator(rig_api: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    for obj in objects(image="fairway:test"):
        if obj["kind"] != "Deployment":
            rig_api.api.apply(obj)
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
