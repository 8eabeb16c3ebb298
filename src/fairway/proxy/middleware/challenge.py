"""How a client learns what token this server wants: RFC 9728 metadata and the WWW-Authenticate header. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from fairway.api import policy

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


def metadata_url(resource: str) -> str:
    """Where the metadata of a resource lives: the well-known part goes between host and path."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"


def resource_for(config: policy.Authentication, host: str) -> str | None:
    """The resource URL that a client dialled, by its Host header; else the canonical one, if there is any."""
    for resource in config.resources:
        if urlsplit(resource).netloc == host:
            return resource
    return config.resources[0] if config.resources else None


def metadata(config: policy.Authentication, *, host: str, path: str) -> bytes | None:
    """The metadata document that a GET of `path` asks for; None if there is none here.

    Without the resource's path it is that of the only resource of the host: clients try both places.
    """
    if not path.startswith(WELL_KNOWN) or not config.resources:
        return None
    wanted = path[len(WELL_KNOWN) :].rstrip("/")
    on_host = [resource for resource in config.resources if urlsplit(resource).netloc == host] or [*config.resources]
    for resource in on_host:
        if urlsplit(resource).path.rstrip("/") == wanted:
            return _document(config, resource)
    return _document(config, on_host[0]) if not wanted and len(on_host) == 1 else None


def _document(config: policy.Authentication, resource: str) -> bytes:
    document: dict[str, object] = {
        "resource": resource,
        "authorization_servers": list(config.authorization_servers) or [i.issuer for i in config.issuers],
        "bearer_methods_supported": ["header"],
    }
    if scopes := config.scopes_supported or config.required_scopes:
        document["scopes_supported"] = list(scopes)
    return msgspec.json.encode(document)


def www_authenticate(
    resource: str | None, *, scopes: Sequence[str] = (), error: str = "", description: str = ""
) -> tuple[str, str]:
    """The header of a 401, or of a 403 that more scopes would turn into a yes.

    A request without a token gets no error: RFC 6750 asks not to tell those more than how to begin.
    """
    parts = []
    if error:
        parts.append(f'error="{error}"')
    if description:
        parts.append(f'error_description="{_quotable(description)}"')
    if scopes:
        parts.append(f'scope="{" ".join(scopes)}"')
    if resource is not None:
        parts.append(f'resource_metadata="{metadata_url(resource)}"')
    return "WWW-Authenticate", f"Bearer {', '.join(parts)}" if parts else "Bearer"


def _quotable(text: str) -> str:
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "'" for c in text)
