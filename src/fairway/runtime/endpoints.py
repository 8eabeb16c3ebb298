"""The HTTP endpoints of a controller process: /healthz, /readyz, /metrics."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

# Probes and scrapes come a few times a minute, and every page is small: one request a connection, read and answered
# here, costs a third of the memory of the process that a web framework takes.
_LONGEST_HEAD = 16 * 1024
_PATIENCE = 10.0

Page = tuple[int, str, bytes]
_TEXT = "text/plain; charset=utf-8"


class AddressError(ValueError):
    """An address to listen on that is none, or that is taken."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`:8080`, `127.0.0.1:8080`, `[::1]:0`; port 0 takes a free one."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise AddressError(f"{text!r} is no address to listen on; write host:port or :port")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Endpoints:
    """Serves probes and metrics, on one port or two. `readiness` returns what is still missing, empty when ready."""

    def __init__(
        self,
        *,
        probes: Address | None,
        metrics: Address | None,
        registry: CollectorRegistry,
        readiness: Callable[[], list[str]],
    ) -> None:
        self._addresses = {"probes": probes, "metrics": metrics}
        self._registry = registry
        self._readiness = readiness
        self._servers: list[asyncio.Server] = []
        self.bound: dict[str, Address] = {}

    async def start(self) -> None:
        pages: dict[str, dict[str, Callable[[], Page]]] = {
            "probes": {"/healthz": self._healthz, "/readyz": self._readyz},
            "metrics": {"/metrics": self._metrics},
        }
        probes, metrics = self._addresses["probes"], self._addresses["metrics"]
        if probes is not None and probes == metrics and probes.port:
            await self._serve(probes, pages["probes"] | pages["metrics"], "probes", "metrics")
            return
        for name, address in self._addresses.items():
            if address is not None:
                await self._serve(address, pages[name], name)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, address: Address, pages: Mapping[str, Callable[[], Page]], *names: str) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await _answer(reader, writer, pages)
            except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # whoever asks badly or goes away gets nothing
            finally:
                writer.close()

        try:
            server = await asyncio.start_server(serve, address.host or None, address.port, limit=_LONGEST_HEAD)
        except OSError as error:
            raise AddressError(f"cannot listen on {address}: {error.strerror or error}") from error
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        self.bound |= dict.fromkeys(names, Address(host, port))

    def _healthz(self) -> Page:
        return 200, _TEXT, b"ok"  # whoever can answer has an event loop that runs

    def _readyz(self) -> Page:
        missing = self._readiness()
        return (503, _TEXT, "\n".join(missing).encode()) if missing else (200, _TEXT, b"ok")

    def _metrics(self) -> Page:
        return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Mapping[str, Callable[[], Page]]
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target, _, version = rest.rpartition(" ")
    page = pages.get(target.partition("?")[0])
    if not version.startswith("HTTP/1."):
        status, kind, body = 400, _TEXT, b"this is an HTTP/1.1 port"
    elif page is None:
        status, kind, body = 404, _TEXT, b"not found"
    elif method not in ("GET", "HEAD"):
        status, kind, body = 405, _TEXT, b"only GET"
    else:
        status, kind, body = page()
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
    writer.write(
        f"HTTP/1.1 {status} {reason[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("latin-1")
    )
    if method != "HEAD":
        writer.write(body)
    await writer.drain()
