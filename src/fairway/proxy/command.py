"""The command lines of the proxy: `fairway proxy` and `fairway proxyrunner run`, without a framework for either."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from fairway.api import names
from fairway.api.runconfig import Listen, Route, RunConfig, Upstream
from fairway.proxy import main as process
from fairway.proxy.address import Address, InvalidAddress, parse_address
from fairway.proxy.files import ConfigFiles, FixedConfig
from fairway.proxy.main import GRACE, Options, UserError
from fairway.proxy.topology import FileTopology, StandAlone, Topology

KUBERNETES = "kubernetes"
BY_HAND = "default/upstream"
"""The name of the route that is given on the command line."""


def run_files(
    *,
    config: Path,
    admin: str | None = None,
    topology: str | None = None,
    pre_stop: float | None = None,
    grace: float = GRACE,
    log_level: str = "info",
) -> int:
    """Serves the routes of a RunConfig file, or of all *.json in a directory. Returns the exit code."""
    options = _options(admin=admin, pre_stop=pre_stop, grace=grace, log_level=log_level)
    return process.run(ConfigFiles(config), _topology(topology), options)


def run_upstream(
    *,
    upstream: str,
    listen: str,
    admin: str | None = None,
    pre_stop: float | None = None,
    grace: float = GRACE,
    log_level: str = "info",
) -> int:
    """Serves one server that is given by its URL. Returns the exit code."""
    options = _options(admin=admin, pre_stop=pre_stop, grace=grace, log_level=log_level)
    config = FixedConfig(RunConfig(version=1, routes=(_route(upstream, listen),)))
    return process.run(config, StandAlone(), options)


def run_in_pod(
    *,
    config: Path = Path(names.RUNCONFIG_DIR),
    admin: str = f"0.0.0.0:{names.ADMIN_PORT}",
    topology: str = KUBERNETES,
    pre_stop: float | None = None,
    grace: float = GRACE,
    log_level: str = "info",
) -> int:
    """Serves what the operator mounted into this pod. Returns the exit code."""
    return run_files(config=config, admin=admin, topology=topology, pre_stop=pre_stop, grace=grace, log_level=log_level)


def main(arguments: Sequence[str] | None = None) -> int:
    """`fairway proxy`."""
    parser = _parser("fairway proxy", "Stands between clients and MCP servers.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE_OR_DIR", help="RunConfig files; read again when changed")
    source.add_argument("--upstream", metavar="URL", help="one server, such as http://127.0.0.1:3900/mcp")
    parser.add_argument("--listen", metavar="HOST:PORT", help="with --upstream: where clients connect")
    parser.add_argument("--topology", metavar="kubernetes|FILE", help="with --config: who knows where servers are")
    parser.add_argument("--admin", metavar="HOST:PORT", help="probes, metrics and status; off when not given")
    return _guarded(parser, arguments, _main)


def proxyrunner(arguments: Sequence[str] | None = None) -> int:
    """`fairway proxyrunner`, which knows one word: `run`."""
    parser = _parser("fairway proxyrunner", "Runs the proxy as its pods do.")
    parser.add_argument("action", choices=["run"])
    parser.add_argument("--config", type=Path, metavar="FILE_OR_DIR", default=Path(names.RUNCONFIG_DIR))
    parser.add_argument("--admin", metavar="HOST:PORT", default=f"0.0.0.0:{names.ADMIN_PORT}")
    parser.add_argument("--topology", metavar="kubernetes|FILE", default=KUBERNETES)
    return _guarded(
        parser,
        arguments,
        lambda given: run_in_pod(
            config=given.config,
            admin=given.admin,
            topology=given.topology,
            pre_stop=given.pre_stop,
            grace=given.grace,
            log_level=given.log_level,
        ),
    )


def _main(given: argparse.Namespace) -> int:
    if given.upstream is None:
        if given.listen is not None:
            raise UserError("--listen belongs to --upstream; with --config, the RunConfig or the topology says it")
        return run_files(
            config=given.config,
            admin=given.admin,
            topology=given.topology,
            pre_stop=given.pre_stop,
            grace=given.grace,
            log_level=given.log_level,
        )
    if given.listen is None:
        raise UserError("--upstream needs --listen HOST:PORT")
    if given.topology is not None:
        raise UserError("--topology belongs to --config")
    return run_upstream(
        upstream=given.upstream,
        listen=given.listen,
        admin=given.admin,
        pre_stop=given.pre_stop,
        grace=given.grace,
        log_level=given.log_level,
    )


class _Parser(argparse.ArgumentParser):
    """One line for a mistake, as everywhere in this program."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}; {self.prog} --help says more\n")
        raise SystemExit(2)


def _parser(program: str, description: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description=description, allow_abbrev=False)
    parser.add_argument("--pre-stop", type=float, metavar="SECONDS", help="keep taking requests after SIGTERM")
    parser.add_argument("--grace", type=float, metavar="SECONDS", default=GRACE, help="for calls at the end")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    return parser


def _guarded(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, body: Callable[[argparse.Namespace], int]
) -> int:
    try:
        return body(parser.parse_args(arguments))
    except UserError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2


def _options(*, admin: str | None, pre_stop: float | None, grace: float, log_level: str) -> Options:
    for name, value in (("--pre-stop", pre_stop), ("--grace", grace)):
        if value is not None and not 0 <= value <= 3600:
            raise UserError(f"{name}: {value:g} is not between 0 and 3600 seconds")
    return Options(
        admin=None if admin is None else _address("--admin", admin),
        pre_stop=pre_stop,
        grace=grace,
        log_level=log_level,
    )


def _address(option: str, text: str) -> Address:
    try:
        return parse_address(text)
    except InvalidAddress as error:
        raise UserError(f"{option}: {error}") from None


def _topology(text: str | None) -> Topology:
    if text is None:
        return StandAlone()
    if text != KUBERNETES:
        return FileTopology(Path(text))
    # only a pod pays for what talks to the API server
    from fairway.proxy.kubernetes import KubernetesTopology

    return KubernetesTopology()


def _route(upstream: str, listen: str) -> Route:
    try:
        parts = urlsplit(upstream)
        port = parts.port or 80
    except ValueError as error:
        raise UserError(f"--upstream: {upstream!r}: {error}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise UserError(f"--upstream: {upstream!r} is not an http URL such as http://127.0.0.1:3900/mcp")
    if parts.query or parts.fragment or parts.username is not None:
        raise UserError(f"--upstream: {upstream!r} must be no more than scheme, host, port and path")
    host, listen_port = _address("--listen", listen)
    path = parts.path or "/"
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Route(
        name=BY_HAND,
        listen=Listen(host=host, port=listen_port, path=path),
        upstream=Upstream(addresses=(f"{name}:{port}",), path=path),
    )
