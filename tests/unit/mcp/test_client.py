"""The MCP client: its core as a conversation on paper, and the whole of it against the reference server."""

import json
from collections.abc import Callable

import msgspec
import pytest
from mcp.shared import inbound

from fairway.mcp import protocol
from fairway.mcp.asking import Answer, Ask
from fairway.mcp.client import (
    CLIENT,
    HandshakeFailed,
    HttpRefused,
    McpError,
    RpcError,
    Session,
    handshake,
)
from fairway.mcp.mirrored import mirrored_headers
from fairway.mcp.protocol import JSON, Era

DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
    "instructions": "be nice",
}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}


def message(ask: Ask) -> dict:
    return json.loads(ask.body)


def result(ask: Ask, value: object, **headers: str) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": ask.request_id, "result": value}).encode()
    return Answer(200, headers, JSON, body)


def error(ask: Ask, code: int, *, status: int = 400, data: object = None, text: str = "no") -> Answer:
    said = {"code": code, "message": text, **({"data": data} if data is not None else {})}
    return Answer(status, {}, JSON, json.dumps({"jsonrpc": "2.0", "id": None, "error": said}).encode())


def play(steps, answer: Callable[[Ask], Answer]):
    """Runs an operation of the core against a function; returns its result and what it asked."""
    asked: list[Ask] = []
    try:
        ask = next(steps)
        while True:
            asked.append(ask)
            ask = steps.send(answer(ask))
    except StopIteration as stop:
        return stop.value, asked


def session_server(ask: Ask) -> Answer:
    match ask.method:
        case "initialize":
            return result(ask, INITIALIZED, **{"mcp-session-id": "s-1"})
        case "notifications/initialized":
            return Answer(202)
        case "":
            return Answer(200)
    return error(ask, -32601, status=404)


def test_a_modern_server_is_asked_once():
    session, asked = play(handshake(client=CLIENT), lambda ask: result(ask, DISCOVERED))
    assert [ask.method for ask in asked] == ["server/discover"]
    assert (session.era, session.version, session.server.name) == (Era.MODERN, "2026-07-28", "s")
    assert session.instructions == "be nice"
    assert play(session.close(), session_server)[1] == []


def test_every_modern_request_satisfies_the_reference_server():
    session, asked = play(handshake(client=CLIENT), lambda ask: result(ask, DISCOVERED))
    _, more = play(session.call("größe", {"a": 1}), lambda ask: result(ask, {}))
    _, lists = play(session.list_tools(), lambda ask: result(ask, {"tools": []}))
    for ask in (*asked, *more, *lists):
        headers = {name.lower(): value for name, value in ask.headers.items()}
        verdict = inbound.classify_inbound_request(message(ask), headers=headers)
        assert isinstance(verdict, inbound.InboundModernRoute), verdict


@pytest.mark.parametrize(
    "refusal",
    [
        lambda ask: error(ask, -32601, status=404),
        lambda ask: error(ask, -32600, status=400),
        lambda ask: error(ask, -32601, status=200),
        lambda ask: Answer(404, {}, "text/html"),
        lambda ask: Answer(400, {}, JSON, b'{"error":"Missing session ID"}'),
        lambda ask: Answer(400, {}, JSON, b"not json"),
        lambda ask: Answer(500, {}, "text/plain"),
        lambda ask: Answer(406),
        lambda ask: Answer(0, timed_out=True),
        lambda ask: result(ask, {"hello": "world"}),
        lambda ask: result(ask, {"supportedVersions": ["2025-11-25"]}),
        lambda ask: error(ask, -32022, data={"supported": ["2025-11-25"]}),
    ],
)
def test_whatever_is_not_modern_is_given_the_old_handshake(refusal):
    def server(ask):
        return refusal(ask) if ask.method == "server/discover" else session_server(ask)

    session, asked = play(handshake(client=CLIENT), server)
    assert [ask.method for ask in asked] == ["server/discover", "initialize", "notifications/initialized"]
    assert (session.era, session.version, session.session_id) == (Era.SESSION, "2025-11-25", "s-1")
    assert asked[1].headers.get("MCP-Protocol-Version") is None
    assert asked[2].headers["Mcp-Session-Id"] == "s-1"
    assert asked[2].headers["MCP-Protocol-Version"] == "2025-11-25"
    assert asked[2].request_id is None


def test_a_session_is_ended():
    session, _ = play(handshake(client=CLIENT), session_server)
    _, (ask,) = play(session.close(), session_server)
    assert (ask.verb, ask.headers["Mcp-Session-Id"], ask.body) == ("DELETE", "s-1", b"")


def test_another_modern_revision_is_tried_when_the_server_names_it(monkeypatch):
    monkeypatch.setattr(protocol, "MODERN_VERSIONS", ("2026-07-28", "2027-01-01"))
    monkeypatch.setattr(protocol, "LATEST_MODERN_VERSION", "2027-01-01")

    def server(ask):
        if ask.headers["MCP-Protocol-Version"] == "2027-01-01":
            return error(ask, -32022, data={"supported": ["2026-07-28"]})
        return result(ask, DISCOVERED)

    session, asked = play(handshake(client=CLIENT), server)
    assert len(asked) == 2
    assert session.version == "2026-07-28"


@pytest.mark.parametrize(
    "refusal",
    [
        lambda ask: error(ask, -32022, data={"supported": ["2031-01-01"]}),
        lambda ask: error(ask, -32022),
        lambda ask: error(ask, -32020),
        lambda ask: error(ask, -32021),
    ],
)
def test_a_modern_server_that_refuses_is_not_taken_for_an_old_one(refusal):
    with pytest.raises(HandshakeFailed):
        play(handshake(client=CLIENT), refusal)


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_credentials_is_not_asked_twice(status):
    with pytest.raises(HttpRefused) as refused:
        play(handshake(client=CLIENT), lambda ask: Answer(status, {}, "text/plain"))
    assert str(refused.value).startswith(f"POST server/discover answered {status}")


def test_a_plain_web_server_is_told_by_what_it_answered():
    with pytest.raises(HttpRefused) as refused:
        play(handshake(client=CLIENT), lambda ask: Answer(404, {}, "text/html"))
    assert str(refused.value) == "POST initialize answered 404 Not Found text/html"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda ask: error(ask, -32602, status=200, text="bad params"), "bad params"),
        (lambda ask: result(ask, {}), "protocolVersion"),
        (lambda ask: result(ask, {**INITIALIZED, "protocolVersion": "1999-01-01"}), "speaks MCP 1999-01-01"),
    ],
)
def test_an_old_handshake_that_fails_says_why(answer, said):
    def server(ask):
        return Answer(404) if ask.method == "server/discover" else answer(ask)

    with pytest.raises(HandshakeFailed, match=said):
        play(handshake(client=CLIENT), server)


def test_a_server_that_does_not_want_to_be_told_is_no_session():
    def server(ask):
        return Answer(400) if ask.method == "notifications/initialized" else session_server(ask)

    with pytest.raises(HandshakeFailed, match="notifications/initialized answered 400"):
        play(handshake(client=CLIENT), server)


def modern_session(**changes) -> Session:
    session, _ = play(handshake(client=CLIENT), lambda ask: result(ask, {**DISCOVERED, **changes}))
    return session


def test_all_pages_of_the_tools_are_read_and_each_tool_is_kept_byte_for_byte():
    raw = b'{"name":"a","inputSchema":{ "x": 1.10 }}'

    def server(ask):
        cursor = message(ask)["params"].get("cursor")
        page = (
            b'{"tools":['
            + raw
            + b"]"
            + (b"" if cursor == "2" else b',"nextCursor":"%d"' % (int(cursor or 0) + 1))
            + b"}"
        )
        return Answer(200, {}, JSON, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (ask.request_id, page))

    found, asked = play(modern_session().list_tools(), server)
    assert [tool.raw for tool in found.tools] == [raw] * 3
    assert found.incomplete == ""
    assert len({ask.request_id for ask in asked}) == 3


def test_a_server_without_tools_is_not_asked_for_them():
    found, asked = play(modern_session(capabilities={"prompts": {}}).list_tools(), session_server)
    assert (found.tools, asked) == ((), [])


@pytest.mark.parametrize(
    ("page", "limits", "said"),
    [
        (lambda n: {"tools": [{"name": "a"}], "nextCursor": "same"}, {}, "circle"),
        (lambda n: {"tools": [{"name": "a"}], "nextCursor": str(n)}, {"max_pages": 5}, "5 pages"),
        (lambda n: {"tools": [{"name": "a"}] * 10, "nextCursor": str(n)}, {"max_tools": 25}, "30 tools"),
        (lambda n: {"tools": [{"name": "a" * 100}], "nextCursor": str(n)}, {"max_bytes": 300}, "bytes"),
    ],
)
def test_endless_lists_come_to_an_end(page, limits, said):
    asked = 0

    def server(ask):
        nonlocal asked
        asked += 1
        return result(ask, page(asked))

    found, _ = play(modern_session().list_tools(**limits), server)
    assert said in found.incomplete
    assert asked < 10


@pytest.mark.parametrize("answer", [{"tools": {}}, {"tools": [{"title": "x"}]}, {}, {"tools": [5]}])
def test_what_is_no_list_of_tools_is_said_to_be_none(answer):
    with pytest.raises(McpError, match="no list of tools"):
        play(modern_session().list_tools(), lambda ask: result(ask, answer))


def test_an_error_of_the_server_is_raised_with_all_it_says():
    with pytest.raises(RpcError) as failed:
        play(modern_session().call("x", {}), lambda ask: error(ask, -32602, text="Unknown tool: x", data=[1]))
    assert (failed.value.code, failed.value.message, failed.value.data) == (-32602, "Unknown tool: x", [1])


def test_arguments_that_a_schema_asks_for_travel_in_headers():
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "n": {"type": "integer", "x-mcp-header": "N"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "null": {"type": "string", "x-mcp-header": "Null"},
            "plain": {"type": "string"},
            "nested": {"properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
        }
    }
    arguments = {"region": "süd", "flag": True, "n": 42, "null": None, "plain": "x", "nested": {"deep": "d"}}
    headers = mirrored_headers(schema, arguments)
    reference = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    assert headers == reference
    session = modern_session()
    _, (ask,) = play(session.call("t", arguments, schema=schema), lambda ask: result(ask, {}))
    assert ask.headers["Mcp-Param-Flag"] == "true"


def test_results_come_back_raw():
    raw, _ = play(
        modern_session().request("x/y", {"a": 1}),
        lambda ask: Answer(200, {}, JSON, b'{"id":1,"result":{ "big": 123456789012345678901234567890 }}'),
    )
    assert isinstance(raw, msgspec.Raw)
    assert bytes(raw) == b'{ "big": 123456789012345678901234567890 }'
