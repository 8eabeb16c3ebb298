"""MCP behind a URL: HTTP's part of the answer, browsers kept out, long calls kept alive."""

import asyncio
import json

import pytest

from fairway.mcp import protocol
from fairway.mcp.endpoint import LOCAL_NAMES, McpEndpoint
from fairway.mcp.http_server import Request, Response
from fairway.mcp.server import McpServer, Tool, ToolResult, text_block

pytestmark = pytest.mark.anyio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work"}}
DONE = ToolResult(content=[text_block("done")])


class Work:
    """A tool that ends when it is told to."""

    def __init__(self):
        self.go, self.cancelled = asyncio.Event(), asyncio.Event()
        self.starts = asyncio.Semaphore(0)

    async def __call__(self, _):
        self.starts.release()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return DONE


def endpoint(work=None, **options):
    tool = Tool(name="work", call=work or Work(), input_schema={"type": "object"})
    return McpEndpoint(McpServer(name="x", version="1", tools=[tool]), **options)


def request(body=PING, *, method="POST", path="/mcp", **headers):
    sent = {"host": "localhost:8080", "content-type": "application/json", "accept": protocol.ACCEPT_BOTH}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in sent.items() if value is not None}
    return Request(method=method, path=path, headers=sent, body=json.dumps(body).encode())


def ask(served, *args, **kwargs):
    answer = served(request(*args, **kwargs))
    assert isinstance(answer, Response)
    return answer


async def test_it_answers_at_its_path_and_nowhere_else():
    assert ask(endpoint()).status == 200
    assert ask(endpoint(), path="/mcp/").status == 200
    assert ask(endpoint(path="/"), path="/").status == 200
    for path in ("/", "/mcpx", "/MCP", "/mcp/x", "//mcp", "/%6dcp"):
        assert ask(endpoint(), path=path).status == 404


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS", "HEAD"])
async def test_there_is_no_stream_to_get_and_no_session_to_delete(method):
    answer = ask(endpoint(), method=method)
    assert (answer.status, answer.headers) == (405, (("Allow", "POST"),))


@pytest.mark.parametrize("kind", ["text/plain", None, "application/jsonx", "multipart/form-data", ""])
async def test_only_json_is_read(kind):
    # what a web page may send without being asked first is exactly what is not JSON
    assert ask(endpoint(), content_type=kind).status == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_may_be_spelt_in_its_ways(kind):
    assert ask(endpoint(), content_type=kind).status == 200


@pytest.mark.parametrize(
    ("accept", "status", "kind"),
    [
        (None, 200, protocol.JSON),
        ("*/*", 200, protocol.JSON),
        ("application/*;q=0.5", 200, protocol.JSON),
        ("application/json, text/event-stream", 200, protocol.JSON),
        ("text/event-stream", 200, protocol.SSE),
        ("application/json;q=0, text/event-stream", 200, protocol.SSE),
        ("text/html", 406, protocol.JSON),
        ("application/json; q=0", 406, protocol.JSON),
    ],
)
async def test_the_answer_is_of_a_kind_the_client_accepts(accept, status, kind):
    answer = ask(endpoint(), accept=accept)
    assert (answer.status, answer.content_type) == (status, kind)
    if kind == protocol.SSE:
        assert answer.body.startswith(b"event: message\ndata: {")
        assert answer.body.endswith(b"}\n\n")


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://localhost.evil.example", "http://evil/localhost", "file://localhost"],
)
async def test_pages_from_elsewhere_may_not_call(origin):
    answer = ask(endpoint(), origin=origin)
    assert answer.status == 403
    assert json.loads(answer.body)["id"] is None


@pytest.mark.parametrize(
    "origin", [None, "http://localhost:6274", "https://127.0.0.1", "http://[::1]:99", "http://LOCALHOST"]
)
async def test_pages_of_this_machine_and_programs_may_call(origin):
    assert ask(endpoint(), origin=origin).status == 200


async def test_an_origin_can_be_allowed():
    assert ask(endpoint(origins=["https://app.example"]), origin="https://app.example").status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("evil.example:8080", 403),
        ("", 403),
        (None, 403),
    ],
)
async def test_a_server_for_this_machine_answers_only_to_its_names(host, status):
    assert ask(endpoint(hosts=LOCAL_NAMES), host=host).status == status
    assert ask(endpoint(), host=host).status == 200


async def test_an_acknowledgement_has_no_body():
    answer = ask(endpoint(), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status, answer.body, answer.content_type) == (202, b"", None)


async def test_a_call_is_awaited_and_answered_as_json():
    work = Work()
    work.go.set()
    served = endpoint(work)
    answer = await served(request(CALL))
    assert (answer.status, answer.content_type) == (200, protocol.JSON)
    assert json.loads(answer.body)["result"]["content"] == [{"type": "text", "text": "done"}]
    await asyncio.sleep(0)
    assert served.calls == 0


async def test_a_long_call_becomes_a_stream_of_signs_of_life_and_then_the_answer():
    work = Work()
    answer = await endpoint(work, ping_seconds=0.01)(request(CALL))
    assert (answer.status, answer.content_type) == (200, protocol.SSE)
    assert ("X-Accel-Buffering", "no") in answer.headers
    pieces = []
    async for piece in answer.body:
        pieces.append(piece)
        if len(pieces) == 3:
            work.go.set()
    assert set(pieces[:-1]) == {b": still working\n\n"}
    event = pieces[-1]
    assert event.startswith(b"event: message\ndata: ")
    assert json.loads(event.removeprefix(b"event: message\ndata: "))["result"]["isError"] is False


async def test_a_client_that_accepts_no_stream_waits_for_its_json():
    work = Work()
    waiting = asyncio.create_task(endpoint(work, ping_seconds=0.001)(request(CALL, accept="application/json")))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    work.go.set()
    assert (await waiting).content_type == protocol.JSON


async def test_cancelling_a_call_cancels_its_tool():
    work = Work()
    served = endpoint(work)
    waiting = asyncio.ensure_future(served(request(CALL)))
    await work.starts.acquire()
    waiting.cancel()
    await asyncio.wait_for(work.cancelled.wait(), 5)
    await asyncio.sleep(0)
    assert served.calls == 0


async def test_leaving_a_stream_cancels_its_tool():
    work = Work()
    served = endpoint(work, ping_seconds=0.001)
    answer = await served(request(CALL))
    await anext(answer.body)
    await answer.body.aclose()
    await asyncio.wait_for(work.cancelled.wait(), 5)
    await asyncio.sleep(0)
    assert served.calls == 0


async def test_there_is_an_end_to_the_calls_that_are_served_at_once():
    work = Work()
    served = endpoint(work, max_calls=2)
    waiting = [asyncio.ensure_future(served(request(CALL))) for _ in range(2)]
    await work.starts.acquire()
    await work.starts.acquire()
    refused = ask(served, CALL)
    assert (refused.status, refused.headers) == (503, (("Retry-After", "1"),))
    assert ask(served).status == 200
    work.go.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    await asyncio.sleep(0)
    assert (await served(request(CALL))).status == 200
