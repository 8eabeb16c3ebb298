"""containerd, kubelet and kube-proxy: what each is told when it starts."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rig.binary import Binaries
from rig.controlplane import ControlPlane
from rig.errors import CannotRunError, RigError
from rig.files import write_changed
from rig.image import Entry, ImageConfig, build_image, containerd_socket, ctr, load_image, snapshotter
from rig.network import in_namespace
from rig.packages import CNI_PACKAGE, cni_directory, program
from rig.process import Daemon
from rig.state import Settings, State

NODE_NAME = "rig-node"
PAUSE_IMAGE = "localhost/fairway-rig-pause:1"
# A unix socket's path has at most 107 characters; the kubelet puts `device-plugins/kubelet.sock` below its root.
LONGEST_STATE_PATH = 70
NETWORK_POLICY = "network-policy"
NAMES = ("containerd", "kubelet", "kube-proxy", NETWORK_POLICY)


@dataclass(frozen=True)
class Node:
    """The daemons of the one node, and the files that they read. All run in the node's network namespace."""

    state: State
    settings: Settings
    binaries: Binaries
    plane: ControlPlane

    def write_files(self) -> None:
        if len(str(self.state.root)) > LONGEST_STATE_PATH:
            raise RigError(
                f"the path {self.state.root} is too long for the sockets of a node",
                fix=f"set RIG_STATE to a directory of at most {LONGEST_STATE_PATH} characters",
            )
        cni = self.state.config / "cni"
        self.settings.sockets.mkdir(parents=True, exist_ok=True, mode=0o711)
        write_changed(cni / "10-rig.conflist", json.dumps(self.cni(), indent=2))
        write_changed(self.state.config / "containerd.toml", self.containerd_toml())
        write_changed(self.state.config / "kubelet.yaml", yaml.safe_dump(self.kubelet_configuration()))
        write_changed(self.state.config / "kube-proxy.yaml", yaml.safe_dump(self.proxy_configuration()))
        # The machine's own search domains would change how names resolve in pods.
        write_changed(self.state.config / "resolv.conf", f"nameserver {self.settings.network.dns_service}\n")

    def cni(self) -> dict[str, object]:
        pods = self.settings.network.pods
        return {
            "cniVersion": "1.0.0",
            "name": "rig",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.state.root / "ipam"),
                        "ranges": [[{"subnet": pods}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def containerd_toml(self) -> str:
        plugins = cni_directory()
        if plugins is None:
            raise CannotRunError("the CNI plug-ins are not installed", fix=f"apt-get install {CNI_PACKAGE}")
        return CONTAINERD_TOML.format(
            root=json.dumps(str(self.state.root / "containerd")),
            state=json.dumps(str(self.settings.sockets / "containerd")),
            socket=json.dumps(str(containerd_socket(self.state))),
            pause=json.dumps(PAUSE_IMAGE),
            snapshotter=json.dumps(snapshotter(self.state.root)),
            cni_bin=json.dumps(str(plugins)),
            cni_conf=json.dumps(str(self.state.config / "cni")),
        )

    def kubelet_configuration(self) -> dict[str, object]:
        pki = self.state.pki
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.settings.network.node_address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
            "containerRuntimeEndpoint": f"unix://{containerd_socket(self.state)}",
            "cgroupDriver": "cgroupfs",
            # Its own tree of cgroups: a kubelet ends every pod below its root that it does not know.
            "cgroupRoot": self.settings.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # Lowering it takes CAP_SYS_RESOURCE, which containers and sandboxes often lack.
            "oomScoreAdj": 0,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.inodesFree": "1%",
            },
            # There is no registry to get a collected image back from.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "localStorageCapacityIsolation": False,
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.settings.network.dns_service],
            "resolvConf": str(self.state.config / "resolv.conf"),
            "podLogsDir": str(self.state.root / "pod-logs"),
            # syncFrequency stays at its default of a minute: tests have to see what users see.
        }

    def proxy_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": self.settings.network.pods,
            "hostnameOverride": NODE_NAME,
            "oomScoreAdj": 0,
            "conntrack": {"maxPerCore": 0, "min": 0},
            "clientConnection": {"kubeconfig": str(self.plane.component_kubeconfig("proxy"))},
        }

    def containerd(self) -> Daemon:
        config = self.state.config / "containerd.toml"
        return self._daemon("containerd", [str(program("containerd")), f"--config={config}"], inputs=[config])

    def kubelet(self) -> Daemon:
        config, kubeconfig = self.state.config / "kubelet.yaml", self.plane.component_kubeconfig("kubelet")
        return self._daemon(
            "kubelet",
            [
                *self.binaries.command("kubelet"),
                f"--config={config}",
                f"--kubeconfig={kubeconfig}",
                f"--root-dir={self.state.root / 'kubelet'}",
                f"--cert-dir={self.state.root / 'kubelet-pki'}",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={self.settings.network.node_address}",
            ],
            inputs=[config, kubeconfig],
        )

    def proxy(self) -> Daemon:
        config = self.state.config / "kube-proxy.yaml"
        inputs = [config, self.plane.component_kubeconfig("proxy")]
        return self._daemon("kube-proxy", [*self.binaries.command("kube-proxy"), f"--config={config}"], inputs=inputs)

    def network_policy(self, program: Path) -> Daemon:
        kubeconfig = self.plane.component_kubeconfig("network-policy")
        return self._daemon(
            NETWORK_POLICY,
            [
                str(program),
                f"--kubeconfig={kubeconfig}",
                f"--service-cidr={self.settings.network.services}",
                f"--node={NODE_NAME}",
            ],
            inputs=[kubeconfig],
        )

    def _daemon(self, name: str, command: Sequence[str], *, inputs: Sequence[Path]) -> Daemon:
        argv = in_namespace(self.settings, command)
        # nft, iptables, runc and the shim are looked for on the PATH.
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
        return Daemon(
            name=name,
            argv=tuple(argv),
            executable=Path(argv[0]),
            environment=(("PATH", path),),
            inputs=tuple(inputs),
        )

    def containerd_answers(self) -> bool:
        if not containerd_socket(self.state).exists():
            return False
        try:
            ctr(self.state, "version")
        except RigError:
            return False
        return True

    def load_pause(self) -> None:
        """The image that holds a pod's namespaces; without it no pod starts."""
        image = build_image(
            reference=PAUSE_IMAGE,
            config=ImageConfig(entrypoint=["/pause"], user="65535"),
            output=self.state.config / "pause.tar",
            files={"/pause": Entry(source=self.binaries.pause, mode=0o755)},
        )
        load_image(self.state, image)


CONTAINERD_TOML = """\
version = 2
root = {root}
state = {state}
# Snapshotters that this machine may lack the kernel for, and would only complain about.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {pause}
  # Lowering it takes CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  disable_apparmor = true
  # So that they are found, and unmounted, with everything else.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {snapshotter}
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni_bin}
    conf_dir = {cni_conf}
"""
