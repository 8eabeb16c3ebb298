import json

import msgspec

from fairway.api.toolview import Presented, ToolView
from fairway.mcp.client import Offered, Tool, ToolList
from fairway.mcp.offer import named, present_tool, summarise


def tool(name, **more):
    return Tool(name, msgspec.json.encode({"name": name, "inputSchema": {}, **more}))


def listed(*names):
    return ToolList(tuple(tool(name) for name in names))


def presented(given, **override):
    view = ToolView(presented={"a": Presented(**override)})
    return json.loads(present_tool(given.raw, view))


def test_hints_are_merged_into_those_of_the_server():
    told = presented(
        tool("a", annotations={"readOnlyHint": False, "idempotentHint": True}),
        annotations={"readOnlyHint": True, "destructiveHint": False},
    )
    assert told["annotations"] == {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}


def test_a_title_is_told_wherever_a_client_may_look_for_it():
    told = presented(tool("a", title="old", annotations={"title": "old"}), annotations={"title": "New"})
    assert (told["title"], told["annotations"]["title"]) == ("New", "New")


def test_a_tool_without_annotations_gets_them():
    assert presented(tool("a"), annotations={"openWorldHint": False})["annotations"] == {"openWorldHint": False}
    nothing = Tool("a", b'{"name": "a", "inputSchema": {}, "annotations": null}')
    assert presented(nothing, annotations={"openWorldHint": False})["annotations"] == {"openWorldHint": False}


def test_a_tool_that_nobody_changes_passes_byte_for_byte():
    raw = b'{ "name":"a",  "x": 1.50 }'
    assert present_tool(raw, ToolView()) is raw


def test_an_unknown_name_comes_with_the_tool_that_it_may_have_been_meant_for():
    told = summarise(listed("get_forecast", "radar"), "", ToolView(allowed=frozenset({"get_forcast", "zzz", "get_*"})))
    assert told.unknown == ("get_forcast", "zzz")
    assert told.nearest == {"get_forcast": "get_forecast"}


def test_resources_and_prompts_are_counted_and_the_first_hundred_named():
    assert named(None) is None
    told = named(Offered(tuple(f"file:///{n:03}" for n in reversed(range(150)))))
    assert (told.count, len(told.names), told.names[0]) == (150, 100, "file:///000")
