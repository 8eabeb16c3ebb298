"""One handshake with whatever may listen on a port, and the words for what is wrong."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from fairway.api.proxystatus import EndpointState
from fairway.mcp import client, probe

pytestmark = pytest.mark.anyio


class Listening:
    """A server on a socket; `answer` gets method, target, body and headers, and returns bytes."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.address = ""
        self._writers = []

    def hang_up(self):
        for writer in self._writers:
            writer.close()

    async def serve(self, reader, writer):
        self._writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = first.split(" ")
                self.asked.append((method, target, body, headers))
                said = self.answer(method, target, body)
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(answer):
    made = Listening(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


def http(status: str, body: bytes = b"", content_type: str = "text/html", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rpc(body: bytes, result: object, headers: str = "") -> bytes:
    reply = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": result}
    return http("200 OK", json.dumps(reply).encode(), "application/json", headers)


async def shake(made: Listening, path: str = "/mcp", *, legacy: bool = False):
    way = probe.Way(address=made.address, path=path, headers={"Host": "localhost:3000"}, legacy=legacy)
    return await probe.shake(way, connect_seconds=1)


def legacy_server(method, target, body):
    if method == "GET" and target == "/sse":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        event = b"event: endpoint\r\ndata: /messages?id=1\r\n\r\n"
        return b"%b%x\r\n%b\r\n" % (head, len(event), event)
    return http("404 Not Found", b"<h1>no</h1>")


async def test_a_server_of_the_session_era_is_left_without_a_session():
    def answer(method, target, body):
        asked = json.loads(body)["method"] if body else ""
        if asked == "initialize":
            said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
            return rpc(body, said, "Mcp-Session-Id: s-9\r\n")
        if asked == "tools/list":
            return rpc(body, {"tools": [{"name": "a", "inputSchema": {}}]})
        if asked.startswith("notifications/"):
            return http("202 Accepted")
        return http("200 OK") if method == "DELETE" else http("400 Bad Request")

    async with listening(answer) as made:
        outcome = await shake(made)
        assert (outcome.state, outcome.message) == (EndpointState.OK, "")
        assert outcome.session.server.name == "old"
        assert [tool.name for tool in outcome.tools.tools] == ["a"]
        method, _, _, headers = made.asked[-1]
        assert (method, headers["mcp-session-id"]) == ("DELETE", "s-9")
        assert all(headers["host"] == "localhost:3000" for *_, headers in made.asked)


async def test_a_server_whose_tools_cannot_be_listed_is_good_all_the_same():
    def answer(method, target, body):
        if json.loads(body)["method"] == "server/discover":
            return rpc(body, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        return http("500 Internal Server Error", b"{}", "application/json")

    async with listening(answer) as made:
        outcome = await shake(made)
        assert outcome.state is EndpointState.OK
        assert outcome.tools is None
        assert outcome.tools_error == "POST tools/list answered 500 Internal Server Error application/json"


async def test_a_server_of_the_old_transport_is_recognised():
    async with listening(legacy_server) as made:
        outcome = await shake(made)
        assert outcome.state is EndpointState.FAILED
        assert outcome.message == (
            "POST /mcp answered 404 Not Found text/html, and GET /sse an event stream: "
            "spec.transport is streamable-http, try sse"
        )


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (http("404 Not Found"), EndpointState.NOT_MCP, "POST /mcp answered 404 Not Found text/html: that is a web"),
        (http("200 OK", b"<h1>hi</h1>"), EndpointState.NOT_MCP, "that is a web server, but no MCP server"),
        (http("200 OK", b'{"a":1}', "application/json"), EndpointState.FAILED, "no MCP message in it"),
        (http("307 Temporary Redirect", headers="Location: /mcp/\r\n"), EndpointState.FAILED, "to /mcp/; redirects"),
        (http("421 Misdirected Request"), EndpointState.HOST_REFUSED, "set spec.upstreamHost"),
        (http("401 Unauthorized"), EndpointState.FAILED, "the server wants credentials"),
        (http("503 Service Unavailable"), EndpointState.FAILED, "answered 503"),
        (b"SSH-2.0-OpenSSH\r\n", EndpointState.NOT_MCP, "does not speak HTTP"),
        (None, EndpointState.FAILED, "answered nothing usable"),
    ],
)
async def test_what_is_wrong_is_said_with_what_was_asked_and_answered(answer, state, said):
    async with listening(lambda *_: answer) as made:
        outcome = await shake(made)
        assert outcome.state is state
        assert said in outcome.message


async def test_nothing_that_listens_is_unreachable():
    async with listening(legacy_server) as made:
        pass
    outcome = await shake(made)
    port = made.address.rpartition(":")[2]
    assert (outcome.state, outcome.message) == (EndpointState.UNREACHABLE, f"nothing listens on :{port}")
    assert outcome.lasting


async def test_a_server_that_does_not_answer_is_unreachable_but_may_just_be_slow(monkeypatch):
    monkeypatch.setattr(client, "DISCOVER_TIMEOUT", 0.1)
    monkeypatch.setattr(probe, "ANSWER_TIMEOUT", 0.2)
    async with listening(lambda *_: b"") as made:
        outcome = await shake(made)
        assert outcome.state is EndpointState.UNREACHABLE
        assert "does not answer" in outcome.message
        assert not outcome.lasting


@pytest.mark.parametrize(
    ("proxied", "advice"), [(True, "set spec.upstreamHost: localhost:"), (False, "put a proxy in between")]
)
@pytest.mark.parametrize("refusal", ["403 Forbidden", "400 Bad Request", "421 Misdirected Request"])
async def test_a_server_that_accepts_another_host_is_told_to_refuse_this_one(refusal, proxied, advice):
    said = http(refusal, b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":null}', "application/json")
    offer = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}

    def answer(method, target, body):
        host = made.asked[-1][3]["host"]
        return rpc(body, offer) if host.startswith("localhost") else said

    async with listening(answer) as made:
        headers = {"Host": "weather.team.svc.cluster.local:8080"}
        way = probe.Way(address=made.address, path="/mcp", headers=headers, proxied=proxied)
        outcome = await probe.shake(way, connect_seconds=1)
    assert outcome.state is EndpointState.HOST_REFUSED
    assert "Host weather.team.svc.cluster.local:8080" in outcome.message
    assert advice in outcome.message
