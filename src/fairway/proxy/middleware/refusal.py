"""A request that goes no further, as data: whoever owns the connection writes it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """HTTP status, JSON-RPC error and extra response headers of a refused request.

    `code` is the HTTP status where JSON-RPC and MCP have no code for the reason: the specification closes its own range
    to everybody else. Nothing in it is secret; `detail` is for the audit log and never sent.
    """

    status: int
    code: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    detail: str = ""


def unavailable(message: str, *, retry_after: int = 1, detail: str = "") -> Refusal:
    """Something that the decision needs cannot be had right now: neither yes nor no."""
    return Refusal(503, 503, message, (("Retry-After", str(retry_after)),), detail)
