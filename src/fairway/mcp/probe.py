"""Asks one server whether it speaks MCP, and puts what came back into words that tell a person what to change."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fairway.api.proxystatus import EndpointState, Server
from fairway.mcp import client
from fairway.mcp.asking import Answer, Ask, exchange
from fairway.mcp.client import (
    HandshakeFailed,
    HttpRefused,
    McpError,
    Offered,
    Session,
    ToolList,
    drive,
    run,
)
from fairway.mcp.http import ConnectFailed, HttpClient, HttpError, Limits, NotHttp, TimedOut
from fairway.mcp.legacy import LegacyClient
from fairway.mcp.protocol import JSON, SSE, Era, Method
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event

ANSWER_TIMEOUT: Final = 15.0
_LOOK_TIMEOUT: Final = 2.0
_MAY_BE_THE_HOST: Final = (400, 403, 421)
_LEGACY_PATH: Final = "/sse"
_PATH: Final = "/mcp"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one handshake gave."""

    state: EndpointState
    message: str = ""
    session: Session | None = None
    tools: ToolList | None = None
    tools_error: str = ""
    resources: Offered | None = None
    prompts: Offered | None = None
    lasting: bool = True
    """Whether it says something about the server, rather than about this one attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to one server, and what to tell it."""

    address: str
    """host:port"""
    path: str
    legacy: bool = False
    """Whether it is expected to speak the old HTTP+SSE transport."""
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    """Whom its certificate must be for; empty means the host of the address."""
    resolve: Callable[[str, int], Awaitable[str]] | None = None
    proxied: bool = True
    """Whether a proxy stands in between, which can say another Host than clients do."""

    @property
    def base(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.address}"

    @property
    def shown(self) -> str:
        """Where it listens, for people: a pod's address tells them nothing, a name does."""
        return self.address if self.resolve is not None else f":{self.address.rpartition(':')[2]}"

    def client(self, limits: Limits) -> HttpClient:
        return HttpClient(limits, tls=self.tls, server_name=self.server_name, resolve=self.resolve)


async def shake(way: Way, *, connect_seconds: float = 5.0) -> Outcome:
    """One handshake, the list of tools, and the end of the session if one was opened."""
    limits = Limits(connect=connect_seconds, answer=ANSWER_TIMEOUT, body=client.MAX_TOOL_BYTES)
    http = way.client(limits)
    try:
        return await (_shake_legacy(way, http) if way.legacy else _shake(way, http))
    except McpError as error:
        return Outcome(EndpointState.FAILED, str(error))
    except HttpError as error:
        state, message, lasting = explain_silence(error, way.shown)
        return Outcome(state, message, lasting=lasting)
    finally:
        await http.aclose()


async def _shake(way: Way, http: HttpClient) -> Outcome:
    url = way.base + way.path
    try:
        session = await drive(client.handshake(client=client.CLIENT), http, url, headers=way.headers)
    except HandshakeFailed as error:
        other = await _other_host(way, http, str(error))
        return Outcome(EndpointState.HOST_REFUSED, other) if other else Outcome(EndpointState.FAILED, str(error))
    except HttpRefused as refused:
        if refused.answer.status in _MAY_BE_THE_HOST:
            other = await _other_host(way, http, f"POST {way.path} answered {refused.answer.title}")
            if other:
                return Outcome(EndpointState.HOST_REFUSED, other)
        legacy = await _find_legacy_stream(way, http)
        location = refused.answer.headers.get("location", "")
        state, message = explain_refusal(refused.answer, f"POST {way.path}", legacy=legacy, location=location)
        return Outcome(state, message, lasting=refused.answer.status < 500)

    def ask(asked: Ask) -> Awaitable[Answer]:
        return exchange(asked, http, url, way.headers)

    return await _with_tools(session, ask)


async def _shake_legacy(way: Way, http: HttpClient) -> Outcome:
    opened = False
    try:
        async with LegacyClient.connect(http, way.base + way.path, headers=way.headers) as made:
            opened = True
            session = await run(client.handshake(client=client.CLIENT, era=Era.SESSION), made.exchange)
            return await _with_tools(session, made.exchange)
    except HttpRefused as refused:
        if opened:
            return Outcome(EndpointState.FAILED, str(refused))
        found = await _find_endpoint(way, http)
        location = refused.answer.headers.get("location", "")
        state, message = explain_refusal(refused.answer, f"GET {way.path}", endpoint=found, location=location)
        return Outcome(state, message, lasting=refused.answer.status < 500)


def introduced(session: Session) -> Server:
    """What the server said of itself."""
    return Server(
        name=session.server.name,
        version=session.server.version,
        protocol_versions=session.versions,
        capabilities=tuple(sorted(session.capabilities)),
    )


async def look_around(session: Session, ask: Callable[[Ask], Awaitable[Answer]]) -> Outcome:
    """What a server offers that has been greeted. Only that tools cannot be listed is worth telling."""
    tools: ToolList | None = None
    error = ""
    try:
        tools = await run(session.list_tools(), ask)
    except (McpError, HttpError) as failed:
        error = str(failed)
    resources = await _names(session, ask, "resources", Method.RESOURCES_LIST, "uri")
    prompts = await _names(session, ask, "prompts", Method.PROMPTS_LIST, "name")
    return Outcome(EndpointState.OK, "", session, tools, error, resources, prompts)


async def _names(
    session: Session, ask: Callable[[Ask], Awaitable[Answer]], member: str, method: Method, key: str
) -> Offered | None:
    if member not in session.capabilities:
        return None
    with suppress(McpError, HttpError):
        return await run(session.list_names(method, member, key), ask)
    return None


async def _with_tools(session: Session, ask: Callable[[Ask], Awaitable[Answer]]) -> Outcome:
    try:
        return await look_around(session, ask)
    finally:
        with suppress(McpError, HttpError):
            await run(session.close(), ask)


def explain_silence(error: HttpError, where: str) -> tuple[EndpointState, str, bool]:
    """State, message, and whether it is certain, for a server that gave no answer."""
    if isinstance(error, ConnectFailed):
        return EndpointState.UNREACHABLE, f"nothing listens on {where}" if error.refused else str(error), error.refused
    if isinstance(error, NotHttp):
        return EndpointState.NOT_MCP, f"what listens on {where} does not speak HTTP", True
    if isinstance(error, TimedOut):
        return EndpointState.UNREACHABLE, f"the server on {where} does not answer: {error}", False
    return EndpointState.FAILED, f"the server on {where} answered nothing usable: {error}", False


def explain_refusal(
    answer: Answer, asked: str, *, legacy: str = "", endpoint: str = "", location: str = ""
) -> tuple[EndpointState, str]:
    """State and message for a server that answers, but not with MCP.

    `legacy` is a path with a stream of the old HTTP+SSE transport, `endpoint` one that answers as the newer one does.
    """
    said = f"{asked} answered {answer.title}"
    if legacy:
        advice = f"spec.transport is streamable-http, try sse{_path_advice(legacy, _LEGACY_PATH)}"
        return EndpointState.FAILED, f"{said}, and GET {legacy} an event stream: {advice}"
    if endpoint:
        advice = f"spec.transport is sse, try streamable-http{_path_advice(endpoint, _PATH)}"
        return EndpointState.FAILED, f"{said}, and POST {endpoint} speaks MCP: {advice}"
    status = answer.status
    if 300 <= status < 400:
        target = f" to {location}" if location else ""
        return EndpointState.FAILED, f"{said}{target}; redirects are not followed: set spec.path"
    if status == 421:
        return EndpointState.HOST_REFUSED, f"{said}: the server does not accept this Host; set spec.upstreamHost"
    if status in (401, 403):
        return EndpointState.FAILED, f"{said}: the server wants credentials, or does not accept this Host"
    if status >= 500 and status != 501:  # a server that knows no POST at all does not speak MCP
        return EndpointState.FAILED, said
    if status == 406 or answer.content_type in (JSON, SSE):
        return EndpointState.FAILED, f"{said}, and no MCP message in it; is spec.path right?"
    return EndpointState.NOT_MCP, f"{said}: that is a web server, but no MCP server; is spec.path right?"


def _path_advice(path: str, default: str) -> str:
    return "" if path == default else f" with spec.path {path}"


async def _other_host(way: Way, http: HttpClient, said: str) -> str:
    """What to say if the server answers once it is addressed by another Host; empty if it does not."""
    used, (_, _, port) = way.headers.get("Host", way.address), way.address.rpartition(":")
    url = way.base + way.path
    for candidate in (f"localhost:{port}", f"127.0.0.1:{port}", "localhost", way.address):
        if candidate == used:
            continue
        headers = {**way.headers, "Host": candidate}
        with suppress(HttpError, McpError, TimeoutError):
            async with asyncio.timeout(_LOOK_TIMEOUT):
                session = await drive(client.handshake(client=client.CLIENT), http, url, headers=headers)
                await drive(session.close(), http, url, headers=headers)
            advice = (
                f"set spec.upstreamHost: {candidate}"
                if way.proxied
                else "have the server accept it, or put a proxy in between (spec.proxy.mode)"
            )
            return f"{said} to Host {used}, and the server accepts {candidate}: {advice}"
    return ""


async def _find_legacy_stream(way: Way, http: HttpClient) -> str:
    """A path where the server offers the old HTTP+SSE transport; empty if none is found."""
    for candidate in dict.fromkeys((_LEGACY_PATH, way.path)):
        with suppress(HttpError, EventTooLarge, TimeoutError):
            if await _announces_endpoint(http, way.base + candidate, way.headers):
                return candidate
    return ""


async def _find_endpoint(way: Way, http: HttpClient) -> str:
    """A path where the server offers the newer transport; empty if none is found."""
    for candidate in dict.fromkeys((_PATH, way.path)):
        url = way.base + candidate
        with suppress(HttpError, McpError, TimeoutError):
            async with asyncio.timeout(_LOOK_TIMEOUT):
                session = await drive(client.handshake(client=client.CLIENT), http, url, headers=way.headers)
                await drive(session.close(), http, url, headers=way.headers)
            return candidate
    return ""


async def _announces_endpoint(http: HttpClient, url: str, headers: Mapping[str, str]) -> bool:
    sent = {**headers, "Accept": SSE}
    async with asyncio.timeout(_LOOK_TIMEOUT), http.stream("GET", url, headers=sent) as response:
        if response.status != 200 or response.content_type != SSE:
            return False
        splitter = EventSplitter(limit=64 << 10)
        async for piece in response:
            for block in splitter.feed(piece):
                event = parse_event(block)
                if event.data is not None:
                    return event.name == "endpoint"
    return False
