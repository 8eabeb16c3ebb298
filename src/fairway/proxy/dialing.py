"""How connections to a server are opened: plainly, over TLS, and to servers elsewhere, whose names are looked up here.

A remote's name is resolved and judged by the rules that keep the proxy out of places which it alone can reach, and
connections go to exactly the addresses that were judged. They are looked up anew after a while, and when one fails.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from fairway.api import policy
from fairway.api.runconfig import Remote, Upstream, UpstreamTLS
from fairway.proxy.files import Fingerprint, fingerprint
from fairway.proxy.middleware.ssrf import FetchFailed, Forbidden, Resolver, Target, judged, system_resolver

FRESH: Final = 30.0
"""Seconds for which a name is believed to lead where it did."""
NO_TLS: Final = UpstreamTLS()

Made = TypeVar("Made", bound=asyncio.BaseProtocol)


class CannotDial(OSError):
    """There is no way to the server; `strerror` says what is in it."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class Trust:
    """Whom servers must prove to be. The authorities are read again when their file changes; a file that cannot be used
    keeps the last good ones, and `error` says so.
    """

    def __init__(self, tls: UpstreamTLS) -> None:
        self.error = ""
        self._file = tls.ca_file
        self._seen: Fingerprint | None = None
        self._context: ssl.SSLContext | None = None

    async def context(self) -> ssl.SSLContext:
        """Raises CannotDial if there were never any good ones."""
        seen = fingerprint([Path(self._file)]) if self._file is not None else ()
        if seen != self._seen or self._context is None:
            self._seen = seen
            try:
                # in a thread: reading authorities is slow
                self._context = await asyncio.to_thread(_client_context, self._file)
                self.error = ""
            except (OSError, ValueError) as error:
                self.error = f"upstream.tls.caFile {self._file}: {_reason(error)}"
        if self._context is None:
            raise CannotDial(self.error)
        return self._context


def _client_context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Lookup:
    """The addresses of a remote that may be dialled."""

    def __init__(
        self, remote: Remote, *, resolve: Resolver = system_resolver, clock: Callable[[], float] = monotonic
    ) -> None:
        self._target = Target(remote.host, remote.port, remote.secure)
        self._rules = policy.Fetch(
            allow_private=remote.allow_private, allow_loopback=remote.allow_loopback, allow_http=not remote.secure
        )
        self._resolve = resolve
        self._clock = clock
        self._addresses: list[str] = []
        self._looked_at = 0.0
        self._turn = 0

    async def address(self) -> str:
        """The one to connect to now. Raises CannotDial."""
        if not self._addresses or self._clock() - self._looked_at > FRESH:
            try:
                self._addresses = await judged(self._target, self._rules, self._resolve)
            except Forbidden as error:
                self._addresses = []
                raise CannotDial(str(error)) from None
            except FetchFailed as error:
                if not self._addresses:
                    raise CannotDial(str(error)) from None
            self._looked_at = self._clock()
        return self._addresses[self._turn % len(self._addresses)]

    def failed(self) -> None:
        """The address did not answer: the next time the name is looked up, and another of its addresses tried."""
        self._turn += 1
        self._looked_at = float("-inf")


class Dialer:
    """Opens connections to one place."""

    def __init__(
        self, host: str, port: int, *, trust: Trust | None = None, server_name: str = "", lookup: Lookup | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.trust = trust
        self.server_name = server_name or host
        self.lookup = lookup

    async def dial(self, make: Callable[[], Made]) -> Made:
        """Raises OSError."""
        tls = None if self.trust is None else await self.trust.context()
        address = self.host if self.lookup is None else await self.lookup.address()
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                make, address, self.port, ssl=tls, server_hostname=self.server_name if tls is not None else None
            )
        except (OSError, asyncio.CancelledError):
            if self.lookup is not None:
                self.lookup.failed()
            raise
        return made

    async def resolve(self, host: str, port: int) -> str:  # noqa: ARG002  there is only one
        """For whoever else connects to this place."""
        return self.host if self.lookup is None else await self.lookup.address()


def trust_in(upstream: Upstream) -> Trust | None:
    """What TLS to this upstream rests on; None if it is plain."""
    if upstream.remote is not None:
        return Trust(upstream.tls or NO_TLS) if upstream.remote.secure else None
    return None if upstream.tls is None else Trust(upstream.tls)


def server_name(upstream: Upstream) -> str:
    """Whom the certificate must be for; empty if that is the host of the address."""
    if upstream.tls is not None and upstream.tls.server_name:
        return upstream.tls.server_name
    service = upstream.service
    return "" if service is None else f"{service.name}.{service.namespace}.svc"


def explain(error: OSError | TimeoutError, where: str, *, pod: bool = True) -> str:
    """Why there is no connection, for people. The address of a `pod` tells them nothing, its port does."""
    match error:
        case ConnectionRefusedError():
            return f"nothing listens on {':' + where.rpartition(':')[2] if pod else where}"
        case CannotDial():
            return str(error.strerror)
        case ssl.SSLError():
            return f"no TLS with {where}: {_reason(error)}"
    return f"no connection to {where}: {error.strerror or 'it takes too long'}"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it cannot be used").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
