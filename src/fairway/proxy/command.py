"""The command lines of the proxy: `fairway proxy` and `fairway proxyrunner run`, without a framework for either."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fairway.api import names
from fairway.api.runconfig import InvalidRunConfig, Route, RunConfig, encode, parse
from fairway.proxy import main as process
from fairway.proxy.address import Address, InvalidAddress, parse_address
from fairway.proxy.byhand import LISTEN, route_by_hand
from fairway.proxy.files import ConfigFiles, FixedConfig
from fairway.proxy.main import GRACE, Options, UserError
from fairway.proxy.topology import FileTopology, StandAlone, Topology

KUBERNETES = "kubernetes"
_BY_HAND = ("listen", "path", "mode", "env", "ca", "tls-cert", "tls-key")
_EXAMPLES = """examples:
  fairway proxy --upstream http://127.0.0.1:3900/mcp
  fairway proxy --upstream https://mcp.example.com/mcp --listen 127.0.0.1:9000
  fairway proxy --stdio --env API_KEY -- npx -y @example/server --verbose
  fairway proxy --config runconfig.json --admin 127.0.0.1:9090
"""


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


def run_route(
    route: Route,
    *,
    admin: str | None = None,
    pre_stop: float | None = None,
    grace: float = GRACE,
    log_level: str = "info",
) -> int:
    """Serves one server that is given on the command line. Returns the exit code."""
    options = _options(admin=admin, pre_stop=pre_stop, grace=grace, log_level=log_level)
    config = RunConfig(version=1, routes=(route,))
    try:
        parse(encode(config))
    except InvalidRunConfig as error:
        raise UserError(str(error)) from None
    return process.run(FixedConfig(config), StandAlone(), options)


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
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    # by hand: what follows -- is another program's, whatever it looks like
    at = given.index("--") if "--" in given else len(given)
    parser = _parser("fairway proxy", "Stands between clients and MCP servers.")
    parser.usage = "fairway proxy (--config FILE_OR_DIR | --upstream URL | --sse URL | --stdio -- COMMAND) [OPTION ...]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE_OR_DIR", help="RunConfig files; read again when changed")
    source.add_argument("--upstream", metavar="URL", help="one server, such as http://127.0.0.1:3900/mcp")
    source.add_argument(
        "--sse", metavar="URL", help="one server of the old transport, such as http://127.0.0.1:3900/sse"
    )
    source.add_argument("--stdio", action="store_true", help="one server that is started here: --stdio -- COMMAND ...")
    hand = parser.add_argument_group("one server by hand")
    hand.add_argument("--listen", metavar="HOST:PORT", help=f"where clients connect; {LISTEN} when not given")
    hand.add_argument("--path", metavar="PATH", help="where it is served; as in the URL, or /mcp, when not given")
    hand.add_argument("--mode", choices=["streamable-http", "sse"], help="with --stdio: what clients speak")
    hand.add_argument(
        "--env", action="append", metavar="NAME", help="with --stdio: a variable that the server gets too; repeat it"
    )
    hand.add_argument("--ca", type=Path, metavar="FILE", help="authorities for an https URL instead of the system's")
    hand.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve clients over TLS with this certificate")
    hand.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of --tls-cert")
    parser.add_argument("--topology", metavar="kubernetes|FILE", help="with --config: who knows where servers are")
    parser.add_argument("--admin", metavar="HOST:PORT", help="probes, metrics and status; off when not given")
    return _guarded(parser, given[:at], lambda found: _main(found, given[at + 1 :]))


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


def _main(given: argparse.Namespace, command: Sequence[str]) -> int:
    if command and not given.stdio:
        raise UserError("what follows -- is the command of --stdio")
    shared = {"admin": given.admin, "pre_stop": given.pre_stop, "grace": given.grace, "log_level": given.log_level}
    if given.config is None:
        if given.topology is not None:
            raise UserError("--topology belongs to --config")
        return run_route(route_by_hand(given, command), **shared)
    for option in _BY_HAND:
        if getattr(given, option.replace("-", "_")) is not None:
            raise UserError(
                f"--{option} belongs to a server by hand; with --config, the RunConfig or the topology says it"
            )
    return run_files(config=given.config, topology=given.topology, **shared)


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
