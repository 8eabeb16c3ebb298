"""`fairway call`: lists the tools of a server, or calls one."""

import json
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere

if TYPE_CHECKING:
    from fairway.cli.address import Way

_DESCRIPTION_WIDTH = 100


def main(arguments: list[str]) -> int:
    return typed.run(call, arguments, verb="call")


@somewhere
async def call(
    where: Where,
    server: Annotated[str, typer.Argument(help="Name of a server, or a URL.")],
    tool: Annotated[str | None, typer.Argument(help="Its tool; without one, the tools are listed.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="The tool's arguments.")] = None,
    given_json: Annotated[str | None, typer.Option("--json", metavar="OBJECT", help="All arguments as JSON.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the whole answer as JSON.")] = False,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Sent with every request.")
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Without the token that a server of this machine asks for.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 300.0,
) -> int:
    """Calls a tool of an MCP server, or lists its tools: fairway call hello add a=2 b=3

    A server of a cluster is asked where it is published, or through the API server. Exit codes: 0 the tool answered,
    1 the tool answered an error, 2 it could not be asked.
    """
    from fairway.cli.address import way_to
    from fairway.cli.arguments import InvalidArgument
    from fairway.mcp.client import McpError
    from fairway.mcp.http import HttpError, InvalidUrl

    try:
        given = dict(map(header_of, header or ()))
        way = await way_to(where, server, anonymous=anonymous)
        return await _ask(way, tool, arguments or [], given_json=given_json, raw=raw, headers=given, timeout=timeout)
    except (InvalidArgument, InvalidUrl) as error:
        raise Mistake(str(error)) from None
    except (HttpError, McpError) as error:
        raise Mistake(f"{server}: {error}") from None


async def _ask(
    way: "Way",
    tool: str | None,
    words: list[str],
    *,
    given_json: str | None,
    raw: bool,
    headers: Mapping[str, str],
    timeout: float,
) -> int:
    from fairway.cli.arguments import InvalidArgument, arguments_of
    from fairway.local.answer import text_of
    from fairway.mcp.client import McpClient

    http = way.client(timeout=timeout)
    try:
        async with McpClient.connect(way.url, http=http, headers={**way.headers, **headers}) as client:
            listed = await client.list_tools()
            tools = {t.name: t.decoded() for t in listed.tools}
            if tool is None:
                print(json.dumps(list(tools.values()), indent=2) if raw else listing(tools))
                return 0
            if tool in listed.unusable:
                raise InvalidArgument(f"{tool} must not be called: {listed.unusable[tool]}")
            if tool not in tools:
                close = get_close_matches(tool, tools, n=1)
                hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(tools) or 'none'}"
                raise InvalidArgument(f"the server has no tool {tool!r}{hint}")
            schema = tools[tool].get("inputSchema") or {}
            result = await client.call(tool, arguments_of(words, given_json, schema), schema=schema)
    finally:
        await http.aclose()
    failed = bool(result.get("isError"))
    print(
        json.dumps(result, indent=2) if raw else text_of(result), file=sys.stderr if failed and not raw else sys.stdout
    )
    return 1 if failed else 0


def header_of(text: str) -> tuple[str, str]:
    from fairway.cli.arguments import InvalidArgument

    name, separator, value = text.partition(":")
    if not separator or not name.strip() or not text.isprintable():
        raise InvalidArgument(f"--header {text!r}: expected 'Name: value'")
    return name.strip(), value.strip()


def listing(tools: Mapping[str, Mapping[str, Any]]) -> str:
    if not tools:
        return "the server has no tools"
    lines = []
    for name, described in tools.items():
        schema = described.get("inputSchema") or {}
        required = set(schema.get("required") or ())
        properties = schema.get("properties") or {}
        takes = ", ".join(p if p in required else f"{p}?" for p in properties)
        lines.append(f"{name}({takes})" if "inputSchema" in described else name)
        description = str(described.get("description") or "").strip().partition("\n")[0]
        if description:
            lines.append(f"    {_shortened(description)}")
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _DESCRIPTION_WIDTH else text[: _DESCRIPTION_WIDTH - 1] + "…"
