"""The cluster as a test sees it: fresh namespaces, kubeconfigs of service accounts, images."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rig.api import Api, Object, condition_of, wait_for
from rig.errors import RigError
from rig.image import load_image
from rig.kubeconfig import write_kubeconfig
from rig.node import NETWORK_POLICY
from rig.packages import find_program
from rig.process import ProcessTable
from rig.state import REPOSITORY, State

TOKEN_SECONDS = 12 * 3600


@dataclass(frozen=True)
class RigCluster:
    """A running cluster for one test session. `state` is None where somebody else's cluster is used."""

    kubeconfig: Path
    directory: Path
    state: State | None
    api: Api
    owned: bool
    _namespaces: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, kubeconfig: Path, *, directory: Path, owned: bool) -> "RigCluster":
        """The cluster behind that kubeconfig; made by a rig if the rig's settings lie beside it."""
        state = State(root=kubeconfig.absolute().parent)
        cluster = cls(
            kubeconfig=kubeconfig.absolute(),
            directory=directory,
            state=state if state.settings_file.exists() else None,
            api=Api.from_kubeconfig(kubeconfig),
            owned=owned,
        )
        directory.mkdir(parents=True, exist_ok=True)
        cluster.ca_path.write_text(cluster.api.access.ca_pem)
        return cluster

    @property
    def server(self) -> str:
        return self.api.access.server

    @property
    def ca_path(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def audit_log(self) -> Path | None:
        """One JSON event a line: who did what. None for a cluster that the rig did not make."""
        return self.state.audit_log if self.state else None

    @property
    def enforces_network_policies(self) -> bool:
        """False where a policy is only an object; True or unknown elsewhere."""
        if self.state is None:
            return True
        return ProcessTable(run=self.state.run, logs=self.state.logs).pid(NETWORK_POLICY) is not None

    def namespace(self, prefix: str = "test") -> str:
        """A new namespace in which pods can be made at once; deleted at the end of the session."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"fairway.dev/rig": "test"}}})
        self._namespaces.append(name)
        wait_for(
            f"the service account `default` in {name}",
            lambda: self.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
            seconds=30,
        )
        return name

    def delete_namespace(self, name: str) -> None:
        """Ask for the namespace to go; does not wait until it is gone."""
        self.api.delete(f"/api/v1/namespaces/{name}")
        with contextlib.suppress(ValueError):
            self._namespaces.remove(name)

    def service_account_kubeconfig(self, namespace: str, name: str, *, seconds: int = TOKEN_SECONDS) -> Path:
        """A kubeconfig with a fresh token of that service account: its rights, and no more."""
        answer = self.api.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}},
        )
        path = self.directory / f"{namespace}-{name}-{secrets.token_hex(2)}.kubeconfig"
        write_kubeconfig(
            path,
            server=self.server,
            ca_pem=self.api.access.ca_pem,
            user={"token": answer["status"]["token"]},
            namespace=namespace,
        )
        return path

    def load_image(self, archive: Path) -> None:
        """Make the image in that archive known to the node; pods name it with imagePullPolicy Never or IfNotPresent."""
        if self.state is None:
            raise RigError("images can only be loaded into a cluster that the rig made", fix="unset RIG_KUBECONFIG")
        load_image(self.state, archive)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints, as the administrator; RigError with its words if it fails."""
        program = find_program("kubectl") if self.state is None else self.state.bin / "kubectl"
        if program is None:
            raise RigError("kubectl is not installed", fix="unset RIG_KUBECONFIG: the rig brings its own")
        answer = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise RigError(f"kubectl {' '.join(arguments)} exited {answer.returncode}: {answer.stderr.strip()}")
        return answer.stdout

    def wait_for_pod(self, namespace: str, name: str, *, seconds: float = 60) -> Object:
        """The pod once it is Ready; RigError with what the kubelet says if it does not get there."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"

        def ready() -> Object | None:
            pod = self.api.find(path)
            return pod if pod and condition_of(pod, "Ready") == "True" else None

        try:
            return wait_for(f"the pod {namespace}/{name} to be Ready", ready, seconds=seconds)
        except RigError as error:
            status = (self.api.find(path) or {}).get("status", "no such pod")
            raise RigError(f"{error}\n  status: {json.dumps(status)}") from None

    def close(self) -> None:
        """Delete what this session made, unless the whole cluster goes anyway."""
        if not self.owned:
            for name in list(self._namespaces):
                self.delete_namespace(name)


def run_rig(*arguments: str, state: State, environ: Mapping[str, str] = os.environ) -> None:
    """`python -m rig` as a process of its own, so that what it starts is nobody's child."""
    answer = subprocess.run(
        [sys.executable, "-m", "rig", *arguments],
        env={**environ, "RIG_STATE": str(state.root), "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise RigError(f"python -m rig {' '.join(arguments)} failed:\n{answer.stderr.strip()}")
