"""Filter and renaming as clients meet them, in both eras, in JSON and in event streams."""

import json

import pytest

from fairway.api.runconfig import ToolOverride, Tools
from fairway.mcp.protocol import decode_header_value
from tests.unit.proxy.serving import META, TOOLS, call, listing, modern, proxy, route, server, spoken

pytestmark = pytest.mark.anyio

FILTER = Tools(filter=("add",))
RENAME = Tools(override=(ToolOverride(tool="add", name="größe", description="New"),))


@pytest.mark.parametrize("version", [None, "2025-06-18", "2026-07-28"])
async def test_a_hidden_tool_is_not_listed(version):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        reply = await front.ask(*spoken(listing(), version))
        assert [tool["name"] for tool in reply.message["result"]["tools"]] == ["add"]
        assert reply.message["result"]["cacheScope"] == "private"
        assert reply.headers["content-length"] == str(len(reply.body))


@pytest.mark.parametrize(("version", "status"), [(None, 200), ("2026-07-28", 400)])
async def test_a_hidden_tool_cannot_be_called_and_looks_as_if_it_were_not_there(version, status):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        for name in ("secret", "nonsense"):
            reply = await front.ask(*spoken(call(name, request_id="id-1"), version))
            assert reply.status == status
            error = {"code": -32602, "message": f"Unknown tool: {name}"}
            assert reply.message == {"jsonrpc": "2.0", "id": "id-1", "error": error}
        assert backend.got == []
        assert (await front.ask(*spoken(call("add"), version))).status == 200


@pytest.mark.parametrize(
    "params", [{}, {"name": 5}, {"name": None}, {"Name": "secret"}, {"name": ["secret"]}, None], ids=str
)
async def test_a_call_whose_tool_cannot_be_told_does_not_pass_a_filter(params):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        reply = await front.ask(message if params is None else {**message, "params": params})
        assert reply.message["error"]["code"] in (-32600, -32602)
        assert backend.got == []


async def test_a_renamed_tool_is_called_by_its_own_name_in_header_and_body():
    async with server() as backend, proxy(route(backend.address, tools=RENAME)) as front:
        message, headers = modern(call("größe", a=1))
        assert headers["Mcp-Name"] == "=?base64?Z3LDtsOfZQ==?="
        reply = await front.ask(message, headers)
        assert reply.status == 200
        (got,) = backend.got
        assert got.message["params"] == {"name": "add", "arguments": {"a": 1}, "_meta": META}
        assert [value for name, value in got.headers if name.lower() == "mcp-name"] == ["add"]
        assert got.header("content-length") == str(len(got.body))


async def test_a_renamed_tool_is_not_there_under_its_old_name():
    async with server() as backend, proxy(route(backend.address, tools=RENAME)) as front:
        assert (await front.ask(call("add"))).message["error"]["message"] == "Unknown tool: add"
        names = [tool["name"] for tool in (await front.ask(listing())).message["result"]["tools"]]
        assert names == ["größe", "secret"]


async def test_the_name_for_the_server_is_encoded_where_it_has_to_be():
    tools = Tools(override=(ToolOverride(tool="größe", name="size"),))
    async with server() as backend, proxy(route(backend.address, tools=tools)) as front:
        await front.ask(*modern(call("size")))
        assert decode_header_value(backend.got[0].header("mcp-name")) == "größe"
        assert backend.got[0].message["params"]["name"] == "größe"


CONTRADICTIONS = [
    {"Mcp-Name": "secret"},
    {"Mcp-Method": "tools/list"},
    {"Mcp-Name": "=?base64?YWR?="},
    {"Mcp-Name": "=?base64?c2VjcmV0?="},
    {"MCP-Protocol-Version": "2025-11-25"},
    {"MCP-Protocol-Version": "2099-01-01"},
]


@pytest.mark.parametrize("tools", [FILTER, Tools()], ids=["filtered", "all tools"])
@pytest.mark.parametrize("headers", CONTRADICTIONS)
async def test_headers_that_contradict_the_body_are_refused(headers, tools):
    async with server() as backend, proxy(route(backend.address, tools=tools)) as front:
        message, agreeing = modern(call("add", request_id=3))
        reply = await front.ask(message, {**agreeing, **headers})
        assert reply.status == 400
        assert reply.message["error"]["code"] == -32020
        assert reply.message["id"] == 3
        assert backend.got == []


@pytest.mark.parametrize("version", [None, "2025-06-18"])
async def test_headers_of_the_modern_era_go_no_further_in_the_other_where_nobody_compares_them(version):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        message, headers = spoken(call("add"), version)
        reply = await front.ask(message, {**headers, "Mcp-Method": "tools/call", "mcp-name": "secret"})
        assert reply.status == 200
        assert (backend.got[0].header("mcp-method"), backend.got[0].header("mcp-name")) == (None, None)


@pytest.mark.parametrize(
    "method", ["Tools/Call", "tools/call ", "TOOLS/LIST", "tool\u017f/call", "tools/call\0", "tools/\u200bcall"]
)
async def test_a_method_that_some_server_might_take_for_one_that_is_filtered_does_not_pass_a_filter(method):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        reply = await front.ask({**call("secret"), "method": method})
        assert reply.message["error"]["code"] == -32601
        assert backend.got == []
        await front.ask({**call("x"), "method": "vendor/tools"})
        assert len(backend.got) == 1


@pytest.mark.parametrize("missing", ["Mcp-Name", "Mcp-Method", "MCP-Protocol-Version"])
async def test_a_header_that_is_missing_in_the_modern_era_is_a_contradiction_too(missing):
    async with server() as backend, proxy(route(backend.address)) as front:
        message, headers = modern(call("add"))
        del headers[missing]
        reply = await front.ask(message, headers)
        assert (reply.status, reply.message["error"]["code"]) == (400, -32020)
        assert missing in reply.error
        assert backend.got == []


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": []}, {"_meta": {next(iter(META)): "2026-07-28"}}])
async def test_a_request_of_the_modern_era_says_what_it_is_in_its_body(params):
    async with server() as backend, proxy(route(backend.address)) as front:
        _, headers = modern(listing())
        reply = await front.ask({**listing(), "params": params}, headers)
        assert (reply.status, reply.message["error"]["code"]) == (400, -32602)
        assert backend.got == []


async def test_a_revision_that_is_not_known_yet_is_the_servers_business():
    async with server() as backend, proxy(route(backend.address)) as front:
        assert (await front.ask(call("add"), {"MCP-Protocol-Version": "2099-01-01"})).status == 200
        assert len(backend.got) == 1


async def test_the_modern_era_has_neither_streams_of_the_servers_own_nor_sessions_to_end():
    async with server() as backend, proxy(route(backend.address)) as front:
        for method in ("GET", "DELETE"):
            client = await front.client()
            client.get({"MCP-Protocol-Version": "2026-07-28"}, method=method)
            reply = await client.reply()
            assert (reply.status, reply.headers["allow"]) == (405, "POST")
        assert backend.got == []


@pytest.mark.parametrize("header", ["Mcp-Name", "Mcp-Method", "MCP-Protocol-Version"])
async def test_headers_that_are_there_twice_are_refused(header):
    async with server() as backend, proxy(route(backend.address, tools=FILTER)) as front:
        client = await front.client()
        body = json.dumps(call("add")).encode()
        client.send(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nMCP-Protocol-Version: 2025-11-25\r\nMcp-Method: tools/call\r\n"
            b"Mcp-Name: add\r\n%b: x\r\nContent-Length: %d\r\n\r\n%b" % (header.encode(), len(body), body)
        )
        assert (await client.reply()).message["error"]["code"] == -32020
        assert backend.got == []


async def test_a_list_in_an_event_stream_is_filtered_and_the_rest_of_the_stream_is_not_touched():
    before = (
        b'event: message\nid: 1\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"tools":[]}}\n\n'
    )
    after = b": done\n\n"

    async def answers(conversation, got):
        conversation.start_chunked(headers="Mcp-Session-Id: s\r\n")
        conversation.chunk(before)
        result = json.dumps({"jsonrpc": "2.0", "id": 1, "result": backend.result("tools/list")}).encode()
        for part in (b"id: 2\ndata: ", result[:50], result[50:], b"\n", b"\n"):
            conversation.chunk(part)
            await conversation.writer.drain()
        conversation.chunk(after)
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        reply = await front.ask(listing(), {"Accept-Encoding": "gzip"})
        assert reply.body.startswith(before)
        assert reply.body.endswith(after)
        (data,) = [line for line in reply.body.splitlines() if line.startswith(b'data: {"jsonrpc":"2.0","id":1')]
        assert [tool["name"] for tool in json.loads(data[6:])["result"]["tools"]] == ["add"]
        assert backend.got[0].header("accept-encoding") is None


async def test_a_list_that_arrives_on_a_resumed_stream_is_filtered_too():
    async def answers(conversation, got):
        conversation.start_chunked()
        result = json.dumps({"jsonrpc": "2.0", "id": 1, "result": backend.result("tools/list")}).encode()
        conversation.chunk(b"data: " + result + b"\n\n")
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        client = await front.client()
        client.get({"Last-Event-ID": "4"})
        assert b"secret" not in (await client.reply()).body


async def test_the_pages_of_a_list_keep_their_cursors():
    async def answers(conversation, got):
        result = {**backend.result("tools/list"), "nextCursor": "p2"}
        conversation.json({"jsonrpc": "2.0", "id": 1, "result": result})

    async with server(answers) as backend, proxy(route(backend.address, tools=Tools(filter=()))) as front:
        reply = await front.ask({**listing(), "params": {"cursor": "p1"}})
        assert reply.message["result"]["tools"] == []
        assert reply.message["result"]["nextCursor"] == "p2"
        assert backend.got[0].message["params"] == {"cursor": "p1"}


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_an_error_instead_of_a_list_passes_as_it_is(status):
    error = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"tools are \\"away\\""}}'

    async def answers(conversation, got):
        conversation.json(error, status=status)

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        reply = await front.ask(listing())
        assert (reply.status, reply.body) == (int(status[:3]), error)


@pytest.mark.parametrize("body", [b"{", b'{"result":{"tools":[{"title":"x"}]}}', b'{"result":{"tools":[5]}}'])
async def test_a_list_that_cannot_be_read_does_not_pass_a_filter(body):
    async def answers(conversation, got):
        conversation.json(body)

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        client = await front.client()
        for _ in range(2):
            reply = await client.ask(listing())
            assert reply.status == 502
            assert "list cannot be read" in reply.error


@pytest.mark.parametrize("kind", ["text/plain", "application/json-rpc", "application/octet-stream", ""])
async def test_a_list_that_is_called_something_else_does_not_pass_a_filter(kind):
    async def answers(conversation, got):
        listed = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": TOOLS}}).encode()
        conversation.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(listed))
        )
        conversation.send(listed)

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        client = await front.client()
        for ask in (lambda: client.post(listing()), lambda: client.get({"Last-Event-ID": "1"})):
            ask()
            reply = await client.reply()
            assert (reply.status, "neither JSON" in reply.error) == (502, True)


async def test_a_list_is_filtered_whatever_kind_of_success_it_is():
    async def answers(conversation, got):
        conversation.json(
            {"jsonrpc": "2.0", "id": 1, "result": {"tools": TOOLS}}, status="203 Non-Authoritative Information"
        )

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        reply = await front.ask(listing())
        assert [tool["name"] for tool in reply.message["result"]["tools"]] == ["add"]


async def test_a_compressed_list_does_not_pass_a_filter():
    async def answers(conversation, got):
        conversation.json(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n")

    async with server(answers) as backend, proxy(route(backend.address, tools=FILTER)) as front:
        client = await front.client()
        for _ in range(2):
            assert (await client.ask(listing())).status == 502


async def test_the_status_says_what_clients_see_and_what_does_not_fit():
    tools = Tools(filter=("add", "gone"), override=(ToolOverride(tool="add", name="sum"),))
    async with server() as backend, proxy(route(backend.address, tools=tools)) as front:
        said = front.gateway.status().route("default/a").tools
        assert (said.count, said.names, said.unknown) == (1, ("sum",), ("gone",))
        assert said.digest.startswith("sha256:")
        assert said.bytes > 40
