"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler: what each is told when it starts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.binary import Binaries
from rig.files import write_changed
from rig.kubeconfig import certificate_user, write_kubeconfig
from rig.pki import NETWORK_POLICY_USER
from rig.process import Daemon
from rig.state import Settings, State

LOOPBACK = "127.0.0.1"
# The control plane's own identities: what they do says nothing about the rights of what is tested.
QUIET_USERS = (
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:kube-proxy",
    "kube-apiserver-kubelet",
    NETWORK_POLICY_USER,
)
QUIET_GROUPS = ("system:nodes", "system:serviceaccounts:kube-system")
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": list(QUIET_USERS)},
        {"level": "None", "userGroups": list(QUIET_GROUPS)},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
        {"level": "Metadata"},
    ],
}
# The defaults (20 requests a second) make the controllers take 5.5 s to be ready on an empty cluster instead of 1.
CLIENT_RATE = ("--kube-api-qps=300", "--kube-api-burst=600")
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class ControlPlane:
    """The four daemons of one rig, and the files that they read."""

    state: State
    settings: Settings
    binaries: Binaries
    apiserver_options: Sequence[str] = ()

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.settings.ports.apiserver}"

    @property
    def address(self) -> str:
        """Loopback, unless pods have to reach it."""
        return self.settings.network.host_address if self.settings.node else LOOPBACK

    def write_files(self) -> None:
        write_changed(self._audit_policy, json.dumps(AUDIT_POLICY, indent=2))
        self.state.logs.mkdir(parents=True, exist_ok=True)
        self._write_kubeconfig(self.state.kubeconfig, "admin")
        for name in ("controller-manager", "scheduler", "proxy", "kubelet", "network-policy"):
            self._write_kubeconfig(self.component_kubeconfig(name), name)

    def component_kubeconfig(self, name: str) -> Path:
        return self.state.config / f"{name}.kubeconfig"

    def _write_kubeconfig(self, path: Path, identity: str) -> None:
        write_kubeconfig(
            path,
            server=self.server,
            ca_pem=self.state.ca_certificate.read_text(),
            user=certificate_user(self.state.pki, identity),
        )

    @property
    def _audit_policy(self) -> Path:
        return self.state.config / "audit-policy.json"

    def _daemon(self, component: str, options: Sequence[str], *, inputs: Sequence[Path] = ()) -> Daemon:
        return Daemon(
            name=component,
            argv=(component, *options),
            executable=self.binaries.of(component),
            inputs=tuple(inputs),
        )

    def etcd(self) -> Daemon:
        ports = self.settings.ports
        return self._daemon(
            "etcd",
            [
                f"--data-dir={self.state.root / 'etcd'}",
                f"--listen-client-urls=http://{LOOPBACK}:{ports.etcd}",
                f"--listen-peer-urls=http://{LOOPBACK}:{ports.etcd_peer}",
            ],
        )

    def apiserver(self) -> Daemon:
        pki, network, ports = self.state.pki, self.settings.network, self.settings.ports
        # Without a node there is no address that anybody could reach the service `kubernetes` at.
        reconciler = "lease" if self.settings.node else "none"
        return self._daemon(
            "kube-apiserver",
            [
                f"--etcd-servers=http://{LOOPBACK}:{ports.etcd}",
                f"--bind-address={self.address}",
                f"--advertise-address={network.host_address}",
                f"--secure-port={ports.apiserver}",
                f"--endpoint-reconciler-type={reconciler}",
                f"--service-cluster-ip-range={network.services}",
                f"--tls-cert-file={pki / 'apiserver.crt'}",
                f"--tls-private-key-file={pki / 'apiserver.key'}",
                f"--client-ca-file={pki / 'ca.crt'}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={pki / 'service-account.pub'}",
                f"--service-account-signing-key-file={pki / 'service-account.key'}",
                f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
                f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
                f"--kubelet-certificate-authority={pki / 'ca.crt'}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--requestheader-client-ca-file={pki / 'ca.crt'}",
                "--requestheader-allowed-names=front-proxy",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
                f"--proxy-client-key-file={pki / 'front-proxy.key'}",
                "--allow-privileged=true",
                "--profiling=false",
                f"--audit-policy-file={self._audit_policy}",
                f"--audit-log-path={self.state.audit_log}",
                "--audit-log-maxsize=1000",
                *self.apiserver_options,
            ],
            inputs=[self._audit_policy],
        )

    def controller_manager(self) -> Daemon:
        pki = self.state.pki
        return self._daemon(
            "kube-controller-manager",
            [
                *self._login("controller-manager", port=self.settings.ports.controller_manager),
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={pki / 'service-account.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                f"--cluster-signing-cert-file={pki / 'ca.crt'}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                "--allocate-node-cidrs=false",
                # Every 15 s it would be; how long it thinks is nothing that tests are about.
                "--horizontal-pod-autoscaler-sync-period=2s",
            ],
            inputs=[self.component_kubeconfig("controller-manager")],
        )

    def scheduler(self) -> Daemon:
        return self._daemon(
            "kube-scheduler",
            self._login("scheduler", port=self.settings.ports.scheduler),
            inputs=[self.component_kubeconfig("scheduler")],
        )

    def _login(self, name: str, *, port: int) -> list[str]:
        kubeconfig = self.component_kubeconfig(name)
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--profiling=false",
            *CLIENT_RATE,
        ]
