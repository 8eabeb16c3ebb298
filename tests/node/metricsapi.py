"""A metrics API that says what a test wants to be true, in the place of the one that a cluster may have."""

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rig.api import condition_of, wait_for
from rig.testcluster import RigCluster

GROUP = "/apis/metrics.k8s.io/v1beta1"
NAME = "v1beta1.metrics.k8s.io"
NAMESPACE = "kube-system"


@dataclass
class Metrics:
    """Every pod that is asked about uses so much memory."""

    rig: RigCluster
    mebibytes: int

    def answer(self, path: str) -> object:
        parts = urlsplit(path)
        if parts.path.rstrip("/") == GROUP:
            pods = {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "PodMetrics",
                "verbs": ["get", "list"],
            }
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP[6:], "resources": [pods]}
        words = parts.path.removeprefix(GROUP).strip("/").split("/")
        if len(words) != 3 or words[0] != "namespaces" or words[2] != "pods":
            return None
        found = self.rig.api.items(f"/api/v1/namespaces/{words[1]}/pods?{parts.query}")
        return {"kind": "PodMetricsList", "apiVersion": GROUP[6:], "metadata": {}, "items": list(map(self._of, found))}

    def _of(self, pod: dict[str, object]) -> object:
        metadata: dict[str, object] = pod["metadata"]  # type: ignore[assignment]
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        named = {name: metadata[name] for name in ("name", "namespace", "labels")}
        usage = {"cpu": "1m", "memory": f"{self.mebibytes}Mi"}
        spec: dict[str, list[dict[str, str]]] = pod["spec"]  # type: ignore[assignment]
        used = [{"name": container["name"], "usage": usage} for container in spec["containers"]]
        return {"metadata": named, "timestamp": now, "window": "1s", "containers": used}


@contextmanager
def metrics_api(rig: RigCluster, directory: Path, *, mebibytes: int) -> Iterator[Metrics]:
    """Registered with the API server for as long as this lasts; served on loopback."""
    metrics = Metrics(rig, mebibytes)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = metrics.answer(self.path)
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(directory))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    registered = {
        "service": {"name": "test-metrics", "namespace": NAMESPACE, "port": port},
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    rig.api.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "test-metrics"}, "spec": service},
        namespace=NAMESPACE,
    )
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{NAME}"
    rig.api.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": NAME},
            "spec": registered,
        }
    )
    try:
        wait_for("the metrics API", lambda: _is_available(rig.api.get(path)), seconds=30)
        yield metrics
    finally:
        rig.api.delete(path)
        rig.api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/test-metrics")
        server.shutdown()
        server.server_close()


def _is_available(service: dict[str, Any]) -> bool:
    return condition_of(service, "Available") == "True"


def _certificate(directory: Path) -> Path:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "metrics.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
