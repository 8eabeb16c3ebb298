"""A Python function as an MCP tool: checked arguments in, a result out, and no exception past this point."""

import asyncio
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from fairway.mcp.server import Tool, ToolResult, tool_error
from fairway.tools.arguments import Arguments, InvalidArgumentsError, UnsupportedSignatureError
from fairway.tools.docstring import parse_docstring
from fairway.tools.returned import BrokenPromiseError, Returned
from fairway.tools.threads import ThreadPool

log = logging.getLogger("fairway.tools")


class _Later(typing.NamedTuple):
    """A plain function gave back something to await: a decorator around a coroutine function does that."""

    awaitable: Awaitable[Any]


Outcome = ToolResult | _Later


def function_tool(name: str, function: Callable[..., Any], pool: ThreadPool[Outcome]) -> Tool:
    """Raises UnsupportedSignatureError where a type cannot be described to clients."""
    inner = inspect.unwrap(function)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise UnsupportedSignatureError("a tool answers once, so it cannot yield; return a list instead")
    docstring = parse_docstring(inspect.getdoc(function))
    hints = _hints(inner)
    arguments = Arguments(function, hints, docstring)
    body = _Body(name, function, arguments, Returned(hints.get("return", Any)))
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    return Tool(
        name=name,
        call=body.awaited if is_async else _in_thread(body, pool),
        input_schema=arguments.schema,
        output_schema=body.returned.schema,
        description=docstring.text or None,
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations are the user's expressions: evaluating them may raise anything
        raise UnsupportedSignatureError(f"its annotations cannot be read: {type(error).__name__}: {error}") from None


def _in_thread(body: "_Body", pool: ThreadPool[Outcome]) -> Callable[[bytes], Awaitable[ToolResult]]:
    async def call(arguments: bytes) -> ToolResult:
        outcome = await pool.submit(lambda: body.blocking(arguments))
        return await body.finish(outcome.awaitable) if isinstance(outcome, _Later) else outcome

    return call


class _Body:
    """The function with what goes before and after it."""

    def __init__(self, name: str, function: Callable[..., Any], arguments: Arguments, returned: Returned) -> None:
        self._name = name
        self._function = function
        self._arguments = arguments
        self.returned = returned

    def blocking(self, sent: bytes) -> Outcome:
        try:
            positional, named = self._arguments.bind(sent)
            value = self._function(*positional, **named)
            return _Later(value) if inspect.isawaitable(value) else self.returned.result(value)
        except BaseException as error:  # a tool may raise anything, SystemExit included, and must not end the server
            return self._failure(error)

    async def awaited(self, sent: bytes) -> ToolResult:
        try:
            positional, named = self._arguments.bind(sent)
            awaitable = self._function(*positional, **named)
        except BaseException as error:  # as above
            return self._failure(error)
        return await self.finish(awaitable)

    async def finish(self, awaitable: Awaitable[Any]) -> ToolResult:
        try:
            return self.returned.result(await awaitable)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._failure(error)  # the tool's own: a task inside it was cancelled
        except BaseException as error:  # as above
            return self._failure(error)

    def _failure(self, error: BaseException) -> ToolResult:
        if isinstance(error, InvalidArgumentsError | BrokenPromiseError):
            return tool_error(f"{self._name}: {error}")
        log.error("tool %s failed", self._name, exc_info=error)
        return tool_error(f"{type(error).__name__}: {_text(error)}".removesuffix(": "))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # even this is the user's code
        return ""
