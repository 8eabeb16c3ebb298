"""What local mode shows of each server: one row, taken from the world's own status. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fairway.api.conditions import Phase, Reason
from fairway.api.names import MCP_PATH
from fairway.api.plaintext import on_one_line
from fairway.local.manifests import DEFAULT_NAMESPACE

Obj = Mapping[str, Any]

EXAMPLE_CALL = "fairway.dev/example-call"
EXAMPLE_DENIED = "fairway.dev/example-denied"
"""A call that the server's policy must refuse."""

_NOTHING_WILL_CHANGE = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.INLINE_TOOLS_INVALID,
        Reason.TOOL_CONFIG_NOT_FOUND,
        Reason.TOOL_CONFIG_INVALID,
        Reason.TOOL_CONFLICT,
        Reason.NAME_TAKEN,
        Reason.REJECTED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.NEEDS_CONTAINER_RUNTIME,
        Reason.POLICY_REJECTED,
        Reason.SCALED_TO_ZERO,
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One MCPServer as a person wants to see it."""

    namespace: str
    name: str
    source: str
    proxy: str
    tools: int | None
    phase: str
    reason: str
    message: str
    url: str
    example: str = ""
    log: str = ""
    """Where its newest process writes, if it has written anything."""
    token: str = ""
    """The file with a token that it lets in, if it wants one of this machine's."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        return self.name if self.namespace == DEFAULT_NAMESPACE else self.key

    @property
    def ready(self) -> bool:
        return self.phase == Phase.READY

    @property
    def hopeless(self) -> bool:
        """Whether nothing but an edit of the manifests can make it ready."""
        return not self.ready and self.reason in _NOTHING_WILL_CHANGE

    @property
    def trouble(self) -> str:
        """What is wrong, or what it waits for; empty when it is ready."""
        return "" if self.ready else self.message or self.reason or "starting"


def key_of(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def rows(
    servers: Iterable[Obj],
    *,
    address_of: Callable[[Obj], str],
    log_of: Callable[[Obj], str],
    token_of: Callable[[Obj], str] = lambda _: "",
) -> list[Row]:
    """By name; `address_of` says where on this machine a server is reached, `log_of` where its log is, if any."""
    found = (_row(server, address_of(server), log_of(server), token_of(server)) for server in servers)
    return sorted(found, key=lambda row: (row.namespace, row.name))


def _row(server: Obj, address: str, log: str, token: str) -> Row:
    metadata, spec = server["metadata"], server["spec"]
    status = server.get("status") or {}
    stale = status.get("observedGeneration", 0) < metadata.get("generation", 0)
    conditions: Iterable[Obj] = status.get("conditions") or ()
    ready = next((c for c in conditions if c["type"] == "Ready"), {})
    tools = status.get("tools") or {}
    return Row(
        namespace=metadata["namespace"],
        name=metadata["name"],
        source=source_of(spec),
        proxy=proxy_mode(server),
        tools=tools.get("count"),
        phase=str(Phase.PENDING if stale else status.get("phase", Phase.PENDING)),
        reason="" if stale else ready.get("reason", ""),
        message="" if stale else on_one_line(ready.get("message", "")),
        url=url_at(address, status.get("url", "")),
        example=command_of(server),
        log=log,
        token=token,
    )


def url_at(address: str, inside: str) -> str:
    """Where something is reached at an address of this machine that has `inside` as its URL in a cluster."""
    said = urlsplit(inside)
    return f"{said.scheme or 'http'}://{address}{said.path or MCP_PATH}"


def proxy_mode(server: Obj) -> str:
    return str((server["spec"].get("proxy") or {}).get("mode", "standalone"))


def source_of(spec: Obj) -> str:
    """Where the server comes from, and what is done about it, in a few words."""
    package, oidc = spec.get("package") or {}, (spec.get("auth") or {}).get("oidc")
    if package:
        source = f"pypi {package['pypi']}" if "pypi" in package else f"npm {package.get('npm', '')}"
    elif "remote" in spec:
        source = f"remote {urlsplit(str(spec['remote'].get('url', ''))).netloc}"
    elif "runtime" in spec:
        source = f"runtime {spec['runtime'].get('name', '')}"
    elif "serviceRef" in spec:
        source = f"service {spec['serviceRef'].get('name', '')}"
    else:
        source = "inline tools" if "inlineTools" in spec else f"image {spec.get('image', '')}"
    more = [*(["filtered"] if "toolConfigRef" in spec else []), *(["OIDC"] if oidc else [])]
    return ", ".join((source, *more))


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """What the annotation on an MCPServer says its users may try, and what comes of it."""

    tool: str
    arguments: Mapping[str, Any]
    expect: str | None = None


class InvalidExample(ValueError):
    """The annotation cannot be read; the message says why."""


def example_of(server: Obj, annotation: str = EXAMPLE_CALL) -> ExampleCall | None:
    """The call that an annotation of the server asks for, if it has one."""
    text = (server["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        call = json.loads(text)
    except ValueError as error:
        raise InvalidExample(f"annotation {annotation} is not JSON: {error}") from None
    if not isinstance(call, dict) or not isinstance(call.get("tool"), str):
        raise InvalidExample(f'annotation {annotation}: expected {{"tool": "...", "arguments": {{...}}}}')
    unknown = call.keys() - {"tool", "arguments", "expect"}
    if unknown:
        raise InvalidExample(f"annotation {annotation}: unknown key {min(unknown)}")
    arguments, expect = call.get("arguments", {}), call.get("expect")
    if not isinstance(arguments, dict) or not isinstance(expect, str | None):
        raise InvalidExample(f"annotation {annotation}: arguments must be an object, and expect a string")
    return ExampleCall(call["tool"], arguments, expect)


def command_of(server: Obj) -> str:
    """The example call as somebody would type it."""
    try:
        call = example_of(server)
    except InvalidExample:
        return ""
    if call is None:
        return ""
    namespace, name = server["metadata"]["namespace"], server["metadata"]["name"]
    title = name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"
    simple = all(not isinstance(v, list | dict | None) and _plain(str(v)) for v in call.arguments.values())
    words = [f"{k}={json.dumps(v) if not isinstance(v, str) else v}" for k, v in call.arguments.items()]
    given = words if simple else [f"--json '{json.dumps(call.arguments)}'"]
    return " ".join(["fairway", "call", title, call.tool, *given])


def _plain(text: str) -> bool:
    return bool(text) and all(c.isalnum() or c in "-_./:@" for c in text)


HEADINGS = ("NAME", "SOURCE", "PROXY", "TOOLS", "STATUS", "URL")


def cells(row: Row) -> tuple[str, ...]:
    tools = "" if row.tools is None else str(row.tools)
    url = f"{row.url}   token: {row.token}" if row.token else row.url
    return (row.title, row.source, row.proxy, tools, row.phase, url)


def table(shown: Sequence[Row]) -> list[str]:
    """The rows as lines of text, with what is wrong below each."""
    lines = [HEADINGS, *(cells(row) for row in shown)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    text = []
    for line, row in zip(lines, [None, *shown], strict=True):
        text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if row is not None and row.trouble:
            text.append(f"    {row.trouble}")
            text += [f"    log: {row.log}"] if row.log else []
    return text
