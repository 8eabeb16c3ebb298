"""The HTTP endpoints of a controller process: /healthz, /readyz, /metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


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
        self._runners: list[web.AppRunner] = []
        self.bound: dict[str, Address] = {}

    async def start(self) -> None:
        probes, metrics = self._addresses["probes"], self._addresses["metrics"]
        routes = {
            "probes": [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)],
            "metrics": [web.get("/metrics", self._metrics)],
        }
        if probes is not None and probes == metrics and probes.port:
            await self._serve(probes, routes["probes"] + routes["metrics"], "probes", "metrics")
            return
        for name, address in self._addresses.items():
            if address is not None:
                await self._serve(address, routes[name], name)

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _serve(self, address: Address, routes: list[web.RouteDef], *names: str) -> None:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, address.host or None, address.port).start()
        except OSError as error:
            raise AddressError(f"cannot listen on {address}: {error.strerror or error}") from error
        host, port = runner.addresses[0][:2]
        self.bound |= dict.fromkeys(names, Address(host, port))

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")  # whoever can answer has an event loop that runs

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._readiness()
        return web.Response(status=503 if missing else 200, text="\n".join(missing) or "ok")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
