"""The node's own network namespace and the one link between it and the machine.

Everything that a node does to a network - bridges, firewall rules, forwarding - stays in the namespace, so that rigs do
not disturb each other or the machine, and taking the network down is deleting one name.

    machine  fwrig-<id> 10.x.255.1 ---- 10.x.255.2 eth0  namespace  cni0 10.x.0.1 ---- pods 10.x.0.0/24
"""

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from rig.errors import RigError
from rig.packages import find_program, program
from rig.state import Settings

NAMESPACES = Path("/run/netns")
# A pod that calls a service whose endpoint is on the same bridge must be seen by the rules that translate addresses.
NODE_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}


def taken_networks() -> list[str]:
    """The networks that this machine has an address in or a route to."""
    try:
        addresses = json.loads(_ip("-j", "-4", "address", "show"))
        routes = json.loads(_ip("-j", "-4", "route", "show"))
    except (OSError, subprocess.CalledProcessError, ValueError):
        # Without `ip` no node can be made here either, and loopback collides with nothing.
        return []
    found = [f"{entry['local']}/{entry['prefixlen']}" for link in addresses for entry in link.get("addr_info", [])]
    found += [route["dst"] for route in routes if route.get("dst", "default") != "default"]
    return [network if "/" in network else f"{network}/32" for network in found]


def network_exists(settings: Settings) -> bool:
    return (NAMESPACES / settings.netns).exists() and Path(f"/sys/class/net/{settings.link}").exists()


def make_network(settings: Settings) -> None:
    """The namespace and the link, whole or not at all."""
    if network_exists(settings):
        return
    remove_network(settings)
    try:
        for command in network_commands(settings):
            _run(command)
        for name, value in NODE_SYSCTLS.items():
            _run(in_namespace(settings, ["sh", "-c", f"echo {value} > /proc/sys/{name}"]))
    except RigError:
        remove_network(settings)
        raise


def network_commands(settings: Settings) -> list[list[str]]:
    network, link, namespace = settings.network, settings.link, settings.netns
    ip = str(program("ip"))
    inside = [ip, "-n", namespace]
    return [
        [ip, "netns", "add", namespace],
        [ip, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace],
        [ip, "address", "add", f"{network.host_address}/{network.link_prefix}", "dev", link],
        [ip, "link", "set", link, "up"],
        [*inside, "link", "set", "lo", "up"],
        [*inside, "address", "add", f"{network.node_address}/{network.link_prefix}", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "route", "add", "default", "via", network.host_address],
        # Pods and services can be reached from the machine: the node forwards.
        [ip, "route", "add", network.cidr, "via", network.node_address, "dev", link],
    ]


def remove_network(settings: Settings) -> None:
    for command in (["link", "delete", settings.link], ["netns", "delete", settings.netns]):
        subprocess.run([program("ip"), *command], capture_output=True, check=False)


def in_namespace(settings: Settings, command: Sequence[str]) -> list[str]:
    # Not `ip netns exec`: that hides the mounts below /sys, and with them the cgroups.
    return [str(program("nsenter")), f"--net={NAMESPACES / settings.netns}", "--", *command]


def processes_in(settings: Settings, processes: Iterable[Path] | None = None) -> list[int]:
    """The processes that live in the node's namespace: what was started there, and what that started."""
    try:
        wanted = (NAMESPACES / settings.netns).stat()
    except FileNotFoundError:
        return []
    found = []
    for process in processes if processes is not None else Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "net").stat().st_ino == wanted.st_ino:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def _ip(*arguments: str) -> str:
    ip = find_program("ip")
    if ip is None:
        raise FileNotFoundError("ip")
    return subprocess.run([ip, *arguments], capture_output=True, text=True, check=True).stdout


def _run(command: Sequence[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RigError(f"`{' '.join(command)}` failed: {answer.stderr.strip()}")
