"""Functions as tools: whatever they do, the caller gets a result and the server lives."""

import asyncio
import threading

import pytest

from fairway.tools.function_tool import function_tool
from fairway.tools.source import SourceError
from fairway.tools.threads import ThreadPool

pytestmark = pytest.mark.anyio

OUTCOMES = """
    import asyncio, sys

    def value(x): return x
    async def avalue(x): return x
    def error(x): raise ValueError("no such city")
    async def aerror(x): raise ValueError("no such city")
    def silent(x): raise KeyError
    async def asilent(x): raise KeyError
    def end(x): sys.exit(3)
    async def aend(x): sys.exit(3)
    def interrupt(x): raise KeyboardInterrupt
    async def ainterrupt(x): raise KeyboardInterrupt
    def stop(x): raise StopIteration
    async def acancel(x): raise asyncio.CancelledError("by itself")
    async def achild(x):
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
    def overflow(x): return overflow(x)
    def lie(x) -> int: return "x"
    async def alie(x) -> int: return "x"
    def unprintable(x):
        class Odd(Exception):
            def __str__(self): raise RuntimeError
        raise Odd
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("error", "ValueError: no such city"),
        ("silent", "KeyError"),
        ("end", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("stop", "StopIteration"),
        ("acancel", "CancelledError: by itself"),
        ("achild", "CancelledError"),
        ("overflow", "RecursionError: maximum recursion depth exceeded"),
        ("lie", "lie: it returned str, which is not what it declares: value: Input should be a valid integer"),
        ("unprintable", "Odd"),
    ],
)
async def test_whatever_a_tool_raises_is_a_result(tools, call, name, said, capfd):
    served = tools(OUTCOMES)
    for one in [name, *([f"a{name}"] if f"a{name}" in served else [])]:
        result = await call(served[one], x=1)
        assert result.failed
        assert result.text.removeprefix("a").startswith(said)
        assert "Traceback" not in result.text
        assert "function_tool" not in result.text
    assert not (await call(served["value"], x=1)).failed


async def test_the_traceback_is_in_the_log_and_a_callers_mistake_is_not(tools, call, caplog):
    served = tools(OUTCOMES)
    await call(served["value"])
    assert not caplog.records
    await call(served["error"], x=1)
    (record,) = caplog.records
    assert record.getMessage() == "tool error failed"
    assert "no such city" in caplog.text
    assert "tools.py" in caplog.text


@pytest.mark.parametrize("name", ["value", "avalue"])
async def test_arguments_are_checked_before_the_call(tools, call, name):
    served = tools(OUTCOMES)
    assert (await call(served[name])).text == f"{name}: argument 'x' is missing"
    assert (await call(served[name], b"[1]")).failed
    assert (await call(served[name], x={"a": 1})).text == '{"a":1}'


async def test_a_tool_may_print(tools, call, capfd):
    served = tools('def loud() -> str:\n    print("hello")\n    return "done"')
    assert (await call(served["loud"])).text == "done"
    assert capfd.readouterr().out == "hello\n"


async def test_a_function_that_blocks_blocks_nobody_else(tools, call):
    served = tools(
        """
        import threading
        meeting = threading.Barrier(4)
        def _unused(): ...
        def block() -> bool:
            meeting.wait(5)
            return True
        async def quick() -> int: return 1
        """
    )
    blocked = [asyncio.create_task(call(served["block"])) for _ in range(3)]
    assert (await call(served["quick"])).value == {"result": 1}
    assert not any(task.done() for task in blocked)
    blocked.append(asyncio.create_task(call(served["block"])))
    assert [(await task).value for task in blocked] == [{"result": True}] * 4


async def test_cancelling_reaches_an_async_tool(tools, call):
    served = tools(
        """
        import asyncio
        events = []
        async def wait():
            events.append("began")
            try:
                await asyncio.sleep(60)
            finally:
                events.append("cancelled")
        def seen() -> list[str]: return events
        """
    )
    task = asyncio.ensure_future(served["wait"].call(b"{}"))
    while (await call(served["seen"])).value != {"result": ["began"]}:
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await call(served["seen"])).value == {"result": ["began", "cancelled"]}


async def test_cancelling_takes_a_waiting_function_out_of_the_queue():
    go, ran = threading.Event(), []
    pool = ThreadPool(size=1)
    first = function_tool("first", lambda: go.wait(5), pool)
    second = function_tool("second", lambda: ran.append(2), pool)
    running, waiting = (asyncio.ensure_future(one.call(b"{}")) for one in (first, second))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    go.set()
    assert not (await running).is_error
    await pool.submit(lambda: None)
    assert ran == []


async def test_a_decorator_may_turn_a_coroutine_function_into_a_plain_one(tools, call):
    served = tools(
        """
        import asyncio, functools
        def _traced(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper

        @_traced
        async def add(a: int, b: int = 1) -> int:
            '''Adds.'''
            await asyncio.sleep(0)
            return a + b

        @_traced
        def sub(a: int, b: int = 1) -> int: return a - b

        @functools.lru_cache
        def cached(a: int) -> int: return a
        """
    )
    assert served["add"].description == "Adds."
    assert served["add"].input_schema["required"] == ["a"]
    assert (await call(served["add"], a=2)).value == {"result": 3}
    assert (await call(served["sub"], a=2)).value == {"result": 1}
    assert (await call(served["cached"], a=2)).value == {"result": 2}


async def test_functions_use_each_other_and_the_modules_state(tools, call):
    served = tools(
        """
        from __future__ import annotations
        import math
        from typing import TypedDict, NamedTuple
        from dataclasses import dataclass

        class Box(TypedDict, total=False):
            width: float

        class Pair(NamedTuple):
            a: int
            b: int

        @dataclass
        class Tree:
            value: int
            below: list[Tree] | None = None

        total = 0
        def _half(x): return x / 2
        def area(box: Box) -> float: return _half(box.get("width", math.pi))
        def depth(tree: Tree) -> int: return 1 + max((depth(t) for t in tree.below or []), default=0)
        def swap(pair: Pair) -> Pair: return Pair(pair.b, pair.a)
        def more() -> int:
            global total
            total += 1
            return total
        """
    )
    assert (await call(served["area"], box={"width": 3})).value == {"result": 1.5}
    assert (await call(served["depth"], tree={"value": 1, "below": [{"value": 2}]})).value == {"result": 2}
    assert (await call(served["swap"], pair=[1, 2])).value == {"result": [2, 1]}
    assert [(await call(served["more"])).value["result"] for _ in range(2)] == [1, 2]


BROKEN = {
    "def f(*values: int): ...": "f(): a tool's arguments have names, so it cannot take *values: int; fix it, or start",
    "def f():\n    yield 1": "f(): a tool answers once, so it cannot yield; return a list instead",
    "async def f():\n    yield 1": "f(): a tool answers once",
    "class Db: ...\ndef f(db: Db): ...": "f(): argument 'db': Db cannot be described as JSON",
    "class Db: ...\ndef f() -> Db: ...": "f(): the return type: Db cannot be described as JSON",
    'def f(a: "Nowhere"): ...': "f(): its annotations cannot be read: NameError: name 'Nowhere' is not defined",
    "from typing import Annotated\nfrom pydantic import Field\n"
    'def f(a: Annotated[float, Field(json_schema_extra={"x-mcp-header": "A"})]): ...': "f(): tool f: x-mcp-header of a",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_function_that_can_be_no_tool_is_told_with_its_line(tools, text):
    with pytest.raises(SourceError) as caught:
        tools(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "def f" in one)
    assert str(caught.value).startswith(f"tools.py:{line}: {BROKEN[text]}")


async def test_a_tool_may_ask_for_a_header(tools):
    served = tools(
        """
        from typing import Annotated
        from pydantic import Field
        def near(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]): ...
        """
    )
    assert [one.header for one in served["near"].mirrored] == ["Mcp-Param-Region"]
