"""The program against the rig's API server, in a namespace of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.controllers.install import NAMESPACE, objects
from rig.testcluster import RigCluster


@pytest.fixture(scope="session", autouse=True)
def operator_deployment(rig_api: RigCluster) -> None:
    """The object only, which says how the operator was started; the operator itself runs outside, and no node here."""
    for obj in objects(image="fairway:test"):
        if obj["kind"] in ("Namespace", "Deployment"):
            rig_api.api.apply(obj, namespace=NAMESPACE)


Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fairway(rig_api: RigCluster, rig_namespace: str, tmp_path: Path) -> Program:
    """Runs `fairway VERB ...` as a person with that kubeconfig would."""

    def run(*arguments: str, kubeconfig: Path | None = None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        verb, *rest = arguments
        where = ["--kubeconfig", str(kubeconfig or rig_api.kubeconfig), "-n", rig_namespace]
        return subprocess.run(
            [sys.executable, "-m", "fairway", verb, *where, *rest],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
