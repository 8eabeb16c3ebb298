"""The admin port: probes, metrics, status, the configuration in force. It is for the control plane, not for clients."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from fairway import __version__
from fairway.api import proxystatus
from fairway.api.proxystatus import ConfigState
from fairway.api.runconfig import RunConfig
from fairway.mcp.http_server import Request, Response
from fairway.proxy.gateway import Gateway
from fairway.proxy.metrics import Text

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


class Admin:
    """A handler for `HttpServer`."""

    def __init__(self, gateway: Gateway, *, terminating: Callable[[], bool]) -> None:
        self._gateway = gateway
        self._terminating = terminating
        self._started = time.time()

    def __call__(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status=405, content_type=_TEXT, headers=(("Allow", "GET"),), body=b"GET only\n")
        match request.path:
            case "/healthz":
                return Response(content_type=_TEXT, body=b"ok\n")
            case "/readyz":
                return self._ready()
            case "/metrics":
                return Response(content_type=_METRICS, body=self._metrics())
            case proxystatus.PATH:
                return Response(content_type=_JSON, body=proxystatus.encode(self._gateway.status()))
            case "/v1/config":
                return Response(content_type=_JSON, body=self._config())
        return Response(status=404, content_type=_TEXT, body=b"/healthz /readyz /metrics /v1/status /v1/config\n")

    def _ready(self) -> Response:
        if self._terminating():
            return Response(status=503, content_type=_TEXT, body=b"terminating\n")
        if self._gateway.ready:
            return Response(content_type=_TEXT, body=b"ok\n")
        status = self._gateway.status()
        lines = [f"configuration: {status.config.error or status.config.state}"] * (
            status.config.state is not ConfigState.OK
        )
        for route in status.routes:
            if not route.ready:
                said = [f"{endpoint.address} {endpoint.message or endpoint.state}" for endpoint in route.endpoints]
                lines.append(f"{route.name}: {', '.join(said) or 'no endpoints'}")
        return Response(status=503, content_type=_TEXT, body=("\n".join(lines) + "\n").encode())

    def _config(self) -> bytes:
        routes = tuple(route.route for _, route in sorted(self._gateway.routes.items()))
        return msgspec.json.encode(RunConfig(version=1, routes=routes), order="deterministic")

    def _metrics(self) -> bytes:
        text = Text()
        routes = sorted(self._gateway.routes.items())
        text.family(
            "fairway_proxy_requests_total",
            "counter",
            "Requests by route, method and HTTP status; 499 is a client that did not wait.",
            [
                ({"route": name, "method": method, "status": str(status)}, count)
                for name, route in routes
                for (method, status), count in sorted(route.counts.requests.items())
            ],
        )
        text.histogram(
            "fairway_proxy_request_seconds",
            "Seconds from the last byte of a request to the last byte of its answer.",
            [
                ({"route": name, "method": method}, row, route.counts.sums[method])
                for name, route in routes
                for method, row in sorted(route.counts.latencies.items())
            ],
        )
        endpoints = [(name, endpoint) for name, route in routes for endpoint in route.upstream.endpoints]
        text.family(
            "fairway_proxy_endpoint_good",
            "gauge",
            "1 for a server whose last handshake was good.",
            [({"route": name, "endpoint": e.place.address}, float(e.good)) for name, e in endpoints],
        )
        text.family(
            "fairway_proxy_in_flight",
            "gauge",
            "Requests that a server is working on.",
            [({"route": name, "endpoint": e.place.address}, e.in_flight) for name, e in endpoints],
        )
        text.family(
            "fairway_proxy_upstream_connections",
            "gauge",
            "Connections to a server, idle ones included.",
            [({"route": name, "endpoint": e.place.address}, len(e.pool.open)) for name, e in endpoints],
        )
        text.family(
            "fairway_proxy_sessions",
            "gauge",
            "Sessions of the session era whose server is remembered.",
            [({"route": name}, len(route.upstream.sessions)) for name, route in routes],
        )
        state = self._gateway.config_state().state
        text.family(
            "fairway_proxy_config",
            "gauge",
            "1 for the state that the configuration is in.",
            [({"state": str(each)}, float(each is state)) for each in ConfigState],
        )
        text.family("fairway_proxy_build_info", "gauge", "The version.", [({"version": __version__}, 1)])
        usage = resource.getrusage(resource.RUSAGE_SELF)
        text.family("process_cpu_seconds_total", "counter", "CPU time.", [({}, usage.ru_utime + usage.ru_stime)])
        text.family("process_start_time_seconds", "gauge", "Start, in Unix time.", [({}, self._started)])
        size = _resident_bytes()
        if size is not None:
            text.family("process_resident_memory_bytes", "gauge", "Resident memory.", [({}, size)])
        return text.render()


def _resident_bytes() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None  # not Linux
    return int(pages) * resource.getpagesize()
