"""The operator as a command: what its user can get wrong before there is any cluster."""

import json
import socket
import threading
from dataclasses import fields
from pathlib import Path

import pytest
import structlog

from fairway.controllers.operator import SETTINGS, main, settings_of
from fairway.controllers.settings import Settings

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for one in SETTINGS:
        monkeypatch.delenv(one.variable("FAIRWAY"), raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(structlog, "configure", lambda **_: None)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = main(arguments)
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        code = ended.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("fairway operator: ")
    return line.removeprefix("fairway operator: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workers", "0"], "--workers: '0' is no whole number of at least 1"),
        (["--log-level", "loud"], "--log-level: 'loud' is not one of debug, info, warning, error"),
        (["--metrics-bind-address", "8080"], "--metrics-bind-address: '8080' is no address to listen on"),
        (["--namespaces", "Prod"], "--namespaces: 'Prod' is no list of namespaces"),
        (["--base-delay", "1h"], "--base-delay: 3600 s is longer than the longest delay of 300 s"),
        (["--reach-pods", "telepathy"], "--reach-pods: 'telepathy' is not one of auto, direct, apiserver"),
        (["--run-as-user", "0"], "--run-as-user: '0' is neither `platform` nor a user id above 0"),
        (["--ingress-host", "a_b"], "--ingress-host: 'a_b' is no host name in lower case"),
        (["--ingress-class", "A b"], "--ingress-class: 'A b' is no name of an object"),
        (["--ingress-readiness", "soon"], "--ingress-readiness: 'soon' is not one of strict, permissive"),
        (["--gateway", "gw"], "--gateway: 'gw' is not NAMESPACE/NAME"),
        (["--extensions", "x"], "--extensions: 'x' is no list of extensions"),
        (["--extensions", "no.such:thing"], "extension no.such:thing: No module named 'no'"),
        (["--leader-elekt"], "unrecognized arguments: --leader-elekt; see fairway operator --help"),
        (["--config", "/none/such.yaml"], "/none/such.yaml: no such file"),
        (["--kubeconfig", "/none/such"], "/none/such: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert complaint(capsys, *arguments).startswith(says)


def test_variables_and_files_are_read_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("kube-api-burst: none\n")
    monkeypatch.setenv("FAIRWAY_CONFIG", str(file))
    assert complaint(capsys).startswith(f"{file}:1: kube-api-burst: 'none' is no whole number")
    monkeypatch.setenv("FAIRWAY_KUBE_API_BURST", "few")
    assert complaint(capsys).startswith("$FAIRWAY_KUBE_API_BURST: 'few' is no whole number")
    assert "no such file" in complaint(capsys, "--kube-api-burst", "5")


def test_what_is_said_about_generated_objects_reaches_them() -> None:
    """Every field that shapes objects can be set, unless the place itself decides it."""
    told = {one: one.read(one.default) for one in SETTINGS}
    by_default = settings_of(told)
    given = {
        "pull-host": "r.example.com", "pull-secrets": "a,b", "provisioned-registry": "p.example.com",
        "provisioned-pull-secret": "p", "package-index": "https://i.example.com", "npm-registry": "https://n.example.com",
        "package-proxy": "http://p.example.com", "package-no-proxy": "a", "package-ca": "c", "node-image": "node:1",
        "runtimes": "a/b", "run-as-user": "platform", "ingress-class": "nginx", "ingress-host": "mcp.example.com",
        "ingress-entrypoints": "websecure", "ingress-tls": "true", "ingress-readiness": "permissive",
        "gateway": "infra/gw", "image": "fairway:x", "proxy-rollouts": "3",
    }  # fmt: skip
    told |= {one: one.read(given[one.name]) for one in SETTINGS if one.name in given}
    changed = settings_of(told)
    same = {f.name for f in fields(Settings) if getattr(changed, f.name) == getattr(by_default, f.name)}
    of_the_place = {"api_server", "cluster_issuer", "package_cache", "processes", "proxy_directory", "shared_proxy"}
    assert same == of_the_place | {"url_here", "publishes", "image_pull_policy"}


def test_a_cluster_that_does_not_answer_is_asked_once_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A person waits for that line, and each question to a server that is not there takes its whole time limit."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    asked: list[object] = []

    def hang_up() -> None:
        while True:
            try:
                connection, address = listening.accept()
            except OSError:
                return
            asked.append(address)
            connection.close()

    kubeconfig = tmp_path / "config"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "away"}}],
            "clusters": [{"name": "away", "cluster": {"server": server}}],
        }
        kubeconfig.write_text(json.dumps(config))
        threading.Thread(target=hang_up, daemon=True).start()
        said = complaint(capsys, "--kubeconfig", str(kubeconfig))
    assert said.startswith(f"{kubeconfig}, context 'here': GET {server}: ")
    assert said.endswith("is the cluster up, and is this the right context?")
    assert len(asked) == 1
