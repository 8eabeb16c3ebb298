"""An MCP server behind a URL: what of HTTP has to be right before and after the message itself."""

# Theory of operation
#
# The checks stand in the order in which they are cheap and safe: path, who may speak to us from a browser (Origin, and
# Host where only this machine should), method, media types; then the message. A call is answered as JSON. One that
# takes long turns into an event stream that says nothing but "still there": proxies on the way would otherwise cut it
# off as idle, and a client that is gone would not be noticed.

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection
from functools import lru_cache
from typing import Final

import msgspec

from fairway.mcp.http_server import Request, Response
from fairway.mcp.protocol import JSON, SSE, ErrorCode, error_body
from fairway.mcp.server import Answer, Call, McpServer, ToolResult

LOCAL_NAMES: Final = frozenset(["localhost", "127.0.0.1", "[::1]"])
_STREAM_HEADERS: Final = (("Cache-Control", "no-cache, no-transform"), ("X-Accel-Buffering", "no"))


class McpEndpoint:
    """A handler for `HttpServer` that serves one `McpServer` at one path, and 404 anywhere else.

    `hosts` restricts the Host header to these names; it belongs to servers that only this machine should reach.
    `origins` are the web origins, beside those of this machine, whose pages may call.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        path: str = "/mcp",
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        max_calls: int = 1000,
        ping_seconds: float = 15,
    ) -> None:
        self._server = server
        self._path = path.rstrip("/")
        self._hosts = hosts
        self._origins = frozenset(origins)
        self._max_calls = max_calls
        self._ping_seconds = ping_seconds
        self.calls = 0

    def __call__(self, request: Request) -> Response | Awaitable[Response]:
        if request.path.rstrip("/") != self._path:
            return _plain(404, f"nothing is served at {request.path[:200]}; MCP is at {self._path or '/'}")
        headers = request.headers
        refused = self._forbidden(headers.get("origin"), headers.get("host", ""))
        if refused is not None:
            return Response(status=403, content_type=JSON, body=error_body(None, ErrorCode.INVALID_REQUEST, refused))
        if request.method != "POST":
            # no stream of the server's own, and no session to delete: the answer that a stateless server owes to both
            return _plain(405, f"{request.method} is not served here, POST is", ("Allow", "POST"))
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return _plain(415, f"Content-Type has to be {JSON}")
        json, sse = _accepted(headers.get("accept", "*/*"))
        if not (json or sse):
            return _plain(406, f"Accept has to admit {JSON} and {SSE}")
        answer = self._server.receive(headers, request.body)
        if isinstance(answer, Answer):
            return _response(answer, as_event=not json)
        if self.calls >= self._max_calls:
            return _plain(503, f"{self.calls} calls are being served, try again later", ("Retry-After", "1"))
        self.calls += 1
        running = asyncio.ensure_future(answer.tool.call(answer.arguments))
        running.add_done_callback(self._ended)
        return self._called(answer, running, json=json, sse=sse)

    def _forbidden(self, origin: str | None, host: str) -> str | None:
        if self._hosts is not None and _host_name(host) not in self._hosts:
            return f"Host {host[:200]!r} is not a name of this server"
        if origin is None or origin in self._origins:
            return None
        scheme, separator, authority = origin.partition("://")
        if separator and scheme in ("http", "https") and _host_name(authority) in LOCAL_NAMES:
            return None
        return f"Origin {origin[:200]!r} may not call this server"

    async def _called(self, call: Call, running: asyncio.Future[ToolResult], *, json: bool, sse: bool) -> Response:
        handed_on = False
        try:
            if sse:
                await asyncio.wait((running,), timeout=self._ping_seconds)
                if not running.done():
                    handed_on = True
                    return Response(content_type=SSE, headers=_STREAM_HEADERS, body=self._pings(call, running))
            return _response(call.answer(await running), as_event=not json)
        finally:
            if not handed_on:
                running.cancel()

    async def _pings(self, call: Call, running: asyncio.Future[ToolResult]) -> AsyncIterator[bytes]:
        try:
            while not running.done():
                yield b": still working\n\n"
                await asyncio.wait((running,), timeout=self._ping_seconds)
            yield _event(call.answer(running.result()).body)
        finally:
            running.cancel()

    def _ended(self, running: asyncio.Future[ToolResult]) -> None:  # noqa: ARG002
        self.calls -= 1


def _response(answer: Answer, *, as_event: bool) -> Response:
    if not answer.body:
        return Response(status=answer.status)
    if as_event:
        return Response(status=answer.status, content_type=SSE, headers=_STREAM_HEADERS, body=_event(answer.body))
    return Response(status=answer.status, content_type=JSON, body=answer.body)


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % message


def _plain(status: int, text: str, *headers: tuple[str, str]) -> Response:
    return Response(status=status, content_type=JSON, headers=headers, body=msgspec.json.encode({"error": text}))


def _host_name(authority: str) -> str:
    """The name in `name:port`, in lower case; brackets stay."""
    name, colon, port = authority.lower().rpartition(":")
    return name if colon and port.isdigit() else authority.lower()


@lru_cache(maxsize=64)
def _accepted(accept: str) -> tuple[bool, bool]:
    """Whether JSON is acceptable, and whether an event stream is."""
    json = sse = False
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if any(parameter.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters):
            continue
        json = json or media in ("*/*", "application/*", JSON)
        sse = sse or media in ("*/*", "text/*", SSE)
    return json, sse
