"""One server that is given on the command line, as a route."""

import argparse
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from fairway.api.runconfig import DEFAULT_PATH, Command, Listen, ListenTLS, Remote, Route, Upstream, UpstreamTLS
from fairway.proxy.address import InvalidAddress, parse_address
from fairway.proxy.main import UserError

LISTEN: Final = "127.0.0.1:8080"
NAME: Final = "default/upstream"
_SSE_PATH: Final = "/sse"


def route_by_hand(given: argparse.Namespace, command: Sequence[str]) -> Route:
    """Raises UserError, whose message names the option."""
    upstream = _started(given, command) if given.stdio else _at_url(given)
    sse = given.sse is not None or given.mode == "sse"
    usual = upstream.endpoint_path if upstream.remote is not None else _SSE_PATH if sse else DEFAULT_PATH
    path = given.path or usual
    if not path.startswith("/"):
        raise UserError(f"--path: {path!r} does not begin with /")
    try:
        host, port = parse_address(given.listen or LISTEN)
    except InvalidAddress as error:
        raise UserError(f"--listen: {error}") from None
    _check_free(host, port)
    mode: Literal["sse", "streamable-http"] = "sse" if sse else "streamable-http"
    listen = Listen(host=host, port=port, path=path, tls=_own_tls(given), mode=mode)
    return Route(name=NAME, listen=listen, upstream=upstream)


def _check_free(host: str, port: int) -> None:
    """A proxy in a pod waits for its address; who starts one by hand wants to hear of it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            raise UserError(f"--listen: cannot listen on {host}:{port}: {error.strerror or error}") from None


def _own_tls(given: argparse.Namespace) -> ListenTLS | None:
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UserError("--tls-cert and --tls-key go together")
    if given.tls_cert is None:
        return None
    return ListenTLS(cert_file=_file("--tls-cert", given.tls_cert), key_file=_file("--tls-key", given.tls_key))


def _file(option: str, path: Path) -> str:
    if not path.is_file():
        raise UserError(f"{option}: there is no file {path}")
    return str(path.absolute())


def _started(given: argparse.Namespace, command: Sequence[str]) -> Upstream:
    if not command:
        raise UserError("--stdio needs a command: --stdio -- python server.py")
    if given.ca is not None:
        raise UserError("--ca belongs to --upstream and --sse")
    if shutil.which(command[0]) is None:
        raise UserError(f"--stdio: there is no program {command[0]}")
    for name in given.env or ():
        if name not in os.environ:
            raise UserError(f"--env: there is no variable {name}" + (": give the name alone" if "=" in name else ""))
    return Upstream(transport="stdio", command=Command(argv=tuple(command), inherit=tuple(given.env or ())))


def _at_url(given: argparse.Namespace) -> Upstream:
    option, url = ("--sse", given.sse) if given.sse is not None else ("--upstream", given.upstream)
    for other in ("mode", "env"):
        if getattr(given, other) is not None:
            raise UserError(f"--{other} belongs to --stdio")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UserError(f"{option}: {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UserError(f"{option}: {url!r} is not an http or https URL such as http://127.0.0.1:3900/mcp")
    if parts.query or parts.fragment or parts.username is not None:
        raise UserError(f"{option}: {url!r} must be no more than scheme, host, port and path")
    if given.ca is not None and parts.scheme == "http":
        raise UserError("--ca belongs to an https URL")
    if given.sse is not None and parts.path in ("", "/"):
        url = url.rstrip("/") + _SSE_PATH
    # whoever types a URL may go there
    remote = Remote(url=url, allow_private=True, allow_loopback=True)
    tls = None if given.ca is None else UpstreamTLS(ca_file=_file("--ca", given.ca))
    return (
        Upstream(transport="sse", remote=remote, tls=tls) if given.sse is not None else Upstream(remote=remote, tls=tls)
    )
