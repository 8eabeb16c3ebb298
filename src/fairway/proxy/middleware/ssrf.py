"""Keeps the proxy from being sent to places that it alone can reach: a guard for every URL that it fetches.

A name is resolved once, every address is judged, and the connection goes to exactly the judged address: a name that
answers differently the second time gains nothing. Redirects are not followed. Judging is pure; only `GuardedFetch`
touches a network.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fairway.api import policy
from fairway.mcp.http import HttpClient, HttpError, InvalidUrl, Limits

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host name and port -> every address that it stands for."""


class FetchFailed(Exception):
    """Nothing was fetched; the message says why."""


class Forbidden(FetchFailed):
    """The URL leads where this proxy does not go."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads, before anybody asked what its name stands for."""

    host: str
    port: int
    secure: bool


_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE: Final = tuple(
    map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15"))
)
_PRIVATE_6: Final = (IPv6Network("fc00::/7"),)
_METADATA: Final = frozenset(
    map(
        ip_address,
        # AWS and most others, AWS tasks, AWS on IPv6, Google on IPv6, Alibaba, Azure's wire server, Oracle
        (
            "169.254.169.254",
            "169.254.170.2",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ),
    )
)
_ACCEPT: Final = "application/json, application/jwk-set+json"
"""The Kubernetes API server gives its keys to nobody who does not name their own type."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_GLOBAL_6: Final = IPv6Network("2000::/3")
_RESERVED_6: Final = (IPv6Network("3fff::/20"), IPv6Network("2001::/23"))
_RESERVED: Final = (IPv4Network("192.88.99.0/24"), IPv4Network("192.0.0.0/24"))


def objection(address: IPv4Address | IPv6Address, rules: policy.Fetch) -> str | None:
    """Why the proxy does not connect to an address; None if it does."""
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return objection(inner, rules)
        if address.scope_id is not None:
            return "it has a zone"
    if address in _METADATA:
        return "it serves a cloud's metadata"
    if address.is_loopback:
        return None if rules.allow_loopback else "it is this machine"
    if address.is_link_local:
        return "it is link-local"
    if address.is_multicast or address.is_unspecified:
        return "it is no single host"
    networks = _PRIVATE if isinstance(address, IPv4Address) else _PRIVATE_6
    if any(address in network for network in networks):
        return None if rules.allow_private else "it is private"
    if not address.is_global or _special(address):
        return "it is reserved"
    return None


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this one really goes to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _special(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_reserved or any(address in network for network in _RESERVED)
    return address not in _GLOBAL_6 or any(address in network for network in _RESERVED_6)


def target(url: str, rules: policy.Fetch) -> Target:
    """Reads a URL in the one way that there is to read it. Raises Forbidden."""
    if not url.isascii() or any(c <= " " or c in "\\\x7f" for c in url):
        raise Forbidden("the URL has characters that are read differently by different programs")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"the URL cannot be read: {error}") from None
    if parts.scheme not in ("https", "http"):
        raise Forbidden("the URL is not https")
    if parts.scheme == "http" and not rules.allow_http:
        raise Forbidden("the URL is not https, and http is not allowed here")
    if "@" in parts.netloc or "%" in parts.netloc:
        raise Forbidden("the URL has more before its path than a host and a port")
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        if _literal(host) is None:
            raise Forbidden("the URL's host is not an address")
    elif not _HOST.fullmatch(host) or (_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) and not _literal(host)):
        # 0177.1, 2130706433 and 0x7f.1 are addresses to some resolvers and names to others
        raise Forbidden("the URL's host is neither a name nor an address as they are usually written")
    if port == 0:
        raise Forbidden("the URL's port is 0")
    secure = parts.scheme == "https"
    return Target(host, port or (443 if secure else 80), secure)


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


async def pin(where: Target, rules: policy.Fetch, resolve: Resolver) -> str:
    """The address to connect to, and no other. Raises Forbidden, FetchFailed."""
    return (await judged(where, rules, resolve))[0]


async def judged(where: Target, rules: policy.Fetch, resolve: Resolver) -> list[str]:
    """All addresses that may be connected to, at least one. Raises Forbidden, FetchFailed.

    One bad address spoils all: a name that stands for an inner address and an outer one is an attack or a mistake.
    """
    literal = _literal(where.host)
    if literal is not None:
        addresses: Sequence[str] = [str(literal)]
    else:
        try:
            addresses = await resolve(where.host, where.port)
        except OSError as error:
            raise FetchFailed(f"{where.host} does not resolve: {error.strerror or error}") from None
    if not addresses:
        raise FetchFailed(f"{where.host} has no address")
    for text in addresses:
        address = _literal(text)
        reason = "it is no address" if address is None else objection(address, rules)
        if reason is not None:
            raise Forbidden(f"{where.host} leads to {text}, and {reason}")
    return list(addresses)


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class GuardedFetch:
    """Fetches small documents from URLs that somebody else chose, under one set of rules.

    The token of `rules.token_file` goes to the origin of `token_for` and nowhere else, wherever a document points.
    """

    def __init__(
        self,
        rules: policy.Fetch = policy.NO_FETCH_OPTIONS,
        *,
        token_for: str = "",
        resolve: Resolver = system_resolver,
        limits: Limits | None = None,
    ) -> None:
        self._rules = rules
        self._token_for = target(token_for, rules) if token_for else None
        self._resolve = resolve
        self._limits = limits or Limits(connect=5.0, answer=10.0, body=1 << 20)

    async def __call__(self, url: str) -> bytes:
        """The body of a 200 answer; anything else is FetchFailed. The message never repeats the query."""
        where = target(url, self._rules)
        shown = url.partition("?")[0]
        try:
            # in a thread, and anew each time: reading authorities is slow, and they rotate too
            tls, token = await asyncio.to_thread(self._read_files)
        except OSError as error:
            raise FetchFailed(f"GET {shown}: {error}") from None
        client = HttpClient(limits=self._limits, tls=tls, resolve=self._pin)
        headers = {"Accept": _ACCEPT} | (
            {"Authorization": f"Bearer {token}"} if token and where == self._token_for else {}
        )
        try:
            response = await client.request("GET", url, headers=headers)
        except (HttpError, InvalidUrl) as error:
            raise FetchFailed(f"GET {shown}: {error}") from None
        except ValueError:
            raise FetchFailed(f"{self._rules.token_file} is not one line of text") from None
        finally:
            await client.aclose()
        if response.status != 200:
            moved = " (redirects are not followed)" if 300 <= response.status < 400 else ""
            raise FetchFailed(f"GET {shown} answered {response.status}{moved}")
        return response.body

    def _read_files(self) -> tuple[ssl.SSLContext, str]:
        path = self._rules.token_file
        token = "" if path is None else Path(path).read_bytes().decode("latin-1").strip()
        return ssl.create_default_context(cafile=self._rules.ca_file), token

    async def _pin(self, host: str, port: int) -> str:
        return await pin(Target(host, port, secure=True), self._rules, self._resolve)
