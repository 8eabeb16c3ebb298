"""`fairway tools --file`: serves the functions of a Python file. Plain argparse, since pods start it.

`fairway tools SERVER` is for people, lists the tools of a server, and lives in a module that pods never load.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from fairway.api.names import MCP_PATH
from fairway.tools import main as server


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """`MCP_HOST` and `MCP_PORT` stand in for the options, as an MCPServer's pod has them."""
    made = argparse.ArgumentParser(
        prog="fairway tools",
        description="Serves every public function of a Python file as an MCP tool, over streamable HTTP. "
        "GET /health and /ready answer on the same port.",
        epilog="fairway tools SERVER lists the tools of a server instead; see fairway tools SERVER --help",
    )
    made.add_argument("--file", type=Path, required=True, metavar="FILE", help="the Python source")
    made.add_argument(
        "--host",
        default=environment.get("MCP_HOST") or "127.0.0.1",
        help="address to listen on (default: $MCP_HOST or 127.0.0.1)",
    )
    made.add_argument(
        "--port",
        type=_port,
        default=environment.get("MCP_PORT") or "8080",
        help="port to listen on, 0 for a free one (default: $MCP_PORT or 8080)",
    )
    made.add_argument("--path", default=MCP_PATH, help="path of the MCP endpoint (default: %(default)s)")
    made.add_argument("--name", help="what the server calls itself (default: the file's name)")
    return made


def main(arguments: list[str]) -> int:
    serves = not arguments or arguments[0] in ("-h", "--help") or any(a.startswith("--file") for a in arguments)
    if not serves:
        from fairway.cli import toollist

        return toollist.main(arguments)
    given = parser(os.environ).parse_args(arguments)
    return server.run(file=given.file, host=given.host, port=given.port, path=given.path, name=given.name)


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return port
