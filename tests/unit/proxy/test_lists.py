"""Lists of tools: filtered and renamed, everything else byte for byte as the server wrote it."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairway.api.toolview import Presented, ToolView
from fairway.mcp.sse import parse_event
from fairway.proxy.lists import EventRewriter, JsonRewriter, Lists, UnreadableList, rewrite_message

ONLY_ADD = Lists(ToolView(allowed=frozenset({"add"})))
RENAMED = Lists(ToolView(presented={"add": Presented(name="sum", description="Sums two")}))

SCHEMA = (
    b'{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"N":{"$anchor":"n","type":"number"}},'
    b'"type":"object","properties":{"a":{"$ref":"#/$defs/N","x-mcp-header":"A"}},'
    b' "examples":[1.10, 1e400, 123456789012345678901234567890]}'
)
ADD = (
    b'{"name":"add","title":"Add","description":"Adds \\u00fc","inputSchema":' + SCHEMA + b',"x-vendor":{"k": [1,  2]}}'
)
SUB = b'{"name":"sub","inputSchema":{"type":"object"}}'


def message(*tools: bytes, rest: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":{"tools":[' + b",".join(tools) + b"]" + rest + b"}}"


def test_a_hidden_tool_is_taken_out_and_the_others_are_untouched():
    assert rewrite_message(message(ADD, SUB), ONLY_ADD) == message(ADD)


def test_a_renamed_tool_keeps_everything_but_name_and_description():
    rewritten = rewrite_message(message(ADD), RENAMED)
    assert rewritten == message(ADD.replace(b'"add"', b'"sum"').replace(b'"Adds \\u00fc"', b'"Sums two"'))


def test_a_description_is_added_where_the_server_gave_none():
    view = Lists(ToolView(presented={"sub": Presented(description="Subtracts")}))
    tool = msgspec.json.decode(rewrite_message(message(SUB), view))["result"]["tools"][0]
    assert tool == {"name": "sub", "inputSchema": {"type": "object"}, "description": "Subtracts"}


def test_cursors_and_unknown_members_survive_and_the_list_is_private_from_here_on():
    rest = b',"nextCursor":"p2","ttlMs":300000,"cacheScope":"public","resultType":"complete","_meta":{"a": 1.0}'
    assert rewrite_message(message(SUB, rest=rest), ONLY_ADD) == message(rest=rest.replace(b"public", b"private"))


def test_an_empty_filter_leaves_no_tools():
    assert rewrite_message(message(ADD, SUB), Lists(ToolView(allowed=frozenset()))) == message()


@pytest.mark.parametrize(
    "other",
    [
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"tools"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"tools"}]}}',
        b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
    ],
)
def test_other_messages_pass_as_they_are(other):
    assert rewrite_message(other, ONLY_ADD) is None


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"no json",
        message(b'{"title":"nameless"}'),
        message(b'{"name":5}'),
        message(b'"add"'),
        b'{"result":{"tools":{"add":{}}}}',
        b'{"result":{"tools":null}}',
        message(b"[" * 50_000 + b"]" * 50_000),
    ],
)
def test_what_cannot_be_read_does_not_pass(broken):
    with pytest.raises(UnreadableList):
        rewrite_message(broken, ONLY_ADD)


def test_a_json_answer_comes_out_at_the_end():
    rewriter = JsonRewriter(ONLY_ADD)
    body = message(ADD, SUB)
    assert rewriter.feed(body[:40]) == b""
    assert rewriter.feed(body[40:]) == b""
    assert rewriter.end() == message(ADD)


def test_an_empty_body_is_no_list():
    assert JsonRewriter(ONLY_ADD).end() == b""


STREAM = (
    b": hello\n\n"
    b"event: message\r\nid: 1\r\n"
    b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\\"tools\\""}}\r\n\r\n'
    b"id: 2\nretry: 100\ndata: " + message(ADD, SUB) + b"\n\n"
    b"data: last\r\r"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
@example([121, 121])
def test_a_stream_is_rewritten_alike_however_it_is_cut(cuts):
    rewriter = EventRewriter(ONLY_ADD)
    edges = [0, *sorted(cuts), len(STREAM)]
    out = b"".join(rewriter.feed(STREAM[a:b]) for a, b in pairwise(edges)) + rewriter.end()
    assert out == STREAM.replace(
        b"id: 2\nretry: 100\ndata: " + message(ADD, SUB) + b"\n\n",
        b"id: 2\r\nretry: 100\r\ndata: " + message(ADD) + b"\r\n\r\n",
    )


def test_each_event_passes_as_soon_as_it_is_complete():
    rewriter = EventRewriter(ONLY_ADD)
    assert rewriter.feed(b"data: {}\n") == b""
    assert rewriter.feed(b"\ndata: {") == b"data: {}\n\n"


def test_a_message_over_several_data_lines_stays_one_message():
    lines = message(ADD, SUB).replace(b",", b",\ndata: ")
    rewriter = EventRewriter(ONLY_ADD)
    event = rewriter.feed(b"data: " + lines + b"\n\n")
    shown = json.loads(parse_event(event).data)["result"]["tools"]
    assert [tool["name"] for tool in shown] == ["add"]


def test_an_event_that_never_ends_does_not_pass():
    rewriter = EventRewriter(ONLY_ADD)
    rewriter.feed(b"data: " + message(ADD, SUB) + b"\n")
    assert rewriter.end() == b""
