"""Host and Origin: keeps web pages that a user happens to visit from talking to MCP servers through the user's browser.

Browsers always send Origin with a POST, and in the attack that matters (DNS rebinding) Host and Origin agree on a name
that the attacker owns. So agreement alone proves nothing; what proves something is a name that no attacker can have: a
loopback name, an address, a name for private use, one that a certificate vouched for, or one that is configured.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from fairway.api import policy
from fairway.proxy.answers import Refusal

_PRIVATE_SUFFIXES: Final = (".svc", ".cluster.local", ".local", ".internal", ".localhost", ".test", ".home.arpa")
_REMEMBERED: Final = 256


class OriginRules:
    """Judges the Host and Origin of a request. `loopback`: the listener can only be reached from this machine."""

    def __init__(self, config: policy.Cors, *, loopback: bool) -> None:
        self._origins = frozenset(config.allowed_origins)
        self._hosts = frozenset(host for host in config.allowed_hosts if not host.startswith("*."))
        self._suffixes = tuple(host[1:] for host in config.allowed_hosts if host.startswith("*."))
        self._loopback = loopback
        self._good_hosts: dict[str, None] = {}

    def check(self, host: str, origin: str | None) -> Refusal | None:
        """One request; its one Host header, and its one Origin header if it has one."""
        if host not in self._good_hosts:
            refusal = self._check_host(host)
            if refusal is not None:
                return refusal
            if len(self._good_hosts) >= _REMEMBERED:
                del self._good_hosts[next(iter(self._good_hosts))]
            self._good_hosts[host] = None
        return None if origin is None else self._check_origin(host, origin)

    def _check_host(self, host: str) -> Refusal | None:
        name = host_name(host)
        if name is None:
            return Refusal(400, "the Host header is not a host name")
        if self._hosts or self._suffixes:
            if name not in self._hosts and not name.endswith(self._suffixes):
                return Refusal(403, "this server does not answer to that Host", 403)
        elif self._loopback and not is_loopback(name):
            return Refusal(403, "this address only serves localhost, and Host says something else", 403)
        return None

    def _check_origin(self, host: str, origin: str) -> Refusal | None:
        if origin in self._origins or "*" in self._origins:
            return None
        name = origin_name(origin)
        if name is not None:
            if is_loopback(name):
                return None
            if name == host_name(host) and (origin.startswith("https://") or _cannot_be_rebound(name)):
                return None
        return Refusal(403, "requests from that Origin are not allowed", 403)


def may_see_origin(origin: str) -> bool:
    """Whether the server gets to see an Origin that was let in: only one that it would let in itself.

    It is reached as localhost, so its own check knows no other names; the proxy has already made the check that counts.
    """
    name = origin_name(origin)
    return name is not None and is_loopback(name)


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case and without port; None if it is not one."""
    if not host or not host.isascii() or any(c <= " " or c in '/\\@?#%,"<>\x7f' for c in host):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return (parts.hostname or "").rstrip(".") or None


def origin_name(origin: str) -> str | None:
    """The host in an Origin header; None if it is not the origin of a web page."""
    scheme, separator, host = origin.partition("://")
    return host_name(host) if separator and scheme in ("http", "https") else None


def is_loopback(name: str) -> bool:
    """Whether a host name can only mean the machine that it is used on."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _cannot_be_rebound(name: str) -> bool:
    if "." not in name or name.endswith(_PRIVATE_SUFFIXES):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
