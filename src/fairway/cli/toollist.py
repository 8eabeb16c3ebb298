"""`fairway tools SERVER`: the tools of a server as clients see them."""

import sys
from typing import Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.output import Format
from fairway.cli.where import Where, as_json, somewhere


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

    A server of this machine, or one given as a URL, is asked itself. Of one in a cluster the operator's list is shown:
    names only. Exit codes: 0 listed, 1 they are not known yet, 2 could not ask.
    """
    if server.startswith(("http://", "https://")):
        return _print(await _asked(server, header or (), timeout), output)
    from fairway.cli.found import the_object
    from fairway.cli.servers import headers_of

    async with where.place() as place:
        kind, obj = await the_object(place, server)
        if kind.kind != "MCPServer":
            raise Mistake(f"a {kind.kind} has no tools; name an MCPServer")
        status = obj.get("status") or {}
        if place.is_local and status.get("url"):
            own = [f"{name}: {value}" for name, value in headers_of(server, where.state_dir).items()]
            return _print(await _asked(status["url"], [*own, *(header or ())], timeout), output)
        known = status.get("tools")
    if known is None:
        condition: dict[str, Any] = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
        said = condition.get("message") or "the operator has not asked it yet"
        print(f"fairway tools: not known yet: {said}", file=sys.stderr)
        return 1
    hidden = known["count"] - len(known.get("names") or ())
    code = _print([{"name": name} for name in known.get("names") or ()], output)
    if hidden and output in ("table", "wide"):
        print(f"and {hidden} more")
    return code


async def _asked(url: str, headers: Any, timeout: float) -> list[dict[str, Any]]:
    from fairway.cli.call import header_of
    from fairway.mcp.client import McpClient, McpError
    from fairway.mcp.http import HttpClient, HttpError, InvalidUrl, Limits

    http = HttpClient(limits=Limits(answer=timeout))
    try:
        async with McpClient.connect(url, http=http, headers=dict(map(header_of, headers))) as client:
            return [tool.decoded() for tool in (await client.list_tools()).tools]
    except (HttpError, McpError, InvalidUrl) as error:
        raise Mistake(f"{url}: {error}") from None
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
