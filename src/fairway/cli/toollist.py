"""`fairway tools SERVER`: the tools of a server as clients see them."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.output import Format
from fairway.cli.where import Where, as_json, somewhere

if TYPE_CHECKING:
    from fairway.cli.address import Way


def main(arguments: list[str]) -> int:
    return typed.run(tools, arguments, verb="tools")


@somewhere
async def tools(
    where: Where,
    server: Annotated[str, typer.Argument(help="Name of a server, or a URL.")],
    output: Annotated[Format, typer.Option("--output", "-o", help="json and yaml have the schemas too.")] = "table",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Sent with every request.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 30.0,
) -> int:
    """Lists the tools of a server: fairway tools hello

    The server itself is asked. Where that cannot be in a cluster, the operator's list is shown: names only.
    Exit codes: 0 listed, 1 they are not known yet, 2 could not ask.
    """
    from fairway.cli.address import Way, is_url, way_to
    from fairway.cli.found import the_object
    from fairway.cli.servers import headers_of

    if is_url(server):
        return _print(await _asked(Way(server), header or (), timeout), output)
    async with where.place() as place:
        kind, obj = await the_object(place, server)
        if kind.kind != "MCPServer":
            raise Mistake(f"a {kind.kind} has no tools; name an MCPServer")
        status = obj.get("status") or {}
        if place.is_local and status.get("url"):
            own = headers_of(server, where.state_dir)
            return _print(await _asked(Way(status["url"], own), header or (), timeout), output)
        known = status.get("tools")
    if known is None:
        condition: dict[str, Any] = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
        said = condition.get("message") or "the operator has not asked it yet"
        print(f"fairway tools: not known yet: {said}", file=sys.stderr)
        return 1
    try:
        return _print(await _asked(await way_to(where, server), header or (), timeout), output)
    except Mistake as mistake:
        print(f"fairway tools: the operator's list, names only: {mistake}", file=sys.stderr)
    hidden = known["count"] - len(known.get("names") or ())
    code = _print([{"name": name} for name in known.get("names") or ()], output)
    if hidden and output in ("table", "wide"):
        print(f"and {hidden} more")
    return code


async def _asked(way: "Way", headers: Any, timeout: float) -> list[dict[str, Any]]:
    from fairway.cli.call import header_of
    from fairway.mcp.client import McpClient, McpError
    from fairway.mcp.http import HttpError, InvalidUrl

    given = {**way.headers, **dict(map(header_of, headers))}
    http = way.client(timeout=timeout)
    try:
        async with McpClient.connect(way.url, http=http, headers=given) as client:
            return [tool.decoded() for tool in (await client.list_tools()).tools]
    except (HttpError, McpError, InvalidUrl) as error:
        raise Mistake(f"{way.url}: {error}") from None
    finally:
        await http.aclose()


def _print(tools: list[dict[str, Any]], output: Format) -> int:
    from fairway.api.crd import to_yaml
    from fairway.cli.call import listing

    match output:
        case "json":
            print(as_json(tools))
        case "yaml":
            print(to_yaml({"tools": tools}), end="")
        case "name":
            print(*(tool["name"] for tool in tools), sep="\n", end="\n" if tools else "")
        case _:
            print(listing({tool["name"]: tool for tool in tools}))
    return 0
