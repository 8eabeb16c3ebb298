"""Clients that call a tool over and over while something is done to its server, and what became of each call."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fairway.mcp.http import HttpClient, HttpError, Limits
from fairway.mcp.protocol import request_headers, request_meta

VERSION = "2026-07-28"
_ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Call:
    """One call: when it was sent, what was called, and what went wrong; nothing did if `error` is empty."""

    sent: float
    tool: str
    error: str = ""


async def call(http: HttpClient, url: str, tool: str, *, fresh: bool = False, **arguments: Any) -> Call:
    """`fresh`: on a connection that nobody else uses, as one that idled may be closed while a request is on its way."""
    params = {"name": tool, "arguments": arguments, "_meta": request_meta(VERSION)}
    headers = {**_ACCEPT, **request_headers(VERSION, "tools/call", params)}
    if fresh:
        headers["Connection"] = "close"
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    sent = time.monotonic()
    try:
        answer = await http.request("POST", url, headers=headers, body=body)
    except HttpError as error:
        return Call(sent, tool, f"{type(error).__name__}: {error}")
    text = answer.body.decode()
    if answer.content_type == "text/event-stream":
        text = next(line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))
    try:
        reply = json.loads(text)
    except ValueError:
        return Call(sent, tool, f"{answer.status} {text[:200]}")
    good = answer.status == 200 and not (reply.get("result") or {}).get("isError", "error" in reply)
    return Call(sent, tool, "" if good else f"{answer.status} {text[:300]}")


def client() -> HttpClient:
    return HttpClient(Limits(connect=5.0, answer=30.0, body=1 << 20))


@dataclass
class Crowd:
    """Clients at work."""

    calls: list[Call] = field(default_factory=list)

    def failed(self, tool: str) -> list[Call]:
        return [made for made in self.calls if made.tool == tool and made.error]

    def good(self, tool: str, *, since: float = 0.0) -> list[Call]:
        return [made for made in self.calls if made.tool == tool and not made.error and made.sent > since]


@asynccontextmanager
async def crowd(
    url: str, *tools: str, pause: float = 0.4, fresh: bool = False, **arguments: Any
) -> AsyncIterator[Crowd]:
    """One client for each tool that is named, each with connections of its own."""
    at_work = Crowd()

    async def work(tool: str, late: float) -> None:
        http = client()
        try:
            await asyncio.sleep(late)
            while True:
                at_work.calls.append(await call(http, url, tool, fresh=fresh, **arguments))
                await asyncio.sleep(pause)
        finally:
            await http.aclose()

    tasks = [asyncio.create_task(work(tool, pause * number / len(tools))) for number, tool in enumerate(tools)]
    try:
        yield at_work
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(check: Callable[[], Awaitable[object]], *, seconds: float, pause: float = 0.05) -> float:
    """Looks again and again for something true, and tells when it was."""
    async with asyncio.timeout(seconds):
        while True:
            if await check():
                return time.monotonic()
            await asyncio.sleep(pause)
