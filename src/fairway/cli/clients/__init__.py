"""MCP clients that people use: where each keeps its servers, and how a server of ours reads there. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fairway.cli.clients.jsonc import with_member
from fairway.cli.clients.tables import with_table
from fairway.cli.clients.yamlmap import with_entry
from fairway.cli.mistake import Mistake

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a client has to know. The token itself stays out of files: they name the variable that holds it."""

    name: str
    url: str
    token_variable: str = ""
    client_id: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Mistake(f"--name {self.name!r}: letters, digits, '-' and '_', at most 64")
        if self.token_variable and not _VARIABLE.fullmatch(self.token_variable):
            raise Mistake(f"--token-env {self.token_variable!r} is no name of a variable")


@dataclass(frozen=True, slots=True)
class Places:
    """Where on this machine a client's files may be."""

    home: Path
    here: Path
    macos: bool


@dataclass(frozen=True, slots=True)
class Client:
    """One client: `file` is where it looks, `edited` makes the new text of that file from the old one."""

    name: str
    title: str
    aliases: tuple[str, ...]
    file: Callable[[Places], Path]
    edited: Callable[[str, Entry], str]
    afterwards: str
    """What a person does next."""
    takes_client_id: bool = True
    takes_token: bool = True

    def edit(self, text: str, entry: Entry) -> str:
        """The file's new text. Raises Mistake for what the client has no setting for."""
        if entry.client_id and not self.takes_client_id:
            raise Mistake(f"{self.title} has no setting for a client id; leave out --client-id")
        if entry.token_variable and not self.takes_token:
            raise Mistake(f"{self.title} cannot take a token from the environment; leave out --token-env")
        return self.edited(text, entry)


def _bearer(entry: Entry, reference: str) -> dict[str, Any]:
    if not entry.token_variable:
        return {}
    return {"headers": {"Authorization": f"Bearer {reference.format(entry.token_variable)}"}}


def _oauth(entry: Entry, **more: Any) -> dict[str, Any]:
    return {"oauth": {**more, "clientId": entry.client_id}} if entry.client_id else {}


def _claude(text: str, e: Entry) -> str:
    return with_member(
        text, ("mcpServers", e.name), {"type": "http", "url": e.url, **_bearer(e, "${{{}}}"), **_oauth(e)}
    )


def _cursor(text: str, e: Entry) -> str:
    auth = {"auth": {"CLIENT_ID": e.client_id}} if e.client_id else {}
    return with_member(text, ("mcpServers", e.name), {"url": e.url, **_bearer(e, "${{env:{}}}"), **auth})


def _vscode(text: str, e: Entry) -> str:
    return with_member(
        text, ("servers", e.name), {"type": "http", "url": e.url, **_bearer(e, "${{env:{}}}"), **_oauth(e)}
    )


def _windsurf(text: str, e: Entry) -> str:
    return with_member(text, ("mcpServers", e.name), {"serverUrl": e.url, **_bearer(e, "${{env:{}}}")})


def _zed(text: str, e: Entry) -> str:
    return with_member(text, ("context_servers", e.name), {"url": e.url})


def _gemini(text: str, e: Entry) -> str:
    return with_member(text, ("mcpServers", e.name), {"httpUrl": e.url, **_bearer(e, "${}"), **_oauth(e, enabled=True)})


def _goose(text: str, e: Entry) -> str:
    held = {"env_keys": [e.token_variable]} if e.token_variable else {}
    value = {"enabled": True, "type": "streamable_http", "name": e.name, "uri": e.url, "timeout": 300}
    return with_entry(text, ("extensions", e.name), {**value, **_bearer(e, "${}"), **held})


def _codex(text: str, e: Entry) -> str:
    value: dict[str, Any] = {"url": e.url}
    value |= {"bearer_token_env_var": e.token_variable} if e.token_variable else {}
    value |= {"oauth": {"client_id": e.client_id}} if e.client_id else {}
    return with_table(text, ("mcp_servers", e.name), value)


def _vscode_file(p: Places) -> Path:
    return p.here / ".vscode" / "mcp.json"


def _config(p: Places) -> Path:
    return p.home / ".config"


CLIENTS = (
    Client(
        "claude",
        "Claude Code",
        ("claude-code",),
        lambda p: p.here / ".mcp.json",
        _claude,
        "start `claude` in this folder and approve the server; /mcp lists it",
    ),
    Client(
        "cursor",
        "Cursor",
        (),
        lambda p: p.home / ".cursor" / "mcp.json",
        _cursor,
        "restart Cursor; Settings, Tools & MCP lists it",
    ),
    Client(
        "vscode",
        "VS Code",
        ("code", "vs-code"),
        _vscode_file,
        _vscode,
        "open this folder in VS Code and start the server from .vscode/mcp.json",
    ),
    Client(
        "windsurf",
        "Windsurf",
        (),
        lambda p: p.home / ".codeium" / "windsurf" / "mcp_config.json",
        _windsurf,
        "press refresh in Windsurf's MCP settings",
        takes_client_id=False,
    ),
    Client(
        "zed",
        "Zed",
        (),
        lambda p: _config(p) / "zed" / "settings.json",
        _zed,
        "Zed takes it up at once; the agent panel's settings list it",
        takes_client_id=False,
        takes_token=False,
    ),
    Client(
        "goose",
        "Goose",
        (),
        lambda p: _config(p) / "goose" / "config.yaml",
        _goose,
        "start a new session: goose session",
        takes_client_id=False,
    ),
    Client(
        "gemini",
        "Gemini CLI",
        ("gemini-cli",),
        lambda p: p.home / ".gemini" / "settings.json",
        _gemini,
        "start `gemini`; /mcp lists it",
    ),
    Client(
        "codex",
        "Codex",
        ("codex-cli",),
        lambda p: p.home / ".codex" / "config.toml",
        _codex,
        "start `codex`; /mcp lists it",
    ),
)
_BY_NAME: Mapping[str, Client] = {name: client for client in CLIENTS for name in (client.name, *client.aliases)}


def client_named(text: str) -> Client:
    found = _BY_NAME.get(text.lower())
    if found is None:
        close = get_close_matches(text.lower(), _BY_NAME, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(c.name for c in CLIENTS)}"
        raise Mistake(f"{text!r} is no client that Fairway knows{hint}")
    return found
