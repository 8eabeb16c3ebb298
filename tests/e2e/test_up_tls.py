"""TLS on both sides of a proxy: for clients from a Secret, to servers by the authorities of a ConfigMap."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.laptop import Laptop
from tests.unit.proxy.authority import Authority

pytestmark = pytest.mark.e2e


def manifests(authority: Authority, port: int) -> str:
    certificate, key = (Path(file).read_text() for file in authority.issue("localhost", "127.0.0.1"))
    pair = {"tls.crt": certificate, "tls.key": key}
    ping = {"inlineTools": {"python": "def ping() -> str:\n    return 'pong'\n"}}
    objects = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pair"}, "stringData": pair},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "company"},
            "data": {"ca.crt": Path(authority.file).read_text()},
        },
        server("encrypted", proxy={"tls": {"secretName": "pair"}}, **ping),
        server("behind", **before(port), upstreamTLS={"caBundleRef": {"name": "company"}, "serverName": "localhost"}),
        server("untrusting", **before(port), upstreamTLS={"serverName": "localhost"}),
    ]
    return "\n---\n".join(json.dumps(each) for each in objects)


def server(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}


def before(port: int) -> dict[str, object]:
    return {"serviceRef": {"name": "encrypted", "port": port}}


def call(laptop: Laptop, name: str, authority: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"SSL_CERT_FILE": authority} if authority else {})}
    return subprocess.run(
        laptop._command(["call", name, "ping"]),
        cwd=laptop.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_tls_of_clients_and_to_servers_is_what_the_manifest_says(tmp_path: Path) -> None:
    laptop, authority = Laptop(tmp_path), Authority(tmp_path)
    laptop.write("all.yaml", manifests(authority, laptop.base + 1))
    try:
        laptop.up("-f", "all.yaml").until_ready("encrypted", "behind")
        assert laptop.url("encrypted").startswith("https://127.0.0.1:")
        assert call(laptop, "encrypted", authority.file).stdout == "pong\n"
        strange = call(laptop, "encrypted")
        assert strange.returncode == 2
        assert "certificate" in strange.stderr
        assert call(laptop, "behind").stdout == "pong\n"
        told = laptop.run("describe", "untrusting")
        assert "unable to get local issuer certificate" in told.stdout
    finally:
        laptop.close()
