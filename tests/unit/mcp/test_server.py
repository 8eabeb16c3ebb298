"""The MCP server without I/O: exact statuses and codes in both eras, and hostile messages."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types
from mcp.shared import inbound

from fairway.mcp import protocol
from fairway.mcp.protocol import Era, ErrorCode, Header, Meta, Method
from fairway.mcp.server import Answer, Call, McpServer, Tool, ToolResult, text_block, tool_error

CALL = Method.TOOLS_CALL
MODERN = "2026-07-28"


async def never(_):
    raise AssertionError("the core does not call tools")


def tool(name="add", **schema):
    return Tool(name=name, call=never, input_schema={"type": "object", **schema})


SERVER = McpServer(
    name="sums",
    version="3",
    instructions="Adds.",
    tools=[
        Tool(
            name="add",
            description="Adds two numbers.",
            call=never,
            input_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
            output_schema={"type": "object", "properties": {"result": {"type": "integer"}}},
        ),
        tool("größe"),
        tool("near", properties={"region": {"type": "string", "x-mcp-header": "Region"}}),
    ],
)


def send(body, headers=None, server=SERVER):
    """The answer's status and message, or the call."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = server.receive({k.lower(): v for k, v in (headers or {}).items()}, raw)
    if isinstance(answer, Call):
        return answer
    assert isinstance(answer, Answer)
    return answer.status, json.loads(answer.body) if answer.body else None


def message(method, params=None, request_id=1):
    return {"jsonrpc": "2.0", "id": request_id, "method": str(method)} | ({} if params is None else {"params": params})


def in_session(method, params=None, request_id=1, version="2025-11-25"):
    return send(message(method, params, request_id), {} if version is None else {Header.PROTOCOL_VERSION: version})


META = protocol.request_meta(MODERN)


def modern(method, params=None, *, meta=META, headers=None, request_id=1, without=()):
    params = {**(params or {}), "_meta": meta}
    sent = protocol.request_headers(MODERN, method, params) | (headers or {})
    return send(message(method, params, request_id), {k: v for k, v in sent.items() if k not in without})


def code(answer):
    status, body = answer
    assert body["jsonrpc"] == "2.0"
    return status, body["error"]["code"]


# the session era


@pytest.mark.parametrize("version", protocol.SESSION_VERSIONS)
def test_initialize_agrees_on_the_revision_asked_for(version):
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    status, body = in_session(Method.INITIALIZE, params, version=None)
    assert status == 200
    result = types.InitializeResult.model_validate(body["result"])
    assert result.protocol_version == version
    assert (result.server_info.name, result.server_info.version) == ("sums", "3")
    assert result.capabilities.tools is not None
    assert result.capabilities.prompts is None
    assert result.instructions == "Adds."


@pytest.mark.parametrize("asked", ["2026-07-28", "1999-01-01", ""])
def test_initialize_offers_the_latest_session_revision_for_one_it_does_not_speak(asked):
    _, body = in_session(Method.INITIALIZE, {"protocolVersion": asked}, version=None)
    assert body["result"]["protocolVersion"] == "2025-11-25"


def test_initialize_without_a_revision_is_refused():
    assert code(in_session(Method.INITIALIZE, {}, version=None)) == (200, ErrorCode.INVALID_PARAMS)


@pytest.mark.parametrize("version", [None, *protocol.SESSION_VERSIONS])
def test_the_session_era_needs_no_header_and_no_session(version):
    assert in_session(Method.PING, version=version) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    _, body = in_session(Method.TOOLS_LIST, version=version)
    result = types.ListToolsResult.model_validate(body["result"])
    assert [one.name for one in result.tools] == ["add", "größe", "near"]
    assert set(body["result"]) == {"tools"}
    assert body["result"]["tools"][0]["outputSchema"]["properties"] == {"result": {"type": "integer"}}


def test_the_session_era_answers_200_to_what_it_does_not_know():
    assert code(in_session("resources/list")) == (200, ErrorCode.METHOD_NOT_FOUND)
    assert code(in_session(Method.DISCOVER)) == (200, ErrorCode.METHOD_NOT_FOUND)
    status, body = in_session(CALL, {"name": "nope"})
    assert (status, body["error"]) == (200, {"code": -32602, "message": "Unknown tool: nope"})


@pytest.mark.parametrize("posted", [{"result": {}}, {"error": {"code": 1, "message": "no"}}])
def test_answers_and_notifications_are_acknowledged_in_the_session_era(posted):
    assert send({"jsonrpc": "2.0", "id": 1} | posted) == (202, None)
    assert send({"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    assert send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}) == (202, None)


# the modern era


def test_discover_says_what_the_server_is():
    status, body = modern(Method.DISCOVER)
    assert status == 200
    result = types.DiscoverResult.model_validate(body["result"])
    assert result.supported_versions == [MODERN]
    assert result.capabilities.tools is not None
    assert result.instructions == "Adds."
    assert body["result"]["resultType"] == "complete"
    assert (body["result"]["ttlMs"], body["result"]["cacheScope"]) == (60_000, "public")
    assert body["result"]["_meta"][Meta.SERVER_INFO] == {"name": "sums", "version": "3"}


def test_the_list_says_how_long_it_may_be_kept():
    _, body = modern(Method.TOOLS_LIST)
    assert [one["name"] for one in body["result"]["tools"]] == ["add", "größe", "near"]
    assert (body["result"]["ttlMs"], body["result"]["cacheScope"]) == (60_000, "public")
    assert body["result"]["resultType"] == "complete"


def test_both_eras_list_the_same_tools():
    assert modern(Method.TOOLS_LIST)[1]["result"]["tools"] == in_session(Method.TOOLS_LIST)[1]["result"]["tools"]


def test_a_cursor_that_was_never_given_out_is_refused():
    assert code(modern(Method.TOOLS_LIST, {"cursor": "x"})) == (400, ErrorCode.INVALID_PARAMS)
    assert code(in_session(Method.TOOLS_LIST, {"cursor": "x"})) == (200, ErrorCode.INVALID_PARAMS)


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "subscriptions/listen", "x"]
)
def test_what_the_modern_era_does_not_have_is_not_found(method):
    assert code(modern(method)) == (404, ErrorCode.METHOD_NOT_FOUND)


def test_an_unknown_tool_is_a_protocol_error():
    status, body = modern(CALL, {"name": "nope"})
    assert (status, body["error"]) == (400, {"code": -32602, "message": "Unknown tool: nope"})


VERSION, CAPABILITIES = Meta.PROTOCOL_VERSION.value, Meta.CLIENT_CAPABILITIES.value
MODERN_REFUSALS = {
    "no meta": (ErrorCode.INVALID_PARAMS, {"meta": None}),
    "meta is a list": (ErrorCode.INVALID_PARAMS, {"meta": []}),
    "meta without version": (ErrorCode.INVALID_PARAMS, {"meta": {CAPABILITIES: {}}}),
    "meta without capabilities": (ErrorCode.INVALID_PARAMS, {"meta": {VERSION: MODERN}}),
    "capabilities are no object": (ErrorCode.INVALID_PARAMS, {"meta": {VERSION: MODERN, CAPABILITIES: "all"}}),
    "no version header": (ErrorCode.HEADER_MISMATCH, {"without": [Header.PROTOCOL_VERSION]}),
    "no method header": (ErrorCode.HEADER_MISMATCH, {"without": [Header.METHOD]}),
    "no name header": (ErrorCode.HEADER_MISMATCH, {"without": [Header.NAME]}),
    "other method": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.METHOD: "tools/list"}}),
    "method in capitals": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.METHOD: "Tools/Call"}}),
    "method twice": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.METHOD: "tools/call, tools/call"}}),
    "other name": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.NAME: "sub"}}),
    "broken encoded name": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.NAME: "=?base64?%%?="}}),
    "header says session era": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.PROTOCOL_VERSION: "2025-11-25"}}),
    "header says the future": (ErrorCode.HEADER_MISMATCH, {"headers": {Header.PROTOCOL_VERSION: "2031-01-01"}}),
    "version is a number": (ErrorCode.HEADER_MISMATCH, {"meta": {VERSION: 7, CAPABILITIES: {}}}),
    "both say the future": (
        ErrorCode.UNSUPPORTED_VERSION,
        {"meta": protocol.request_meta("2031-01-01"), "headers": {Header.PROTOCOL_VERSION: "2031-01-01"}},
    ),
    "both say a session revision": (
        ErrorCode.UNSUPPORTED_VERSION,
        {"meta": protocol.request_meta("2025-11-25"), "headers": {Header.PROTOCOL_VERSION: "2025-11-25"}},
    ),
}


@pytest.mark.parametrize("case", MODERN_REFUSALS)
def test_every_modern_request_is_checked_and_refused_with_the_exact_code(case):
    expected, how = MODERN_REFUSALS[case]
    assert code(modern(CALL, {"name": "add", "arguments": {}}, **how)) == (400, expected)


@pytest.mark.parametrize("case", MODERN_REFUSALS)
def test_the_reference_server_refuses_the_same(case):
    expected, how = MODERN_REFUSALS[case]
    params = {"name": "add", "arguments": {}, "_meta": how.get("meta", META)}
    sent = protocol.request_headers(MODERN, CALL, params) | how.get("headers", {})
    headers = {name.lower(): value for name, value in sent.items() if name not in how.get("without", ())}
    verdict = inbound.classify_inbound_request(message(CALL, params), headers=headers)
    if case == "capabilities are no object":  # it looks at that only later, with the same result
        assert isinstance(verdict, inbound.InboundModernRoute)
    else:
        assert verdict.code == expected


def test_an_unsupported_revision_is_told_what_is_supported():
    how = MODERN_REFUSALS["both say the future"][1]
    _, body = modern(CALL, {"name": "add"}, **how)
    assert body["error"]["data"] == {"supported": [MODERN], "requested": "2031-01-01"}


def test_a_modern_notification_is_acknowledged_and_one_of_the_future_refused():
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert send(note, {Header.PROTOCOL_VERSION: MODERN}) == (202, None)
    status, body = send(note, {Header.PROTOCOL_VERSION: "2031-01-01"})
    assert (status, body["id"], body["error"]["code"]) == (400, None, ErrorCode.UNSUPPORTED_VERSION)


def test_a_posted_answer_is_refused_in_the_modern_era():
    answer = send({"jsonrpc": "2.0", "id": 1, "result": {}}, {Header.PROTOCOL_VERSION: MODERN})
    assert code(answer) == (400, ErrorCode.INVALID_REQUEST)


# calls


@pytest.mark.parametrize("how", [modern, in_session])
def test_a_call_brings_the_arguments_as_they_were_sent(how):
    call = how(CALL, {"name": "add", "arguments": {"a": 1e2, "b": 10**30}})
    assert call.tool.name == "add"
    assert call.arguments == b'{"a": 100.0, "b": 1000000000000000000000000000000}'


@pytest.mark.parametrize("params", [{"name": "add"}, {"name": "add", "arguments": None}])
def test_a_call_without_arguments_has_empty_ones(params):
    assert modern(CALL, params).arguments == b"{}"
    assert in_session(CALL, params).arguments == b"{}"


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": None}, {"name": "add", "arguments": [1]}])
def test_a_call_that_is_none_is_refused(params):
    assert code(in_session(CALL, params)) == (200, ErrorCode.INVALID_PARAMS)
    assert code(modern(CALL, params)) == (400, ErrorCode.INVALID_PARAMS)


def test_a_name_outside_ascii_is_compared_decoded():
    assert modern(CALL, {"name": "größe"}).tool.name == "größe"
    bare = modern(CALL, {"name": "größe"}, headers={Header.NAME: "größe"})
    assert code(bare) == (400, ErrorCode.HEADER_MISMATCH)


def test_arguments_that_have_to_be_repeated_in_headers_are_compared():
    params = {"name": "near", "arguments": {"region": "eu"}}
    assert code(modern(CALL, params)) == (400, ErrorCode.HEADER_MISMATCH)
    assert code(modern(CALL, params, headers={"Mcp-Param-Region": "us"})) == (400, ErrorCode.HEADER_MISMATCH)
    assert modern(CALL, params, headers={"Mcp-Param-Region": "eu"}).tool.name == "near"
    assert in_session(CALL, params).tool.name == "near"


def test_a_tool_whose_header_annotation_clients_would_reject_is_refused_at_once():
    with pytest.raises(ValueError, match="tool bad: x-mcp-header"):
        tool("bad", properties={"a": {"type": "number", "x-mcp-header": "A"}})


@pytest.mark.parametrize(("how", "era"), [(modern, Era.MODERN), (in_session, Era.SESSION)])
def test_a_result_is_worded_for_its_era(how, era):
    call = how(CALL, {"name": "add"}, request_id="seven")
    answer = call.answer(ToolResult(content=[text_block("3")], structured=msgspec.Raw(b'{"result":3}')))
    body = json.loads(answer.body)
    assert (answer.status, body["id"]) == (200, "seven")
    result = types.CallToolResult.model_validate(body["result"])
    assert (result.is_error, result.structured_content) == (False, {"result": 3})
    assert ("resultType" in body["result"]) == (era is Era.MODERN)
    failed = json.loads(call.answer(tool_error("no")).body)["result"]
    assert failed["isError"] is True
    assert failed["content"] == [{"type": "text", "text": "no"}]
    assert "structuredContent" not in failed


# messages that are none


BROKEN = {
    "empty": (ErrorCode.PARSE_ERROR, b""),
    "half": (ErrorCode.PARSE_ERROR, b'{"jsonrpc":"2.0","id":1'),
    "two": (ErrorCode.PARSE_ERROR, b'{"jsonrpc":"2.0","id":1,"method":"ping"}{}'),
    "byte order mark": (ErrorCode.PARSE_ERROR, b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    "not UTF-8": (ErrorCode.PARSE_ERROR, b'{"jsonrpc":"2.0","id":1,"method":"\xff"}'),
    "deep": (ErrorCode.PARSE_ERROR, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 200_000),
    "deep and closed": (ErrorCode.PARSE_ERROR, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a list": (ErrorCode.INVALID_REQUEST, b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'),
    "a number": (ErrorCode.INVALID_REQUEST, b"7"),
    "null": (ErrorCode.INVALID_REQUEST, b"null"),
    "no version": (ErrorCode.INVALID_REQUEST, b'{"id":1,"method":"ping"}'),
    "version 1": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"1.0","id":1,"method":"ping"}'),
    "no method": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":1}'),
    "method is a number": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":1,"method":7}'),
    "id null": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":null,"method":"ping"}'),
    "id true": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":true,"method":"ping"}'),
    "id a fraction": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}'),
    "id an object": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":{},"method":"ping"}'),
    "id not UTF-8": (ErrorCode.INVALID_REQUEST, b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}'),
}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN, None])
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_message_gets_400_and_the_right_code(case, version):
    expected, body = BROKEN[case]
    headers = {} if version is None else {Header.PROTOCOL_VERSION: version}
    assert code(send(body, headers)) == (400, expected)


@pytest.mark.parametrize("params", [b"[]", b"7", b'"x"', b"null"])
def test_params_that_are_no_object_are_refused(params):
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%b}' % params
    assert code(send(body)) == (200, ErrorCode.INVALID_PARAMS)
    assert code(send(body, {Header.PROTOCOL_VERSION: MODERN})) == (400, ErrorCode.INVALID_PARAMS)


def test_an_id_comes_back_byte_for_byte():
    for raw in (b"123456789012345678901234567890", b'"a\\u00e9 \\" b"', b"-1", b"0"):
        answer = SERVER.receive({}, b'{"jsonrpc":"2.0","id": %b ,"method":"ping"}' % raw)
        assert b'"id":%b,' % raw in answer.body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])
likely = st.sampled_from(["2.0", 1, "tools/call", "tools/list", "server/discover", "initialize", {"name": "add"}])


@given(
    st.dictionaries(keys, likely | json_values),
    st.dictionaries(
        st.sampled_from([h.lower() for h in Header]), st.sampled_from([MODERN, "2025-06-18", "tools/call", "add", "x"])
    ),
)
def test_whatever_arrives_is_answered_in_words_of_the_protocol(body, headers):
    answer = SERVER.receive(headers, json.dumps(body).encode())
    if isinstance(answer, Call):
        assert answer.tool.name in SERVER.tools
        return
    assert answer.status in (200, 202, 400, 404)
    if answer.status == 202:
        assert answer.body == b""
    else:
        said = json.loads(answer.body)
        assert ("result" in said) != ("error" in said)


@given(st.binary(max_size=300))
def test_noise_is_answered_with_an_error(noise):
    answer = SERVER.receive({}, noise)
    assert isinstance(answer, Answer)
    assert answer.status in (200, 400)
    assert "error" in json.loads(answer.body)
