"""Host and Origin: keeps web pages that a user happens to visit from talking to MCP servers through the user's browser.

A browser always sends Origin with a POST, and the attack that matters (DNS rebinding) makes Host and Origin agree on a
name that the attacker owns. So agreement alone proves nothing; what proves something is a name that an attacker cannot
have: a loopback name, an IP literal, a name reserved for private use, or one that a certificate vouched for (https).
"""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_PRIVATE_SUFFIXES: Final = (".svc", ".cluster.local", ".local", ".internal", ".localhost", ".test", ".home.arpa")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The request may go on. `keep_origin` says whether the server may see the Origin header as well."""

    keep_origin: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """The request comes from where it should not; the reason is for the client."""

    reason: str


def judge(*, host: str, origin: str | None, loopback: bool) -> Allowed | Denied:
    """Decides on one request. `loopback` says that the listener can only be reached from this machine."""
    name = host_name(host)
    if name is None:
        return Denied("the Host header is not a host name")
    if loopback and not is_loopback(name):
        return Denied(f"Host {host} is not this machine's: this address only serves localhost")
    if origin is None:
        return Allowed()
    try:
        parts = urlsplit(origin)
        origin_name = (parts.hostname or "").rstrip(".")
    except ValueError:
        return Denied(f"Origin {origin} is not an origin")
    if not origin_name or parts.scheme not in ("http", "https"):
        return Denied(f"Origin {origin} is not allowed")
    if is_loopback(origin_name):
        return Allowed(keep_origin=True)
    if origin_name == name and (parts.scheme == "https" or _cannot_be_rebound(name)):
        return Allowed()
    return Denied(f"Origin {origin} is not allowed")


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case and without port; None if it is not one."""
    if not host or any(c in host for c in "/\\@?#, \t"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


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
