"""Sources written to a file and loaded as the server loads them."""

import json
import sys
from textwrap import dedent

import pytest

from fairway.mcp.server import Tool
from fairway.tools.main import load
from fairway.tools.source import MODULE_NAME, load_source
from fairway.tools.threads import ThreadPool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop(MODULE_NAME, None)


@pytest.fixture
def write(tmp_path):
    """Puts a source into a file and returns its path."""

    def write(text, name="tools.py"):
        path = tmp_path / name
        path.write_text(dedent(text).lstrip("\n"))
        return path

    return write


@pytest.fixture
def loaded(write):
    """The executed source of a text."""
    return lambda text: load_source(write(text))


@pytest.fixture
def tools(write):
    """The tools of a text, by name."""

    def tools(text) -> dict[str, Tool]:
        return load(write(text), pool=ThreadPool(size=4)).tools

    return tools


@pytest.fixture
def call():
    """Calls a tool as the server does, and checks that what it says is consistent."""

    async def call(tool: Tool, arguments=None, /, **named):
        sent = (
            arguments
            if isinstance(arguments, bytes)
            else json.dumps(named if arguments is None else arguments).encode()
        )
        result = await tool.call(sent)
        assert (result.structured is not None) == (tool.output_schema is not None and not result.is_error)
        return Said(result)

    return call


class Said:
    """A result, read back from the wire."""

    def __init__(self, result):
        self.failed = result.is_error
        self.texts = [block["text"] for block in result.content]
        self.text = "\n".join(self.texts)
        self.value = None if result.structured is None else json.loads(bytes(result.structured))
