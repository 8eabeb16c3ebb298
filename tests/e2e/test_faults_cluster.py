"""Faults that are really there, and what `fairway doctor` and `fairway describe` make of each: on a cluster."""

import base64
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairway.controllers.install import NAME, NAMESPACE, objects
from rig.api import wait_for
from rig.fairwayimage import REFERENCE
from rig.pyimage import python_image
from tests.installed import InstalledFairway

pytestmark = pytest.mark.e2e

Object = dict[str, Any]
SCRIPT = "localhost/fairway-test-lines:1"
WEB = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='{host}')"
OLD_TRANSPORT = """
import http.server, time
class Sse(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\\ndata: /messages?session=1\\n\\n")
        time.sleep(5)
    def do_POST(self):
        self.send_error(404)
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Sse).serve_forever()
"""
TOOLS = "def answer() -> str:\n    return 'yes'\n"
ALONE = {"proxy": {"mode": "none"}}
"""What stands in front makes no difference to most faults, and takes a pod."""


def inline(source: str = TOOLS, **spec: Any) -> Object:
    return {"inlineTools": {"python": source}, **spec}


def script(source: str, **spec: Any) -> Object:
    unbuffered = [{"name": "PYTHONUNBUFFERED", "value": "1"}]
    return {"image": SCRIPT, "imagePullPolicy": "Never", "args": [source], "env": unbuffered, **ALONE, **spec}


def env_from(kind: str, name: str, key: str) -> Object:
    reference = {"secretKeyRef" if kind == "Secret" else "configMapKeyRef": {"name": name, "key": key}}
    return {"env": [{"name": "KEY", "valueFrom": reference}], **ALONE}


def certificate(name: str, *, days: float) -> tuple[str, str]:
    """A key and its certificate, as PEM, that ends in so many days."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=90))
    signed = made.not_valid_after(now + datetime.timedelta(days=days)).sign(key, hashes.SHA256())
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    held = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain).decode()
    return held, signed.public_bytes(encoding).decode()


def core(kind: str, name: str, **content: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


def expired() -> Object:
    key, pem = certificate("old.example", days=-2)
    return core("Secret", "expired", type="kubernetes.io/tls", stringData={"tls.key": key, "tls.crt": pem})


def tool_config(name: str, **spec: Any) -> Object:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": {"name": name}, "spec": spec}


def ingress(**more: Any) -> Object:
    return {"ingress": {"enabled": True, "host": "a.example", **more}, "auth": {"oidc": {"type": "kubernetes"}}}


SAME_NAME = {"a": {"name": "same"}, "b": {"name": "same"}}
ROOT = {"podTemplate": {"spec": {"containers": [{"name": "server", "securityContext": {"privileged": True}}]}}}

# The server's spec and what goes with it, the check that has to find it, and a word that has to be in what it says.
CHATTER = "import time\nwhile True:\n    print('hello', flush=True)\n    time.sleep(1)"
"""Who attaches hears only what is said from then on."""

FAULTS: Mapping[str, tuple[Object, list[Object], str, str]] = {
    # what can be told from the objects
    "syntax": (inline("def answer( -> str:\n    return 1\n", **ALONE), [], "server-spec", "line 1"),
    "no-secret": (inline(**env_from("Secret", "absent", "k")), [], "server-references", "Secret absent"),
    "no-key": (
        inline(**env_from("Secret", "there", "absent-key")),
        [core("Secret", "there", stringData={"k": "v"})],
        "server-references",
        "absent-key",
    ),
    "no-config-map": (inline(**env_from("ConfigMap", "gone", "k")), [], "server-references", "ConfigMap gone"),
    "no-tool-config": (inline(toolConfigRef={"name": "nowhere"}), [], "server-tools", "nowhere"),
    "tool-conflict": (
        inline(toolConfigRef={"name": "conflict"}),
        [tool_config("conflict", override=SAME_NAME)],
        "server-tools",
        "same",
    ),
    "bad-tool-config": (inline(**ALONE), [tool_config("clash", override=SAME_NAME)], "tool-configs", "clash"),
    "name-taken": (
        inline(**ALONE), [core("ConfigMap", "name-taken-tools", data={"a": "b"})], "server-name", "name-taken-tools",
    ),
    "no-runtime": ({"runtime": {"name": "nothing-like-it"}, **ALONE}, [], "server-runtime", "catalogue of runtimes"),
    "no-class": (inline(**ingress(className="nowhere-class")), [], "ingress-class", "nowhere-class"),
    "old-certificate": (
        inline(proxy={"tls": {"secretName": "expired"}}, suspend=True), [expired()], "certificates", "expired ended on",
    ),
    "no-certificate": (
        inline(**ingress(tls={"secretName": "never-made"})), [], "certificates", "never-made: is not there",
    ),
    "no-figures": (
        inline(autoscaling={"minReplicas": 1, "maxReplicas": 2}, suspend=True), [], "autoscaling-metrics", "no-figures",
    ),
    "open-doors": (inline(service={"type": "NodePort"}, suspend=True), [], "open-doors", "asks nobody"),
    "privileged": (inline(**ROOT, suspend=True), [], "pod-security", "privileged"),
    "too-large": (script("", resources={"requests": {"cpu": "900"}}), [], "server-scheduling", "cpu"),
    # what shows when it runs
    "import": (inline("import no_such_module\n" + TOOLS, **ALONE), [], "server-crashes", "no_such_module"),
    "exits": (script("raise SystemExit(7)"), [], "server-crashes", "code 7"),
    "out-of-memory": (
        script("x = b'x' * (256 << 20)", resources={"limits": {"memory": "32Mi"}}), [], "server-crashes", "memory",
    ),
    "no-image": ({"image": "localhost/no/such:1", **ALONE}, [], "server-image", "no/such:1"),
    "no-package": ({"package": {"pypi": "no-such-package", "version": "1"}}, [], "server-package", "no-such-package"),
    "not-mcp": (script(WEB.format(port=8080, host="0.0.0.0")), [], "server-handshake", "no MCP server"),
    "old-transport": (script(OLD_TRANSPORT), [], "server-handshake", "try sse"),
    "loopback": (script(WEB.format(port=8080, host="127.0.0.1")), [], "loopback-only", "127.0.0.1:8080"),
    "other-port": (script(WEB.format(port=3000, host="0.0.0.0")), [], "wrong-port", "listens on 3000"),
    "stdio-garbage": (
        {**script(CHATTER), "transport": "stdio", "proxy": {}},
        [],
        "server-handshake",
        "that are no MCP message",
    ),
    "typo-in-filter": (
        inline(toolConfigRef={"name": "typo"}),
        [tool_config("typo", filter=["answer", "anwser"])],
        "tools-unknown",
        "anwser",
    ),
    "hides-all": (
        inline(toolConfigRef={"name": "nothing"}), [tool_config("nothing", filter=[])], "tools-none", "no tool",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Doctor:
    """Somebody who asks about one namespace of the cluster."""

    installed: InstalledFairway
    namespace: str
    directory: Path

    def said(
        self, verb: str, *words: str, kubeconfig: Path | None = None, code: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """`code` runs in the program before it begins."""
        start = f"{code}\nimport sys; from fairway.cli.main import main; sys.exit(main())"
        where = ["--kubeconfig", str(kubeconfig or self.installed.rig.kubeconfig), "-n", self.namespace]
        return subprocess.run(
            [sys.executable, "-c", start, verb, *where, *words],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def finds(self, *, kubeconfig: Path | None = None, code: str = "") -> list[dict[str, str]]:
        told = self.said("doctor", "-o", "json", kubeconfig=kubeconfig, code=code)
        assert told.returncode in (0, 1), told.stderr
        return list(json.loads(told.stdout))

    def names(self, **options: Any) -> list[str]:
        return [found["check"] for found in self.finds(**options)]


@pytest.fixture(scope="module")
def healthy(fairway: InstalledFairway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doctor]:
    """A namespace with one server, which is well."""
    namespace = fairway.rig.namespace("well")
    fairway.apply(namespace, server("well", inline()))
    fairway.ready(namespace, "well")
    yield Doctor(fairway, namespace, tmp_path_factory.mktemp("well"))
    fairway.rig.delete_namespace(namespace)


@pytest.fixture(scope="module")
def sick(fairway: InstalledFairway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doctor]:
    """A namespace with every fault that a server can have, and one server that is well."""
    fairway.rig.load_image(python_image(reference=SCRIPT, entrypoint=["python", "-c"]))
    namespace = fairway.rig.namespace("sick")
    for name, (spec, beside, _, _) in FAULTS.items():
        fairway.apply(namespace, *beside, server(name, spec))
    fairway.apply(namespace, server("well", inline(**ALONE)))
    yield Doctor(fairway, namespace, tmp_path_factory.mktemp("sick"))
    fairway.rig.delete_namespace(namespace)


def server(name: str, spec: Object) -> Object:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}


def test_where_all_is_well_nothing_is_found(healthy: Doctor) -> None:
    said = healthy.said("doctor")
    assert (said.returncode, said.stderr) == (0, "")
    assert ", 0 found" in said.stdout


def test_a_server_inside_the_cluster_is_asked_through_the_api_server(healthy: Doctor) -> None:
    assert healthy.said("call", "well", "answer").stdout == "yes\n"
    (tool,) = json.loads(healthy.said("tools", "well", "-o", "json").stdout)
    assert tool["inputSchema"]["type"] == "object"
    wrong = healthy.said("call", "wel", "answer")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean well?" in wrong.stderr


@pytest.fixture(scope="module")
def findings(sick: Doctor) -> list[dict[str, str]]:
    """What doctor says once it has said of every fault that there is something."""
    said: list[dict[str, str]] = []

    def everything() -> bool:
        time.sleep(2)  # who asks takes the time of those who are asked about
        said[:] = sick.finds()
        return all(any(is_about(f, name) for f in said) for name in FAULTS)

    with suppress(Exception):  # each test says of its own fault what is missing
        wait_for("a finding for each fault", everything, seconds=180)
    return said


def is_about(found: Mapping[str, str], name: str) -> bool:
    _, _, check, word = FAULTS[name]
    return found["check"] == check and word in found["what"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_server_is_named_by_doctor(findings: list[dict[str, str]], name: str) -> None:
    found = [f for f in findings if is_about(f, name)]
    assert found, json.dumps(findings, indent=1)
    assert all(f["do"] for f in found)


def test_the_server_that_is_well_is_not_mentioned(findings: list[dict[str, str]]) -> None:
    assert not [f for f in findings if f["what"].startswith("well")]


@pytest.mark.parametrize("name", ["import", "no-secret", "old-transport", "no-image"])
def test_describe_names_it_too_and_says_what_to_do(sick: Doctor, findings: list[dict[str, str]], name: str) -> None:
    said = sick.said("describe", name).stdout
    assert "Ready=False" in said
    assert "do: " in said
    assert FAULTS[name][3] in said


# who asks


def edited(healthy: Doctor, tmp_path: Path, change: Callable[[Object], None]) -> Path:
    kubeconfig = yaml.safe_load(healthy.installed.rig.kubeconfig.read_text())
    change(kubeconfig)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def user_of(kubeconfig: Object) -> Object:
    return dict(kubeconfig["users"][0])["user"]  # type: ignore[no-any-return]


def test_a_kubeconfig_without_its_context_is_found(healthy: Doctor, tmp_path: Path) -> None:
    path = edited(healthy, tmp_path, lambda k: k.update({"current-context": "elsewhere"}))
    assert healthy.names(kubeconfig=path) == ["kubeconfig"]


def test_an_api_server_that_nobody_hears_is_found(healthy: Doctor, tmp_path: Path) -> None:
    path = edited(healthy, tmp_path, lambda k: k["clusters"][0]["cluster"].update(server="https://127.0.0.1:9"))
    assert healthy.names(kubeconfig=path) == ["cluster-unreachable"]


def test_a_login_that_is_refused_is_found(healthy: Doctor, tmp_path: Path) -> None:
    def change(kubeconfig: Object) -> None:
        kubeconfig["users"][0]["user"] = {"token": "no-such-token"}

    assert healthy.names(kubeconfig=edited(healthy, tmp_path, change)) == ["cluster-login"]


def test_an_account_without_rights_is_found(healthy: Doctor) -> None:
    healthy.installed.rig.api.apply(core("ServiceAccount", "nobody"), namespace=healthy.namespace)
    path = healthy.installed.rig.service_account_kubeconfig(healthy.namespace, "nobody")
    assert healthy.names(kubeconfig=path) == ["cluster-rights"]


def test_a_client_certificate_that_has_ended_is_found(healthy: Doctor, tmp_path: Path) -> None:
    rig = healthy.installed.rig
    rig.api.apply(core("ServiceAccount", "reader"), namespace=healthy.namespace)
    rig.kubectl(
        *("create", "clusterrolebinding", f"reader-{healthy.namespace}", "--clusterrole=cluster-admin"),
        f"--serviceaccount={healthy.namespace}:reader",
    )
    held = yaml.safe_load(rig.service_account_kubeconfig(healthy.namespace, "reader").read_text())
    key, pem = certificate("reader", days=-1)
    # the token lets it in; the certificate beside it is no longer of use to anybody
    user_of(held)["client-certificate-data"] = base64.b64encode(pem.encode()).decode()
    user_of(held)["client-key-data"] = base64.b64encode(key.encode()).decode()
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(held))
    try:
        assert healthy.names(kubeconfig=path) == ["client-certificate"]
    finally:
        rig.kubectl("delete", "clusterrolebinding", f"reader-{healthy.namespace}")


def test_a_clock_that_is_wrong_is_found(healthy: Doctor) -> None:
    assert healthy.names(code="import time; right = time.time; time.time = lambda: right() + 95") == ["clock-skew"]


# what was installed


@dataclass(frozen=True)
class Parts:
    """What `fairway install` made, to break and to mend."""

    doctor: Doctor

    def put(self, kind: str, name: str, **more: Any) -> None:
        for obj in objects(image=REFERENCE, replicas=1):
            if (obj["kind"], obj["metadata"]["name"]) == (kind, name):
                self.doctor.installed.rig.api.apply(obj, **more)

    def kubectl(self, *words: str) -> None:
        self.doctor.installed.rig.kubectl(*words)

    def found_within(self, check: str, seconds: float = 30) -> list[str]:
        found: list[str] = []

        def there() -> bool:
            found[:] = self.doctor.names()
            return check in found

        wait_for(check, there, seconds=seconds)
        return found


@pytest.fixture
def parts(healthy: Doctor) -> Parts:
    return Parts(healthy)


def test_a_right_that_the_operator_lacks_is_found(parts: Parts) -> None:
    role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
    api = parts.doctor.installed.rig.api
    rules = api.get(role)["rules"]
    api.merge(role, {"rules": [rule for rule in rules if "networkpolicies" not in rule["resources"]]})
    try:
        (found,) = parts.doctor.finds()
        assert found["check"] == "operator-rights"
        assert "the operator lacks rights: create ingresses" in found["what"]  # they stand in one rule
    finally:
        api.merge(role, {"rules": rules})
    assert parts.doctor.names() == []


def test_a_second_operator_is_found(parts: Parts) -> None:
    namespace = parts.doctor.namespace
    parts.kubectl("create", "deployment", NAME, "--image=x", "--replicas=0", "-n", namespace)
    parts.kubectl("label", "deployment", NAME, f"app.kubernetes.io/name={NAME}", "--overwrite", "-n", namespace)
    try:
        assert set(parts.doctor.names()) == {"operator-twice", "operator-down"}  # and that one does not run
    finally:
        parts.kubectl("delete", "deployment", NAME, "-n", namespace)


def test_kinds_of_another_version_and_kinds_that_are_not_there_are_found(parts: Parts) -> None:
    api = parts.doctor.installed.rig.api
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mcptoolconfigs.fairway.dev"
    whole = api.get(path)
    older = json.loads(json.dumps(whole["spec"]))
    del older["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["override"]
    try:
        api.merge(path, {"spec": older})
        assert parts.doctor.names() == ["crds-differ"]
    finally:
        api.merge(path, {"spec": whole["spec"]})
    wait_for("the kind as it was", lambda: parts.doctor.names() == [], seconds=30)


def test_an_operator_that_has_stopped_is_found_with_what_waits_for_it(parts: Parts) -> None:
    namespace, api = parts.doctor.namespace, parts.doctor.installed.rig.api
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
    parts.kubectl("scale", "-n", NAMESPACE, f"deployment/{NAME}", "--replicas=0")
    try:
        assert parts.found_within("operator-down") == ["operator-down"]
        api.merge(f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/mcpservers/well", {"spec": {"replicas": 2}})
        said = parts.doctor.said("describe", "well").stdout
        assert "the operator is behind" in said
    finally:
        parts.kubectl("scale", "-n", NAMESPACE, f"deployment/{NAME}", "--replicas=1")
    parts.doctor.installed.ready(namespace, "well")
    wait_for("nothing to find", lambda: parts.doctor.names() == [], seconds=60)
    held = api.get(lease)["spec"]
    assert held["holderIdentity"]
