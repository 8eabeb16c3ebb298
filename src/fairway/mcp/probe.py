"""Asks one server whether it speaks MCP, and puts what came back into words that tell a person what to change."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fairway.api.proxystatus import EndpointState, Server
from fairway.mcp import client
from fairway.mcp.client import Answer, HttpRefused, McpError, Session, ToolList, drive
from fairway.mcp.http import ConnectFailed, HttpClient, HttpError, Limits, NotHttp, TimedOut
from fairway.mcp.protocol import JSON, SSE
from fairway.mcp.sse import EventSplitter, EventTooLarge, parse_event

ANSWER_TIMEOUT: Final = 15.0
_LOOK_TIMEOUT: Final = 2.0
_LEGACY_PATH: Final = "/sse"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one handshake gave."""

    state: EndpointState
    message: str = ""
    session: Session | None = None
    tools: ToolList | None = None
    tools_error: str = ""
    lasting: bool = True
    """Whether it says something about the server, rather than about this one attempt."""


async def shake(*, address: str, path: str, host_header: str, connect_seconds: float = 5.0) -> Outcome:
    """One handshake with host:port, the list of tools, and the end of the session if one was opened."""
    limits = Limits(connect=connect_seconds, answer=ANSWER_TIMEOUT, body=client.MAX_TOOL_BYTES)
    http = HttpClient(limits)
    headers = {"Host": host_header}
    base = f"http://{address}"
    port = int(address.rpartition(":")[2])
    try:
        session = await drive(client.handshake(client=client.CLIENT), http, base + path, headers=headers)
    except HttpRefused as refused:
        legacy = await _find_legacy_stream(http, base, path, headers)
        location = refused.answer.headers.get("location", "")
        state, message = explain_refusal(refused.answer, path, legacy=legacy, location=location)
        return Outcome(state, message, lasting=refused.answer.status < 500)
    except McpError as error:
        return Outcome(EndpointState.FAILED, str(error))
    except HttpError as error:
        state, message, lasting = explain_silence(error, port)
        return Outcome(state, message, lasting=lasting)
    else:
        return await _with_tools(session, http, base + path, headers)
    finally:
        await http.aclose()


def introduced(session: Session) -> Server:
    """What the server said of itself."""
    return Server(
        name=session.server.name,
        version=session.server.version,
        protocol_versions=session.versions,
        capabilities=tuple(sorted(session.capabilities)),
    )


async def _with_tools(session: Session, http: HttpClient, url: str, headers: dict[str, str]) -> Outcome:
    tools: ToolList | None = None
    error = ""
    try:
        tools = await drive(session.list_tools(), http, url, headers=headers)
    except (McpError, HttpError) as failed:
        error = str(failed)
    finally:
        with suppress(McpError, HttpError):
            await drive(session.close(), http, url, headers=headers)
    return Outcome(EndpointState.OK, "", session, tools, error)


def explain_silence(error: HttpError, port: int) -> tuple[EndpointState, str, bool]:
    """State, message, and whether it is certain, for a server that gave no answer."""
    if isinstance(error, ConnectFailed):
        return EndpointState.UNREACHABLE, f"nothing listens on :{port}" if error.refused else str(error), error.refused
    if isinstance(error, NotHttp):
        return EndpointState.NOT_MCP, f"what listens on :{port} does not speak HTTP", True
    if isinstance(error, TimedOut):
        return EndpointState.UNREACHABLE, f"the server on :{port} does not answer: {error}", False
    return EndpointState.FAILED, f"the server on :{port} answered nothing usable: {error}", False


def explain_refusal(answer: Answer, path: str, *, legacy: str, location: str = "") -> tuple[EndpointState, str]:
    """State and message for a server that answers, but not with MCP. `legacy` is a path with an HTTP+SSE stream."""
    said = f"POST {path} answered {answer.title}"
    if legacy:
        return EndpointState.FAILED, f"{said}; GET {legacy} answers an event stream: spec.transport sse?"
    status = answer.status
    if 300 <= status < 400:
        target = f" to {location}" if location else ""
        return EndpointState.FAILED, f"{said}{target}; redirects are not followed: set spec.path"
    if status == 421:
        return EndpointState.FAILED, f"{said}: the server does not accept this Host; set spec.upstreamHost"
    if status in (401, 403):
        return EndpointState.FAILED, f"{said}: the server wants credentials, or does not accept this Host"
    if status >= 500 and status != 501:  # a server that knows no POST at all does not speak MCP
        return EndpointState.FAILED, said
    if status == 406 or answer.content_type in (JSON, SSE):
        return EndpointState.FAILED, f"{said}, and no MCP message in it; is spec.path right?"
    return EndpointState.NOT_MCP, f"{said}: that is a web server, but no MCP server; is spec.path right?"


async def _find_legacy_stream(http: HttpClient, base: str, path: str, headers: dict[str, str]) -> str:
    """A path where the server offers the old HTTP+SSE transport; empty if none is found."""
    for candidate in dict.fromkeys((_LEGACY_PATH, path)):
        with suppress(HttpError, EventTooLarge, TimeoutError):
            if await _announces_endpoint(http, base + candidate, headers):
                return candidate
    return ""


async def _announces_endpoint(http: HttpClient, url: str, headers: dict[str, str]) -> bool:
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
