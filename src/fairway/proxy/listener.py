"""One address that clients connect to, and the routes behind it by path."""

import asyncio
import socket
from collections.abc import Iterable
from time import monotonic
from typing import Final

from fairway.proxy.answers import Answer, Refusal
from fairway.proxy.certificates import Certificate
from fairway.proxy.downstream import HEAD_TIMEOUT, ClientConnection
from fairway.proxy.middleware import challenge
from fairway.proxy.middleware.origin import is_loopback
from fairway.proxy.pipeline import check_head
from fairway.proxy.reader import Budget
from fairway.proxy.request import Request
from fairway.proxy.routes import LiveRoute
from fairway.proxy.upstream import keep_alive_probes

BACKLOG: Final = 4096
MAX_CONNECTIONS: Final = 16_384
MIN_BUDGET: Final = 64 << 20
_WELL_KNOWN: Final = challenge.WELL_KNOWN.encode()
_ANYBODY: Final = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Headers", "*"))
"""Nothing in the metadata is secret, and clients that are web pages need it before they have a token."""


class CannotListen(Exception):
    """The address cannot be bound; the message says which one and why."""


class Listener:
    """Accepts connections from `open` to `close`; those that are open then end when they have been answered."""

    def __init__(self, host: str, port: int, certificate: Certificate | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.certificate = certificate
        """None serves without TLS."""
        self.host = host
        self.port = port
        """The port that was asked for, and once open the one that it is."""
        self.loopback = is_loopback(host)
        self.routes: dict[bytes, LiveRoute] = {}
        self.connections: set[ClientConnection] = set()
        self.empty = asyncio.Event()
        """Set when it is closing and the last connection has ended."""
        self.budget = Budget(MIN_BUDGET)
        self.leaving = False
        """Connections end with the next answer on them, which says so: clients go elsewhere without losing anything."""
        self.closing = False
        self.idle_seconds = 60.0
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def open(self) -> None:
        host = "127.0.0.1" if self.host == "localhost" else self.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # :: means both, as it does for other servers in a dual-stack pod
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            keep_alive_probes(sock)  # inherited by what is accepted
            sock.bind((host, self.port))
            tls = self.certificate
            self._server = await self.loop.create_server(
                lambda: ClientConnection(self),
                sock=sock,
                backlog=BACKLOG,
                ssl=None if tls is None else tls.context,
                ssl_handshake_timeout=None if tls is None else HEAD_TIMEOUT,
            )
        except (OSError, UnicodeError) as error:
            sock.close()
            reason = getattr(error, "strerror", None) or error
            raise CannotListen(f"cannot listen on {self.address}: {reason}") from None
        self.port = sock.getsockname()[1]

    def serve(self, routes: Iterable[LiveRoute]) -> None:
        """From now on these routes, and no others."""
        self.routes = {path.encode(): route for route in routes for path in route.route.listen.paths}
        self.idle_seconds = max([route.route.timeouts.idle for route in self.routes.values()], default=60.0)
        largest = max([route.policy.max_body for route in self.routes.values()], default=0)
        self.budget.limit = max(MIN_BUDGET, 2 * largest)
        served = set(self.routes.values())
        for connection in tuple(self.connections):
            request = connection.current
            if request is not None and request.endless:
                if request.route not in served:
                    connection.end_stream()
                else:
                    connection.judge_stream_again()

    def judge_head(self, request: Request) -> Refusal | Answer | None:
        route = self.routes.get(request.path)
        if route is None:
            return self._metadata(request) or Refusal(404, "there is no MCP server at this path")
        request.route = route
        request.policy = route.policy
        return check_head(request, route.policy)

    def _metadata(self, request: Request) -> Answer | None:
        """What clients of a protected server ask for to learn where they get a token (RFC 9728)."""
        if not request.path.startswith(_WELL_KNOWN) or request.method not in (b"GET", b"HEAD", b"OPTIONS"):
            return None
        host, path = request.text(b"host") or "", request.path.decode("latin-1")
        for route in self.routes.values():
            guards = route.policy.guards
            config = None if guards is None else guards.config.authentication
            body = None if config is None else challenge.metadata(config, host=host, path=path)
            if body is not None:
                return Answer(200, _ANYBODY, body)
        return None

    def sweep(self) -> None:
        now = monotonic()
        late = [connection for connection in self.connections if connection.deadline <= now]
        for connection in late:
            connection.on_deadline()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """No new connections; idle ones and endless streams end now, calls when they are answered."""
        self.stop_accepting()
        self.leaving = self.closing = True
        for connection in tuple(self.connections):
            connection.drain()
        if not self.connections:
            self.empty.set()

    def began(self, connection: ClientConnection) -> bool:
        """Whether there is room for one more."""
        self.connections.add(connection)
        return len(self.connections) <= MAX_CONNECTIONS

    def ended(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        if self.closing and not self.connections:
            self.empty.set()

    def abort(self) -> None:
        for connection in tuple(self.connections):
            connection.transport.abort()
