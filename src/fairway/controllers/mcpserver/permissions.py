"""A permission profile as NetworkPolicy egress. What a NetworkPolicy cannot say stays forbidden, and is named. Pure."""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.controllers.mcpserver.children import Object
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings

METADATA_ADDRESSES = (
    "169.254.169.254/32",
    "fd00:ec2::254/128",
    # not link-local, so that nothing else keeps pods away: Azure, Alibaba, Oracle, Google on IPv6
    "168.63.129.16/32",
    "100.100.100.200/32",
    "192.0.0.192/32",
    "fd20:ce::254/128",
)
"""Where clouds hand out credentials to whoever asks from a machine of theirs."""

_WORLDS = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Egress:
    """What the server may connect to; None of rules means that nothing is decided about it."""

    rules: tuple[Object, ...] | None
    complaints: tuple[str, ...] = ()
    """Entries of the profile that are not granted, since they are wrong or beyond a NetworkPolicy."""


def egress(inputs: Inputs, settings: Settings) -> Egress:
    """The rules for the server's pods."""
    profile = inputs.server.spec.permission_profile
    if profile is None:
        return Egress(None)
    if profile.type == "builtin":
        return Egress((_everything(settings, ()),) if profile.name == "network" else ())
    content = inputs.contents.get(("ConfigMap", profile.name))
    text = content.text.get(profile.key or "") if content is not None else None
    if text is None:
        return Egress(())  # missing is said elsewhere; until then, nothing is allowed
    return _from_document(text, settings, where=f"ConfigMap {profile.name}, key {profile.key}")


def _from_document(text: str, settings: Settings, *, where: str) -> Egress:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Egress((), (f"{where} is not JSON: {error}",))
    if not isinstance(document, Mapping):
        return Egress((), (f"{where} is not a JSON object",))
    complaints = [f"{field}: not granted; mount a volume instead" for field in ("read", "write") if document.get(field)]
    if document.get("privileged"):
        complaints.append("privileged: not granted; set spec.securityContext.privileged")
    known = {"name", "read", "write", "privileged", "network"}
    complaints += [f"{field}: unknown" for field in sorted(document.keys() - known)]
    network = _map(document, "network", complaints)
    if _map(network, "inbound", complaints):
        complaints.append("network.inbound: only the proxy is ever let in")
    if network.get("mode") not in (None, "", "bridge"):
        complaints.append(f"network.mode {network['mode']!r}: not granted")
    return _outbound(_map(network, "outbound", complaints), settings, complaints)


def _outbound(outbound: Mapping[str, Any], settings: Settings, complaints: list[str]) -> Egress:
    ports = _ports(outbound.get("allow_port"), complaints)
    hosts = outbound.get("allow_host") or []
    if outbound.get("insecure_allow_all") is True:
        return Egress((_everything(settings, ()),), tuple(complaints))
    blocks, named = _blocks(hosts if isinstance(hosts, list) else [hosts])
    if named:
        complaints.append(
            f"network.outbound.allow_host {', '.join(named[:10])}: a NetworkPolicy knows addresses, not names; "
            "give addresses or CIDRs, or use the profile `network`"
        )
    if blocks:
        by_block = {block: _peer(block, settings) for block in blocks}
        refused = [block for block, peers in by_block.items() if not peers]
        if refused:
            complaints.append(f"network.outbound.allow_host {', '.join(refused)}: nobody may reach that")
        peers = [peer for found in by_block.values() for peer in found]
        # a rule without a destination would mean all of them
        return Egress((_rule(peers, ports),) if peers else (), tuple(complaints))
    if ports and not hosts:
        return Egress((_everything(settings, ports),), tuple(complaints))
    return Egress((), tuple(complaints))


def _ports(given: Any, complaints: list[str]) -> list[int]:
    values = given if isinstance(given, list) else [] if given is None else [given]
    good = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 65535]
    if len(good) != len(values):
        complaints.append("network.outbound.allow_port: ports are numbers from 1 to 65535")
    return sorted(set(good))


def _blocks(hosts: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The networks among the hosts, and the names."""
    blocks, named = [], []
    for host in hosts:
        try:
            blocks.append(str(ipaddress.ip_network(str(host), strict=False)))
        except ValueError:
            named.append(str(host)[:100])
    return sorted(set(blocks)), named


def _everything(settings: Settings, ports: Sequence[int]) -> Object:
    peers = [peer for world in _WORLDS for peer in _peer(world, settings)]
    # networks differ in whether a block of addresses means pods too
    return _rule([*peers, {"namespaceSelector": {}}], ports)


def _peer(block: str, settings: Settings) -> list[Object]:
    """The block without what nobody may reach; nothing of it, if it is within that."""
    network = ipaddress.ip_network(block)
    inside = []
    for text in dict.fromkeys((*METADATA_ADDRESSES, *settings.api_server)):
        kept_out = ipaddress.ip_network(text)
        if kept_out.version != network.version:
            continue
        if network.subnet_of(kept_out):  # type: ignore[arg-type]
            return []
        if kept_out.subnet_of(network):  # type: ignore[arg-type]
            inside.append(str(kept_out))
    return [{"ipBlock": {"cidr": block, **({"except": sorted(inside)} if inside else {})}}]


def _rule(peers: Sequence[Object], ports: Sequence[int]) -> Object:
    return {
        "to": list(peers),
        **({"ports": [{"protocol": "TCP", "port": port} for port in ports]} if ports else {}),
    }


def _map(holder: Mapping[str, Any], field: str, complaints: list[str]) -> Mapping[str, Any]:
    value = holder.get(field)
    if value is None or isinstance(value, Mapping):
        return value or {}
    complaints.append(f"{field}: not an object")
    return {}
