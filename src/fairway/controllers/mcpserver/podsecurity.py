"""Where a pod breaks the `restricted` Pod Security standard, by field, before any admission says so. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

Obj = Mapping[str, Any]

_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "image",
    }
)
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)


def violations(pod: Obj) -> list[str]:
    """Each field that the standard forbids, with what it says; empty if the pod is restricted."""
    return list(dict.fromkeys([*_of_pod(pod), *_of_containers(pod)]))


def _of_pod(pod: Obj) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"{field} is true"
    for volume in _list(pod, "volumes"):
        kind = next((name for name in volume if name != "name"), "emptyDir")
        if kind not in _VOLUMES:
            yield f"volume {volume.get('name')} is a {kind}"
    context = _map(pod, "securityContext")
    for sysctl in _list(context, "sysctls"):
        if sysctl.get("name") not in _SAFE_SYSCTLS:
            yield f"sysctl {sysctl.get('name')}"
    yield from _shared("the pod", context)


def _of_containers(pod: Obj) -> Iterator[str]:
    of_pod = _map(pod, "securityContext")
    for kind in ("initContainers", "containers"):
        for container in _list(pod, kind):
            name, context = f"container {container.get('name')}", _map(container, "securityContext")
            yield from _shared(name, context)
            yield from _of_container(name, container, context, of_pod)


def _of_container(name: str, container: Obj, context: Obj, of_pod: Obj) -> Iterator[str]:
    if context.get("privileged"):
        yield f"{name} is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name} allows privilege escalation"
    capabilities = _map(context, "capabilities")
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name} does not drop all capabilities"
    added = sorted({str(c) for c in capabilities.get("add") or ()} - {"NET_BIND_SERVICE"})
    if added:
        yield f"{name} adds the capabilities {', '.join(added)}"
    if context.get("procMount") not in (None, "Default"):
        yield f"{name} mounts /proc as {context['procMount']}"
    if any(port.get("hostPort") for port in _list(container, "ports")):
        yield f"{name} has a host port"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if not (_map(context, "seccompProfile") or _map(of_pod, "seccompProfile")):
        yield f"{name} has no seccomp profile"


def _shared(name: str, context: Obj) -> Iterator[str]:
    """What the standard says of pods and of containers alike."""
    if context.get("runAsUser") == 0:
        yield f"{name} runs as root"
    if _map(context, "seccompProfile").get("type") == "Unconfined":
        yield f"{name} has the seccomp profile Unconfined"
    if _map(context, "appArmorProfile").get("type") == "Unconfined":
        yield f"{name} has the AppArmor profile Unconfined"
    if _map(context, "windowsOptions").get("hostProcess"):
        yield f"{name} is a host process"
    selinux = _map(context, "seLinuxOptions")
    if selinux.get("type", "") not in _SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{name} sets SELinux options"


def _map(holder: Obj, field: str) -> Obj:
    value = holder.get(field)
    return value if isinstance(value, Mapping) else {}


def _list(holder: Obj, field: str) -> list[Obj]:
    value = holder.get(field)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
