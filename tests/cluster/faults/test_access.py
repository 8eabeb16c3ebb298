"""A way into the cluster that is none: one line that says which file, which context and what to do; exit code 2."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig.testcluster import RigCluster
from tests.faultproxy import Answer, FaultProxy, Requests, Rule

REPOSITORY = Path(__file__).resolve().parents[3]
NO_PORTS = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
Edit = Callable[[dict[str, Any]], None]


def operator(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "COVERAGE"))}
    return subprocess.run(
        [sys.executable, "-m", "fairway", "operator", *NO_PORTS, *arguments],
        cwd=REPOSITORY,
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def complaint(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line that is no log line."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.fixture
def edited(rig_api: RigCluster, tmp_path: Path) -> Callable[[Edit], Path]:
    """A copy of a good kubeconfig with something wrong in it."""

    def write(edit: Edit) -> Path:
        config = yaml.safe_load(rig_api.kubeconfig.read_text())
        edit(config)
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return write


def test_a_kubeconfig_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.yaml"
    for done in (operator("--kubeconfig", str(missing)), operator(KUBECONFIG=str(missing))):
        line = complaint(done)
        assert str(missing) in line
        assert "no such file" in line
        assert "--kubeconfig" in line


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    line = complaint(operator(HOME=str(tmp_path)))
    assert "no cluster is configured" in line
    assert "$KUBECONFIG" in line


@pytest.mark.parametrize("text", ["a: [1\n", "- 1\n- 2\n", "kind: Pod\n", "\x00\x01\x02", "current-context: x\n"])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert str(path) in complaint(operator("--kubeconfig", str(path)))


def test_a_context_that_is_not_there(rig_api: RigCluster) -> None:
    line = complaint(operator("--kubeconfig", str(rig_api.kubeconfig), "--context", "production"))
    assert "'production'" in line
    assert "it has rig" in line
    assert str(rig_api.kubeconfig) in line


def _cluster_missing(config: dict[str, Any]) -> None:
    config["clusters"] = []


def _no_url(config: dict[str, Any]) -> None:
    config["clusters"][0]["cluster"]["server"] = "somewhere"


def _garbled_authority(config: dict[str, Any]) -> None:
    config["clusters"][0]["cluster"]["certificate-authority-data"] = "%%%"


def _half_a_certificate(config: dict[str, Any]) -> None:
    del config["users"][0]["user"]["client-key-data"]


@pytest.mark.parametrize("edit", [_cluster_missing, _no_url, _garbled_authority, _half_a_certificate])
def test_an_entry_that_cannot_be_used(edited: Callable[[Edit], Path], edit: Edit) -> None:
    path = edited(edit)
    assert str(path) in complaint(operator("--kubeconfig", str(path)))


def test_a_server_that_is_not_there(edited: Callable[[Edit], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    def nowhere(config: dict[str, Any]) -> None:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"

    path = edited(nowhere)
    line = complaint(operator("--kubeconfig", str(path)))
    assert f"{path}, context 'rig'" in line
    assert f"127.0.0.1:{port}" in line
    assert "is this the right context?" in line


def test_a_name_that_does_not_resolve(edited: Callable[[Edit], Path]) -> None:
    def nowhere(config: dict[str, Any]) -> None:
        config["clusters"][0]["cluster"]["server"] = "https://cluster.invalid:6443"

    path = edited(nowhere)
    line = complaint(operator("--kubeconfig", str(path)))
    assert f"{path}, context 'rig'" in line
    assert "cluster.invalid" in line


def test_a_server_that_shows_another_certificate(proxy: FaultProxy, edited: Callable[[Edit], Path]) -> None:
    def another(config: dict[str, Any]) -> None:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"

    line = complaint(operator("--kubeconfig", str(edited(another))))
    assert "certificate" in line
    assert "context 'rig'" in line


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_are_refused(proxy: FaultProxy, status: int) -> None:
    proxy.use(Rule(Requests(), Answer(status, "Refused")))
    line = complaint(operator("--kubeconfig", str(proxy.kubeconfig)))
    assert str(proxy.kubeconfig) in line
    assert "credentials" in line


def test_what_answers_is_no_api_server(edited: Callable[[Edit], Path]) -> None:
    """A port on which something else listens that speaks no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer() -> None:
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                with connected:
                    connected.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=answer, daemon=True).start()

        def another(config: dict[str, Any]) -> None:
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"

        path = edited(another)
        assert f"{path}, context 'rig'" in complaint(operator("--kubeconfig", str(path)))
