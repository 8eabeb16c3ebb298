"""A client for the suite's client scenarios: `scenario_client CLIENT WAY URL` plays the scenario that the environment
names, with the SDK's client or with our own, directly or through `fairway proxy`, and prints how each call went.

Scenarios about how a client gets a token are left out: no token of a client ever passes this proxy.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

LEFT_OUT = "auth/"
MODERN = "2026-07-28"
Tools = Mapping[str, Mapping[str, Any]]
"""Input schemas by the tool's name."""
Call = Callable[[str, Mapping[str, Any]], Awaitable[object]]


def arguments_for(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The simplest arguments that fit."""
    examples = {"string": "x", "integer": 1, "number": 1, "boolean": True, "object": {}, "array": [], "null": None}
    properties = schema.get("properties", {})
    return {name: examples[properties[name].get("type", "object")] for name in schema.get("required", ())}


async def use(tools: Tools, call: Call, scenario: str, context: Mapping[str, Any]) -> None:
    """Calls what the scenario wants called, else every tool once. A call that fails ends nothing."""
    if "toolCalls" in context:
        wanted = [(one["name"], one["arguments"]) for one in context["toolCalls"]]
    elif scenario == "json-schema-2020-12-preservation":
        wanted = [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]})]
    elif scenario == "tools_call":
        wanted = [("add_numbers", {"a": 5, "b": 3})]
    else:
        wanted = [(name, arguments_for(schema)) for name, schema in tools.items()]
    for name, arguments in wanted:
        try:
            await call(name, arguments)
        except Exception as error:
            print(f"{name} {type(error).__name__}")
        else:
            print(f"{name} answered")


async def with_sdk(url: str, version: str, scenario: str, context: Mapping[str, Any]) -> None:
    import mcp_types as types
    from mcp import Client

    async def accept(_: object, asked: Any) -> types.ElicitResult:
        """Answers with the defaults of the form."""
        fields = asked.requested_schema.get("properties", {})
        content = {name: field["default"] for name, field in fields.items() if "default" in field}
        return types.ElicitResult(action="accept", content=content)

    mode = "auto" if version == MODERN else "legacy"
    async with Client(url, mode=mode, elicitation_callback=accept) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        if scenario == "http-standard-headers":
            await client.list_resources()
            await client.read_resource("file:///path/to/file%20name.txt")
            await client.list_prompts()
            await client.get_prompt("test_prompt")
        await use(tools, client.call_tool, scenario, context)


async def with_own(url: str, version: str, scenario: str, context: Mapping[str, Any]) -> None:
    from fairway.mcp.client import McpClient
    from fairway.mcp.protocol import Era

    async with McpClient.connect(url, era=None if version == MODERN else Era.SESSION) as client:
        tools = {tool.name: tool.decoded()["inputSchema"] for tool in (await client.list_tools()).tools}

        async def call(name: str, arguments: Mapping[str, Any]) -> object:
            return await client.call(name, arguments, schema=tools.get(name))

        if scenario == "http-standard-headers":
            await client.request("resources/list")
            await client.request("resources/read", {"uri": "file:///path/to/file%20name.txt"})
            await client.request("prompts/list")
            await client.request("prompts/get", {"name": "test_prompt"})
        await use(tools, call, scenario, context)


def proxied(url: str) -> AbstractContextManager[str]:
    from tests.conformance.running import fairway_proxy

    return fairway_proxy(url)


def stripped(url: str) -> AbstractContextManager[str]:
    """Through a proxy that is wrong on purpose."""
    from tests.conformance.running import stripping_proxy

    return stripping_proxy(url)


@contextmanager
def guarded(url: str) -> Iterator[str]:
    """Through the proxy with everything on."""
    from tests.conformance.guarded import guarded_proxy

    with guarded_proxy(url) as front:
        yield front.url


CLIENTS = {"sdk": with_sdk, "own": with_own}
WAYS = {"direct": nullcontext, "proxied": proxied, "guarded": guarded, "stripped": stripped}


def main(client: str, way: str, url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if scenario.startswith(LEFT_OUT):
        return
    version = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with WAYS[way](url) as where:
        asyncio.run(CLIENTS[client](where, version, scenario, context))


if __name__ == "__main__":
    main(*sys.argv[1:])
