"""Which server a person means: a URL, or one that `fairway up` runs on this machine."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from fairway.local.issuer import bearer_of
from fairway.local.manifests import DEFAULT_NAMESPACE


class UnknownServer(Exception):
    """There is no such server; the message says which there are, or how to start one."""


def url_of(server: str, state_directory: Path) -> str:
    """Where the server is."""
    if server.startswith(("http://", "https://")):
        return server
    known = known_servers(state_directory)
    found = known.get(server if "/" in server else f"{DEFAULT_NAMESPACE}/{server}")
    if found is None:
        shown = [name.removeprefix(f"{DEFAULT_NAMESPACE}/") for name in sorted(known)]
        close = get_close_matches(server, shown, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(shown)}" if shown else ""
        raise UnknownServer(f"there is no server {server!r} here{hint}")
    if not found.get("url"):
        raise UnknownServer(f"{server} is not reachable yet: {found.get('message') or 'it is starting'}")
    return str(found["url"])


def headers_of(server: str, state_directory: Path) -> dict[str, str]:
    """What a local server wants to see of its user: the token of this machine, where it asks for one."""
    if server.startswith(("http://", "https://")):
        return {}
    found = known_servers(state_directory).get(server if "/" in server else f"{DEFAULT_NAMESPACE}/{server}") or {}
    return bearer_of(state_directory / "token") if found.get("token") else {}


def known_servers(state_directory: Path) -> dict[str, Mapping[str, object]]:
    path = state_directory / "servers.json"
    try:
        servers = json.loads(path.read_text())["servers"].items()
    except FileNotFoundError:
        raise UnknownServer(
            f"no `fairway up` runs here ({path} does not exist); start one, or give the server's URL"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownServer(f"{path} cannot be read: {error}") from None
    return {name: server for name, server in servers if isinstance(server, dict)}
