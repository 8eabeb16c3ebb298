"""`fairway up --check`: everything ready, every server listed in both eras, every example call as promised."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.plaintext import on_one_line
from fairway.local import view
from fairway.local.answer import text_of
from fairway.local.issuer import bearer_of
from fairway.local.mode import LocalMode
from fairway.local.screen import Screen
from fairway.local.view import ExampleCall, InvalidExample, Row
from fairway.mcp.client import HttpRefused, McpClient, McpError, RpcError
from fairway.mcp.http import HttpError
from fairway.mcp.protocol import Era

_NAMED_AT_MOST = 10
_SHOWN_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check of one server gave."""

    server: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.server}  {on_one_line(self.text, at_most=_SHOWN_AT_MOST)}"


class Check:
    """Runs once, and says whether everything was as it should be."""

    def __init__(self, mode: LocalMode, shown: Screen, *, timeout: float) -> None:
        self._mode = mode
        self._shown = shown
        self._timeout = timeout
        self._started = asyncio.get_running_loop().time()

    async def run(self) -> bool:
        missing = await self._until_ready()
        self._shown.show(self._mode.rows())
        findings = [Finding(row.title, False, f"{row.phase}: {row.trouble}") for row in missing]
        absent = {row.key for row in missing}
        for server in self._mode.servers():
            row = next(r for r in self._mode.rows() if r.key == view.key_of(server))
            if row.key not in absent:
                findings += await self._try(server, row)
        for finding in findings:
            self._shown.note(str(finding))
        passed = sum(finding.passed for finding in findings)
        took = asyncio.get_running_loop().time() - self._started
        self._shown.note(f"{passed} of {len(findings)} checks passed in {took:.1f} s")
        return passed == len(findings)

    async def _until_ready(self) -> list[Row]:
        """The rows that are not ready once all are, once nothing can become so any more, or once time is up."""
        ready = asyncio.Event()
        unsubscribe = self._mode.on_change(lambda: ready.set() if self._settled() else None)
        try:
            if not self._settled():
                async with asyncio.timeout(self._timeout):
                    await ready.wait()
        except TimeoutError:
            self._shown.note(f"not everything was ready within {self._timeout:g} s")
        finally:
            unsubscribe()
        return [row for row in self._mode.rows() if not row.ready]

    def _settled(self) -> bool:
        return all(row.ready or row.hopeless for row in self._mode.rows())

    async def _try(self, server: Mapping[str, Any], row: Row) -> list[Finding]:
        try:
            example, denied = view.example_of(server), view.example_of(server, view.EXAMPLE_DENIED)
        except InvalidExample as invalid:
            return [Finding(row.title, False, str(invalid))]
        guarded = not (server["spec"].get("auth") or {"anonymous": True}).get("anonymous", False)
        findings = [await self._anonymous(row)] if guarded else []
        for era in Era:
            try:
                findings += await self._in_era(era, row, example)
                findings += [await self._denied(era, row, denied)] if denied is not None else []
            except (McpError, HttpError) as error:
                findings.append(Finding(row.title, False, f"{era} era: {error}"))
        return findings

    async def _anonymous(self, row: Row) -> Finding:
        """Who brings no token must stay outside."""
        try:
            async with McpClient.connect(row.url, http=self._mode.http):
                return Finding(row.title, False, "lets in clients without a token, though spec.auth is set")
        except McpError as error:
            refused = isinstance(error, HttpRefused) and error.answer.status == 401
            return Finding(row.title, refused, f"without a token: {error}")

    async def _denied(self, era: Era, row: Row, denied: ExampleCall) -> Finding:
        call = f"{denied.tool}({', '.join(f'{k}={json.dumps(v)}' for k, v in denied.arguments.items())})"
        async with McpClient.connect(row.url, http=self._mode.http, era=era, headers=_headers(row)) as client:
            try:
                result = await client.call(denied.tool, denied.arguments)
            except (RpcError, HttpRefused) as error:
                return Finding(row.title, True, f"{client.session.version} {call} is refused: {error}")
            return Finding(row.title, False, f"{client.session.version} {call} was to be refused: {text_of(result)}")

    async def _in_era(self, era: Era, row: Row, example: ExampleCall | None) -> list[Finding]:
        async with McpClient.connect(row.url, http=self._mode.http, era=era, headers=_headers(row)) as client:
            listed = await client.list_tools()
            names = [tool.name for tool in listed.tools]
            found = [Finding(row.title, not listed.incomplete, f"{client.session.version} lists {_shown(names)}")]
            if example is None:
                return found
            tool = next((t for t in listed.tools if t.name == example.tool), None)
            if tool is None:
                return [*found, Finding(row.title, False, f"{client.session.version} has no tool {example.tool}")]
            schema = tool.decoded().get("inputSchema")
            result = await client.call(example.tool, example.arguments, schema=schema)
            return [*found, judged(row.title, client.session.version, example, result)]


def _headers(row: Row) -> dict[str, str]:
    """With the token of this machine, where the server wants one."""
    return bearer_of(Path(row.token)) if row.token else {}


def judged(title: str, version: str, example: ExampleCall, result: Mapping[str, Any]) -> Finding:
    """Whether a call gave what its example promises; without a promise, any answer that is no error will do."""
    text = text_of(result)
    call = f"{version} {example.tool}({', '.join(f'{k}={json.dumps(v)}' for k, v in example.arguments.items())})"
    if result.get("isError"):
        return Finding(title, False, f"{call} failed: {text}")
    if example.expect is not None and text != example.expect:
        return Finding(title, False, f"{call} = {text!r}, expected {example.expect!r}")
    return Finding(title, True, f"{call} = {text}")


def _shown(names: list[str]) -> str:
    if not names:
        return "no tools"
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return f"{len(names)}: {', '.join(names[:_NAMED_AT_MOST])}{more}"
