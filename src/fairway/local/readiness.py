"""Readiness probes, at the pace of somebody who is waiting: quick until the first success, then as the probe says."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairway.local import pod as pods
from fairway.mcp.http import HttpClient, HttpError

Obj = Mapping[str, Any]

FIRST_PERIOD = 0.02
GROWTH = 1.25


@dataclass(frozen=True, slots=True)
class Probe:
    """One readiness probe on an address of this machine; neither path nor port means ready as soon as it runs."""

    port: int | None = None
    path: str | None = None
    period: float = 10.0
    timeout: float = 1.0
    failures: int = 3
    delay: float = 0.0

    async def succeeds(self, http: HttpClient) -> bool:
        if self.port is None:
            return True
        if self.path is not None:
            return await self._answers(http)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.timeout):
                _, writer = await asyncio.open_connection(pods.HOST, self.port)
            writer.close()
            return True
        return False

    async def _answers(self, http: HttpClient) -> bool:
        try:
            response = await http.request(
                "GET",
                f"http://{pods.HOST}:{self.port}{self.path}",
                headers={"Connection": "close"},
                timeout=self.timeout,
            )
        except HttpError:
            return False
        return 200 <= response.status < 400


def probe_of(pod: Obj, container: Obj) -> Probe:
    """The container's readiness probe, dialled where its port is on this machine; exec probes count as success."""
    spec = container.get("readinessProbe")
    if not spec:
        return Probe()
    action = spec.get("tcpSocket") or spec.get("httpGet") or {}
    port = pods.named_port(pod["spec"], action["port"]) if "port" in action else None
    return Probe(
        port=None if port is None else pods.host_ports(pod).get(port, port),
        path=action.get("path", "/") if "httpGet" in spec else None,
        period=float(spec.get("periodSeconds", 10)),
        timeout=float(spec.get("timeoutSeconds", 1)),
        failures=int(spec.get("failureThreshold", 3)),
        delay=float(spec.get("initialDelaySeconds", 0)),
    )


async def readiness(probe: Probe, http: HttpClient) -> AsyncIterator[bool]:
    """Yields whenever readiness changes, starting from not ready."""
    ready, failed, period = False, 0, min(FIRST_PERIOD, probe.period)
    await asyncio.sleep(probe.delay)
    while True:
        if await probe.succeeds(http):
            failed = 0
            if not ready:
                ready = True
                yield True
            if probe.port is None:
                return
        else:
            failed += 1
            if ready and failed >= probe.failures:
                ready = False
                yield False
        period = probe.period if ready else min(period * GROWTH, probe.period)
        await asyncio.sleep(period)
