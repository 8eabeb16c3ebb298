"""An MCP server with everything the conformance suite asks for: `python -m tests.conformance.fixture_server PORT`."""

import asyncio
import itertools
import json
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from mcp import types
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    SubscriptionBus,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from tests.conformance import fixture_content as content
from tests.conformance.fixture_rounds import ROUNDS, capable_round, prompt_round

Context = ServerRequestContext[Any, Any]
NAME = "conformance-fixture"


class Memory(EventStore):
    """Events of the session era, kept so that a client that was cut off can have the rest."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if not last_event_id.isdigit() or not 0 < int(last_event_id) <= len(self._events):
            return None
        stream = self._events[int(last_event_id) - 1][0]
        for number, (one, message) in enumerate(self._events, 1):
            if number > int(last_event_id) and one == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Tools:
    """The tools that do something. Each method is one, and its docstring its description."""

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus

    async def test_tool_with_logging(self, ctx: Context, _: types.CallToolRequestParams) -> types.CallToolResult:
        """Logs three times."""
        for number, words in enumerate(("Tool execution started", "Tool processing data", "Tool execution completed")):
            await asyncio.sleep(0.05 if number else 0)
            await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
        return content.said("Logged.")

    async def test_logging_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Logs, where the client wants it."""
        return await self.test_tool_with_logging(ctx, params)

    async def test_tool_with_progress(self, ctx: Context, _: types.CallToolRequestParams) -> types.CallToolResult:
        """Reports its progress."""
        for done in (0, 50, 100):
            await asyncio.sleep(0.05 if done else 0)
            await ctx.session.report_progress(done, 100)
        return content.said("Progressed.")

    async def test_sampling(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Asks the client's model."""
        question = content.text(str((params.arguments or {}).get("prompt", "")))
        answer = await ctx.session.create_message(
            [types.SamplingMessage(role="user", content=question)], max_tokens=100, related_request_id=ctx.request_id
        )
        return content.said(f"LLM response: {getattr(answer.content, 'text', answer.content)}")

    async def test_elicitation(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Asks the user."""
        return await self._form(ctx, str((params.arguments or {}).get("message", "")), content.DETAILS_FORM)

    async def test_elicitation_sep1034_defaults(
        self, ctx: Context, _: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Asks the user, with a default for everything."""
        return await self._form(ctx, "Please review", content.DEFAULTS_FORM)

    async def test_elicitation_sep1330_enums(
        self, ctx: Context, _: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Lets the user choose."""
        return await self._form(ctx, "Please choose", content.ENUMS_FORM)

    async def _form(self, ctx: Context, message: str, form: dict[str, Any]) -> types.CallToolResult:
        answer = await ctx.session.elicit_form(message, form, related_request_id=ctx.request_id)
        return content.said(f"User response: action={answer.action}, content={json.dumps(answer.content or {})}")

    async def test_reconnection(self, ctx: Context, _: types.CallToolRequestParams) -> types.CallToolResult:
        """Cuts the client off in the middle, and answers when it is back."""
        await asyncio.sleep(0.2)  # the event that tells the client where to go on has to be out first
        if ctx.close_sse_stream is not None:
            await ctx.close_sse_stream()
        await asyncio.sleep(0.1)
        return content.said("Back again.")

    async def test_missing_capability(self, ctx: Context, _: types.CallToolRequestParams) -> types.CallToolResult:
        """Needs a client that can sample."""
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            needed = types.ClientCapabilities(sampling=types.SamplingCapability())
            data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "sampling is needed",
                data.model_dump(mode="json", by_alias=True, exclude_none=True),
            )
        return content.said("The client can sample.")

    async def test_trigger_tool_change(self, _: Context, __: types.CallToolRequestParams) -> types.CallToolResult:
        """Says that the tools have changed."""
        await self._bus.publish(ToolsListChanged())
        return content.said("Told.")

    async def test_trigger_prompt_change(self, _: Context, __: types.CallToolRequestParams) -> types.CallToolResult:
        """Says that the prompts have changed."""
        await self._bus.publish(PromptsListChanged())
        return content.said("Told.")

    async def test_input_required_result_capabilities(
        self, ctx: Context, _: types.CallToolRequestParams
    ) -> types.InputRequiredResult:
        """Asks only for what the client can give."""
        return capable_round(ctx.session.client_capabilities)

    async def test_x_mcp_header(self, _: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Wants its region in a header too."""
        return content.said(f"region={(params.arguments or {}).get('region')}")

    async def greet(self, _: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Greets; the scenarios about tasks use it as the one that needs none."""
        return content.said(f"Hello, {(params.arguments or {}).get('name', 'world')}!")

    async def slow_compute(self, _: Context, __: types.CallToolRequestParams) -> types.CallToolResult:
        """Answers at once, as a server without tasks may."""
        return content.said("Computed.")

    async def json_schema_2020_12_tool(self, _: Context, __: types.CallToolRequestParams) -> types.CallToolResult:
        """Tool with JSON Schema 2020-12 features"""
        return content.said("Called.")


Handler = Callable[[Context, types.CallToolRequestParams], Awaitable[types.CallToolResult | types.InputRequiredResult]]


class Fixture:
    """The handlers of the server."""

    def __init__(self, bus: SubscriptionBus) -> None:
        tools = Tools(bus)
        self._doing: dict[str, Handler] = {
            name: getattr(tools, name) for name in vars(Tools) if not name.startswith("_")
        }

    async def list_tools(self, _: Context, __: Any) -> types.ListToolsResult:
        described = {name: handler.__doc__ or "" for name, handler in self._doing.items()}
        # the suite calls the first one without arguments
        names = itertools.chain(content.FIXED_RESULTS, described, ROUNDS)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=described.get(name, f"Fixture for {name}."),
                    input_schema=content.INPUT_SCHEMAS.get(name, content.NOTHING),
                )
                for name in names
            ]
        )

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name in content.FIXED_RESULTS:
            return content.FIXED_RESULTS[params.name]
        if params.name in ROUNDS:
            return ROUNDS[params.name](params.input_responses or {}, params.request_state)
        if params.name in self._doing:
            return await self._doing[params.name](ctx, params)
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")

    async def list_resources(self, _: Context, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=content.RESOURCES)

    async def list_templates(self, _: Context, __: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=content.TEMPLATES)

    async def read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        found = content.read(str(params.uri))
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": str(params.uri)})
        return types.ReadResourceResult(contents=[found])

    async def subscribe(self, _: Context, __: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def list_prompts(self, _: Context, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=content.PROMPTS)

    async def get_prompt(
        self, _: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        if params.name == "test_input_required_result_prompt":
            return prompt_round(params.input_responses or {})
        found = content.prompt(params.name, params.arguments or {})
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return found

    async def complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))

    async def set_level(self, _: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()


def application() -> Starlette:
    bus = InMemorySubscriptionBus()
    fixture = Fixture(bus)
    cached = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    server: Server[Any] = Server(
        NAME,
        version="1.0.0",
        cache_hints={method: CacheHint(ttl_ms=1000, scope="public") for method in cached},
        on_list_tools=fixture.list_tools,
        on_call_tool=fixture.call_tool,
        on_list_resources=fixture.list_resources,
        on_list_resource_templates=fixture.list_templates,
        on_read_resource=fixture.read_resource,
        on_subscribe_resource=fixture.subscribe,
        on_unsubscribe_resource=fixture.subscribe,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=fixture.list_prompts,
        on_get_prompt=fixture.get_prompt,
        on_completion=fixture.complete,
        on_set_logging_level=fixture.set_level,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server.streamable_http_app(event_store=Memory(), retry_interval=50)


class Announced(uvicorn.Server):
    """Prints its URL when it is ready to answer."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            print(f"http://127.0.0.1:{one.getsockname()[1]}/mcp", flush=True)


def main(port: int) -> None:
    logging.basicConfig(level=logging.ERROR)
    listening = socket.create_server(("127.0.0.1", port))
    # h11 strips blanks around header values, as the suite demands; httptools leaves those behind
    config = uvicorn.Config(application(), http="h11", log_level="error", timeout_graceful_shutdown=1)
    Announced(config).run(sockets=[listening])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
