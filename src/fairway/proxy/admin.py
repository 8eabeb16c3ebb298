"""The admin port: probes, metrics, status, the configuration in force. It is for the control plane, not for clients.

In a cluster everybody can reach it, as probes and scrapers must. So the configuration, which says who may do what, is
shown only to who is on this machine or in this pod: `kubectl port-forward` asks for rights first. Where nobody but this
machine can reach it, web pages are kept out: they come under the name of somebody else's host.
"""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from fairway import __version__
from fairway.api import proxystatus
from fairway.api.policy import Cors
from fairway.api.proxystatus import ConfigState
from fairway.api.runconfig import Route, RunConfig
from fairway.mcp.http_server import Request, Response
from fairway.proxy.gateway import Gateway
from fairway.proxy.metrics import MIDDLEWARES, Text
from fairway.proxy.middleware.audit import REDACTED
from fairway.proxy.middleware.origin import OriginRules, is_loopback

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


class Admin:
    """A handler for `HttpServer`."""

    def __init__(self, gateway: Gateway, *, terminating: Callable[[], bool], loopback: bool = False) -> None:
        """`loopback`: it can only be reached from this machine."""
        self._gateway = gateway
        self._rules = OriginRules(Cors(), loopback=True) if loopback else None
        self._terminating = terminating
        self._started = time.time()

    def __call__(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status=405, content_type=_TEXT, headers=(("Allow", "GET"),), body=b"GET only\n")
        if self._rules is not None:
            refusal = self._rules.check(request.headers.get("host", ""), request.headers.get("origin"))
            if refusal is not None:
                return Response(status=refusal.status, content_type=_TEXT, body=f"{refusal.message}\n".encode())
        match request.path:
            case "/v1/config" if not is_loopback(request.peer):
                return Response(
                    status=403, content_type=_TEXT, body=b"only from here: kubectl port-forward, then ask\n"
                )
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
        routes = tuple(redacted(route.route) for _, route in sorted(self._gateway.routes.items()))
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
            "fairway_proxy_tool_calls_total",
            "counter",
            "Calls by route, tool and HTTP status; tools that the server does not have count as other.",
            [
                ({"route": name, "tool": tool, "status": str(status)}, count)
                for name, route in routes
                for (tool, status), count in sorted(route.counts.tool_calls.items())
            ],
        )
        text.family(
            "fairway_proxy_middleware_total",
            "counter",
            "Requests that a part of the policy was asked about.",
            [
                ({"route": name, "middleware": each}, getattr(route.counts, each))
                for name, route in routes
                for each in MIDDLEWARES
            ],
        )
        text.family(
            "fairway_proxy_refused_total",
            "counter",
            "Requests that a part of the policy refused, by the HTTP status of the answer.",
            [
                ({"route": name, "middleware": each, "status": str(status)}, count)
                for name, route in routes
                for (each, status), count in sorted(route.counts.refused.items())
            ],
        )
        self._policy_metrics(text)
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

    def _policy_metrics(self, text: Text) -> None:
        guarded = [
            (name, route.policy.guards)
            for name, route in sorted(self._gateway.routes.items())
            if route.policy.guards is not None
        ]
        tokens = [(name, g.authenticator.counts) for name, g in guarded if g.authenticator is not None]
        text.family(
            "fairway_proxy_tokens_total",
            "counter",
            "Tokens that were not known before: verified, refused, not looked at (throttled), sent for review.",
            [
                ({"route": name, "outcome": outcome}, getattr(counts, attribute))
                for name, counts in tokens
                for outcome, attribute in _TOKENS
            ],
        )
        decisions = [(name, g.authorizer.counts) for name, g in guarded if g.authorizer is not None]
        text.family(
            "fairway_proxy_cedar_total",
            "counter",
            "Evaluations of policies; denials, remembered ones included; evaluations that failed.",
            [
                ({"route": name, "outcome": outcome}, getattr(counts, outcome))
                for name, counts in decisions
                for outcome in ("evaluated", "denied", "errors")
            ],
        )
        lines = [(name, g.audit.counts) for name, g in guarded if g.audit is not None]
        text.family(
            "fairway_proxy_audit_lines_total",
            "counter",
            "Audit lines: written, dropped since too many waited, failed since the file did not take them.",
            [
                ({"route": name, "outcome": outcome}, getattr(counts, outcome))
                for name, counts in lines
                for outcome in ("written", "dropped", "failed")
            ],
        )


_TOKENS: Final = (
    ("verified", "verified"), ("refused", "refused"), ("throttled", "throttled"), ("reviewed", "reviews")
)  # fmt: skip


def redacted(route: Route) -> Route:
    """Without what is for the server alone: headers may be credentials."""
    given = route.policy.headers.set
    if not any(header.value for header in given):
        return route
    hidden = tuple(replace(header, value=REDACTED) if header.value else header for header in given)
    return replace(route, policy=replace(route.policy, headers=replace(route.policy.headers, set=hidden)))


def _resident_bytes() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None  # not Linux
    return int(pages) * resource.getpagesize()
