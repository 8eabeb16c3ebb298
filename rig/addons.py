"""What a cluster with a node needs inside the API: the name server, and the rights of what enforces policies."""

import hashlib
import socket
from pathlib import Path

from rig import dns
from rig.api import Api, Object
from rig.image import Entry
from rig.pki import NETWORK_POLICY_USER
from rig.pyimage import SITE_PACKAGES, python_image
from rig.state import Network

DNS_LABELS = {"k8s-app": "kube-dns"}
READY_PORT = 8181
DNS_PATIENCE_SECONDS = 0.2


def dns_reference() -> str:
    """The name of the image carries its content, so that a new one rolls the pod out."""
    return f"localhost/fairway-rig-dns:{hashlib.sha256(Path(dns.__file__).read_bytes()).hexdigest()[:12]}"


def dns_image() -> Path:
    package = Path(dns.__file__).parent
    return python_image(
        reference=dns_reference(),
        entrypoint=["python", "-m", "rig.dns"],
        files={
            f"{SITE_PACKAGES}/rig/__init__.py": Entry(source=package / "__init__.py"),
            f"{SITE_PACKAGES}/rig/dns.py": Entry(source=package / "dns.py"),
        },
    )


def apply_dns(api: Api, network: Network) -> None:
    for manifest in dns_manifests(network, image=dns_reference()):
        api.apply(manifest)


def apply_network_policy_rights(api: Api) -> None:
    """What the enforcer of network policies has to see."""
    name, rbac = {"name": NETWORK_POLICY_USER}, "rbac.authorization.k8s.io"
    for manifest in (
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": name,
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": NETWORK_POLICY_USER},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": NETWORK_POLICY_USER}],
        },
    ):
        api.apply(manifest)


def dns_answers(network: Network) -> bool:
    """Whether a name resolves through the Service, which kube-proxy serves a moment after its pod is ready."""
    query = dns.question(f"kubernetes.default.svc.{dns.DOMAIN}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(DNS_PATIENCE_SECONDS)
        try:
            client.connect((network.dns_service, 53))
            client.send(query)
            reply = client.recv(512)
        except OSError:
            return False
    return reply[:2] == query[:2] and socket.inet_aton(network.kubernetes_service) in reply


def dns_manifests(network: Network, *, image: str) -> list[Object]:
    # The names and labels of a usual cluster: network policies and people look for these.
    name = {"name": "kube-dns", "namespace": "kube-system", "labels": DNS_LABELS}
    cluster_name = {"name": "fairway-rig:dns"}
    rbac = "rbac.authorization.k8s.io"
    watched = [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    account = {"kind": "ServiceAccount", "name": "kube-dns", "namespace": "kube-system"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": cluster_name, "rules": watched},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": cluster_name,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": cluster_name["name"]},
            "subjects": [account],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": name,
            "spec": {
                "clusterIP": network.dns_service,
                "selector": DNS_LABELS,
                "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"}],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": name,
            "spec": {
                "selector": {"matchLabels": DNS_LABELS},
                "template": {"metadata": {"labels": DNS_LABELS}, "spec": _pod(image)},
            },
        },
    ]


def _pod(image: str) -> Object:
    return {
        "serviceAccountName": "kube-dns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 0,
        # It is not root, and yet listens on 53: policies that admit port 53 look at the pod's port.
        "securityContext": {
            "runAsNonRoot": True,
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
        "containers": [
            {
                "name": "dns",
                "image": image,
                "imagePullPolicy": "Never",
                "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": READY_PORT}, "periodSeconds": 1},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
