"""Manifests to begin with, commented, from what a person has: tools to write, an image, a package, a command. Pure."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairway.api.names import API_VERSION, MAX_SERVER_NAME, is_server_name
from fairway.cli.mistake import Mistake

_NOT_A_NAME = re.compile(r"[^a-z0-9-]+")
_PYPI = re.compile(r"(?P<name>[A-Za-z0-9][\w.\[\],-]*?)==(?P<version>[0-9][\w.!+-]*)")
_NPM = re.compile(r"(?P<name>(@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*)@(?P<version>[0-9][\w.+-]*)")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user said; at most one source, and without one the tools are written in the manifest."""

    name: str = ""
    image: str = ""
    pypi: str = ""
    npm: str = ""
    command: str = ""
    port: int = 0
    arguments: Sequence[str] = field(default_factory=tuple)


def manifest(wish: Wish) -> tuple[str, str]:
    """The name of the server and its manifest. Raises Mistake for what cannot become one."""
    given = [option for option in ("image", "pypi", "npm", "command") if getattr(wish, option)]
    if len(given) > 1:
        raise Mistake(f"--{given[0]} and --{given[1]}: a server has one source; leave one of them out")
    match given:
        case ["image"]:
            source, guess = _image(wish), wish.image.rpartition("/")[2].partition("@")[0].partition(":")[0]
        case ["pypi"]:
            source, guess = _package(wish.pypi, "pypi", _PYPI, "mcp-server-time==2026.10.19", wish.arguments)
        case ["npm"]:
            source, guess = _package(wish.npm, "npm", _NPM, "@scope/server@1.2.3", wish.arguments)
        case ["command"]:
            source, guess = _command(wish)
        case _:
            source, guess = _INLINE, "tools"
    if wish.arguments and given in ([], ["command"]):
        raise Mistake("arguments behind -- go with --image, --pypi or --npm")
    name = wish.name or _name_from(guess)
    if not is_server_name(name):
        raise Mistake(
            f"{name!r} is no name of a server: lower-case letters, digits and '-', a letter first, "
            f"at most {MAX_SERVER_NAME}"
        )
    return name, f"{_HEAD.format(name=name, version=API_VERSION)}{source}{_TAIL}"


def _name_from(guess: str) -> str:
    name = _NOT_A_NAME.sub("-", guess.lower()).strip("-")
    return name.lstrip("0123456789-")[:MAX_SERVER_NAME].strip("-") or "server"


_HEAD = """\
# An MCP server. On this machine:   fairway up -f {name}.yaml
# In a cluster:                     fairway apply -f {name}.yaml
# What it would change:             fairway plan -f {name}.yaml
apiVersion: {version}
kind: MCPServer
metadata:
  name: {name}
spec:
"""
_TAIL = """
  # replicas: 2
  # toolConfigRef:            # which tools clients see, and under what name
  #   name: NAME              # an MCPToolConfig in the same namespace
"""
_INLINE = """\
  # Every public function becomes a tool; its annotations and its docstring become the tool's schema.
  inlineTools:
    python: |
      def add(a: int, b: int) -> int:
          \"\"\"Add two whole numbers.\"\"\"
          return a + b
"""
_ENVIRONMENT = """\
  # env:
  #   - name: API_KEY
  #     valueFrom:
  #       secretKeyRef: {name: NAME, key: KEY}
"""


def _image(wish: Wish) -> str:
    lines = [
        f"  image: {json.dumps(wish.image)}",
        "  # How the server talks; stdio where it reads standard input.",
        "  transport: streamable-http",
        "  # The port that it listens on in its container.",
        f"  port: {wish.port or 8080}",
    ]
    if wish.arguments:
        lines.append(f"  args: {json.dumps(list(wish.arguments))}")
    return "\n".join(lines) + "\n" + _ENVIRONMENT


def _package(text: str, index: str, form: re.Pattern[str], example: str, arguments: Sequence[str]) -> tuple[str, str]:
    found = form.fullmatch(text)
    if found is None:
        raise Mistake(
            f"--{index} {text!r}: name one exact version, so that what runs changes only when you say so: {example}"
        )
    lines = [
        "  # Fetched before the server starts. Packages speak stdio unless `transport` says otherwise.",
        "  package:",
        f"    {index}: {json.dumps(found['name'])}",
        f"    version: {json.dumps(found['version'])}",
    ]
    if arguments:
        lines.append(f"    args: {json.dumps(list(arguments))}")
    return "\n".join(lines) + "\n" + _ENVIRONMENT, found["name"].rpartition("/")[2].partition("[")[0]


def _command(wish: Wish) -> tuple[str, str]:
    try:
        words = shlex.split(wish.command)
    except ValueError as error:
        raise Mistake(f"--command {wish.command!r}: {error}") from None
    if not words:
        raise Mistake("--command: a command is missing")
    script = next((word for word in words[1:] if not word.startswith("-")), words[0])
    text = "\n".join(
        (
            "  # A cluster runs the command in this image; choose one that has it.",
            '  image: "python:3.13-slim"',
            f"  command: {json.dumps(words)}",
            "  transport: stdio",
        )
    )
    return text + "\n" + _ENVIRONMENT, script.rpartition("/")[2].partition(".")[0]
