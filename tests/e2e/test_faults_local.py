"""Faults that are really there, and what `fairway doctor` and `fairway describe` make of each: local mode."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.laptop import Laptop, until
from tests.packages import Index, serving

pytestmark = pytest.mark.e2e

HEAD = "apiVersion: fairway.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}{more}}}\nspec:\n"


def inline(name: str, source: str = "def answer() -> str:\n    return 'yes'\n", extra: str = "") -> str:
    body = "".join(f"      {line}\n" for line in source.splitlines())
    return f"{HEAD.format(kind='MCPServer', name=name, more='')}{extra}  inlineTools:\n    python: |\n{body}"


def command(name: str, source: str, extra: str = "") -> str:
    """A program of the user's, without its image."""
    more = ", annotations: {fairway.dev/local: command}"
    env = '  env: [{name: PORT, value: "8080"}]\n'
    words = json.dumps(["python", "-c", source])
    return f"{HEAD.format(kind='MCPServer', name=name, more=more)}  image: python:3\n  command: {words}\n{env}{extra}"


def config(name: str, spec: str) -> str:
    return f"{HEAD.format(kind='MCPToolConfig', name=name, more='')}  {spec}\n"


def uses(config_name: str) -> str:
    return f"  toolConfigRef: {{name: {config_name}}}\n"


def env_from(kind: str, name: str, key: str) -> str:
    field = {"Secret": "secretKeyRef", "ConfigMap": "configMapKeyRef"}[kind]
    return f"  env: [{{name: KEY, valueFrom: {{{field}: {{name: {name}, key: {key}}}}}}}]\n"


WEB = "import http.server as h, os; h.test(h.SimpleHTTPRequestHandler, port=int(os.environ['PORT']), bind='{}')"
OLD_TRANSPORT = """
import http.server, os, time
class Sse(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\\ndata: /messages?session=1\\n\\n")
        time.sleep(5)
    def do_POST(self):
        self.send_error(404)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Sse).serve_forever()
"""
NO_MODULE = "import no_such_module\ndef a() -> int:\n    return 1\n"
TAKEN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: name-taken-tools}\ndata: {a: b}\n---\n"
DIES_AT_FIRST = """\
import os, pathlib, threading, time
lives = pathlib.Path(os.environ["HOME"]).parent / "lives"
count = int(lives.read_text()) if lives.exists() else 0
lives.write_text(str(count + 1))
if count < 3:
    os._exit(3)
def answer() -> str:
    return "yes"
"""
SAME_NAME = "override: {a: {name: same}, b: {name: same}}"

# Manifest, the check that has to find it, and a word that has to be in what it says.
FAULTS: Mapping[str, tuple[str, str, str]] = {
    "syntax": (inline("syntax", "def answer( -> str:\n    return 1\n"), "server-spec", "line 1"),
    "no-function": (inline("no-function", "x = 1\n"), "server-crashes", "no public function"),
    "import": (inline("import", NO_MODULE), "server-crashes", "no_such_module"),
    "exits": (inline("exits", "import os\nos._exit(7)\n\ndef a() -> int:\n    return 1\n"), "server-crashes", "code 7"),
    "flaps": (inline("flaps", DIES_AT_FIRST), "server-flaps", "restarted 3 times"),
    "no-secret": (inline("no-secret", extra=env_from("Secret", "absent", "k")), "server-references", "Secret absent"),
    "no-key": (inline("no-key", extra=env_from("Secret", "there", "absent")), "server-references", "absent"),
    "no-config-map": (
        inline("no-config-map", extra=env_from("ConfigMap", "gone", "k")), "server-references", "ConfigMap gone",
    ),
    "no-tool-config": (inline("no-tool-config", extra=uses("absent")), "server-tools", "absent"),
    "tool-conflict": (
        config("conflict", SAME_NAME) + "---\n" + inline("tool-conflict", extra=uses("conflict")),
        "server-tools",
        "same",
    ),
    "typo-in-filter": (
        config("typo", "filter: [answer, anwser]") + "---\n" + inline("typo-in-filter", extra=uses("typo")),
        "tools-unknown",
        "anwser",
    ),
    "hides-all": (
        config("nothing", "filter: []") + "---\n" + inline("hides-all", extra=uses("nothing")), "tools-none", "no tool",
    ),
    "name-taken": (
        TAKEN + inline("name-taken"),
        "server-name",
        "name-taken-tools",
    ),
    "not-mcp": (command("not-mcp", WEB.format("127.0.0.1")), "server-handshake", "not-mcp"),
    "everywhere": (command("everywhere", WEB.format("0.0.0.0")), "open-to-network", "of all addresses"),
    "old-transport": (command("old-transport", OLD_TRANSPORT), "server-handshake", "try sse"),
    "no-package": (
        HEAD.format(kind="MCPServer", name="no-package", more="")
        + "  package: {pypi: no-such-package, version: '1'}\n",
        "server-crashes",
        "no-such-package",
    ),
    "no-program": (
        command("no-program", "x").replace('["python"', '["no-such-program"'), "server-crashes", "no-such-program",
    ),
    "no-command": (
        HEAD.format(kind="MCPServer", name="no-command", more=", annotations: {fairway.dev/local: command}")
        + "  image: python:3\n",
        "server-references",
        "spec.command",
    ),
    "stdio-garbage": (
        command("stdio-garbage", "print('hello', flush=True); import time; time.sleep(600)", "  transport: stdio\n"),
        "server-handshake",
        "it wrote 1 line that is no MCP message",
    ),
}  # fmt: skip
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: there}\nstringData: {k: v}\n"


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """One `up` with every fault that a manifest can have, and a server that is well."""
    laptop = Laptop(tmp_path_factory.mktemp("sick"))
    for name, (text, _, _) in FAULTS.items():
        laptop.write(f"m/{name}.yaml", text)
    laptop.write("m/secret.yaml", SECRET)
    laptop.write("m/well.yaml", inline("well"))
    with serving(Index()) as nothing, pytest.MonkeyPatch.context() as environment:
        environment.setenv("UV_DEFAULT_INDEX", nothing.simple)
        laptop.up("-f", "m").until_ready("well")
        yield laptop
        laptop.close()


def found_by(laptop: Laptop, **environment: str) -> list[dict[str, str]]:
    told = subprocess.run(
        [sys.executable, "-m", "fairway", "doctor", "-o", "json"],
        cwd=laptop.directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode in (0, 1), told.stderr
    return list(json.loads(told.stdout))


@pytest.fixture(scope="module")
def findings(sick: Laptop) -> list[dict[str, str]]:
    """What doctor says once it has said of every fault that there is something."""
    wanted = {(check, word) for _, check, word in FAULTS.values()}
    said: list[dict[str, str]] = []

    def everything() -> bool:
        time.sleep(2)  # who asks takes the time of those who are asked about
        said[:] = found_by(sick)
        return all(any(f["check"] == check and word in f["what"] for f in said) for check, word in wanted)

    with suppress(AssertionError):  # each test says of its own fault what is missing
        until(everything, "a finding for each fault", within=150)
    return said


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_manifest_is_named_by_doctor(findings: list[dict[str, str]], name: str):
    _, check, word = FAULTS[name]
    found = [f for f in findings if f["check"] == check and word in f["what"]]
    assert found, json.dumps(findings, indent=1)
    assert all(f["do"] for f in found)


@pytest.mark.parametrize("name", ["import", "no-secret", "not-mcp"])
def test_and_by_describe_with_what_to_do(sick: Laptop, findings: list[dict[str, str]], name: str):
    said = sick.run("describe", name).stdout
    assert "Ready=False" in said
    assert "do: " in said
    assert FAULTS[name][2] in said


def test_the_server_that_is_well_is_not_mentioned(findings: list[dict[str, str]]):
    assert not [f for f in findings if f["what"].startswith("well")]


@pytest.fixture
def well(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    laptop.write("a.yaml", inline("a"))
    laptop.up("-f", "a.yaml").until_ready("a")
    yield laptop
    laptop.close()


def names(found: list[dict[str, str]]) -> list[str]:
    return [f["check"] for f in found]


def test_a_healthy_place_has_no_findings_and_faults_of_the_machine_are_found_one_by_one(well: Laptop, tmp_path: Path):
    assert found_by(well) == []
    # the shell that it is asked from
    assert names(found_by(well, HTTP_PROXY="http://proxy:3128", NO_PROXY="")) == ["http-proxy"]
    limited = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n 200; exec {sys.executable} -m fairway doctor -o name"],
        cwd=well.directory, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert limited.stdout == "open-files\n"
    # files of the state directory
    future = well.state / "logs" / "later.log"
    future.touch()
    os.utime(future, (time.time() + 7200, time.time() + 7200))
    assert names(found_by(well)) == ["clock-set-back"]
    future.unlink()
    (well.state / "token").write_text(token(expires=time.time() - 5))
    assert names(found_by(well)) == ["local-token"]
    (well.state / "token").unlink()
    ports = (well.state / "ports.json").read_text()
    (well.state / "ports.json").write_text("{spoilt")
    assert names(found_by(well)) == ["ports-file"]
    (well.state / "ports.json").write_text(ports)
    assert found_by(well) == []


def token(*, expires: float) -> str:
    import base64

    claims = base64.urlsafe_b64encode(json.dumps({"iat": 1, "exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{claims}.x"


def test_a_stopped_up_and_what_a_killed_one_leaves_are_found(well: Laptop):
    assert well.process is not None
    well.process.send_signal(signal.SIGSTOP)
    try:
        assert "up-silent" in names(found_by(well))
    finally:
        well.process.send_signal(signal.SIGCONT)
    well.stop()
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        from fairway.local.statedir import identity_of

        (well.state / "pids" / str(left.pid)).write_text(identity_of(left.pid) or "")
        assert names(found_by(well, KUBECONFIG="")) == ["leftovers"]
    finally:
        left.kill()
        left.wait()


def test_a_port_that_another_program_took_is_found(well: Laptop):
    pid = well.pid_of("proxy", "--admin")
    port = int(well.url("a").rpartition(":")[2].partition("/")[0])
    os.kill(pid, signal.SIGKILL)

    def take() -> socket.socket | None:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            return None

    with until(take, "the port"):
        until(lambda: "server-port" in names(found_by(well)), "the finding")


def test_an_up_of_another_version_is_found(tmp_path: Path):
    laptop = Laptop(tmp_path)
    laptop.write("a.yaml", inline("a"))
    code = "import fairway; fairway.__version__ = '0.0.1'; from fairway.cli.main import main; main()"
    words = ["up", "-f", "a.yaml", "--port-base", str(laptop.base)]
    process: Any = subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path, stdout=subprocess.DEVNULL)
    laptop.process = process
    try:
        laptop.until_ready("a") if (laptop.directory / "output").write_text("") == 0 else None
        assert names(found_by(laptop)) == ["up-version"]
    finally:
        laptop.close()


def test_a_cluster_that_does_not_answer_and_a_kubeconfig_that_cannot_be_read_are_found(tmp_path: Path):
    laptop = Laptop(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("clusters: [")
    assert names(found_by(laptop, KUBECONFIG=str(kubeconfig))) == ["kubeconfig"]
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    made = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}], "current-context": "c"}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **made}))
    assert names(found_by(laptop, KUBECONFIG=str(kubeconfig))) == ["cluster-unreachable"]


def test_a_missing_program_and_a_container_runtime_that_does_not_work_are_found(tmp_path: Path):
    laptop = Laptop(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    laptop.write("a.yaml", HEAD.format(kind="MCPServer", name="boxed", more="") + "  image: x\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", "up", "-f", "a.yaml", "--port-base", str(laptop.base)],
        cwd=tmp_path, env={**os.environ, "PATH": str(programs)}, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    laptop.process = process
    try:
        (tmp_path / "output").touch()
        laptop.until(lambda servers: "docker" in servers["boxed"]["message"], "the condition")
        found = found_by(laptop, PATH=str(programs))
        assert {"container-runtime", "server-image"} <= set(names(found))
        assert any("Docker daemon" in f["what"] for f in found)
    finally:
        laptop.close()
