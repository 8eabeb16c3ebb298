"""A server that is a child process, as clients of both eras see it through the proxy."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairway.api.runconfig import Command, Tools, Upstream
from fairway.mcp.protocol import request_headers, request_meta
from fairway.mcp.sse import EventSplitter, parse_event
from tests.unit.proxy.serving import Proxy, RawClient, proxy, route, until

SERVER = str(Path(__file__).parent / "bridge" / "line_server.py")
pytestmark = pytest.mark.anyio
ACCEPT = {"Accept": "application/json, text/event-stream"}


def command(*arguments: str, **settings: Any) -> Upstream:
    return Upstream(transport="stdio", command=Command(argv=(sys.executable, SERVER, *arguments), **settings))


@asynccontextmanager
async def served(*arguments: str, tools: Tools | None = None, **settings: Any) -> AsyncIterator[Proxy]:
    async with proxy(route(upstream=command(*arguments, **settings), tools=tools or Tools())) as running:
        yield running


class Client:
    """One client of the session era, a connection for each request."""

    def __init__(self, running: Proxy, session: str = "", version: str = "2025-11-25") -> None:
        self.running = running
        self.session = session
        self.version = version
        self.answer: dict[str, Any] = {}

    @property
    def headers(self) -> dict[str, str]:
        return {**ACCEPT, "Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}

    @classmethod
    async def open(cls, running: Proxy, *, version: str = "2025-11-25", **capabilities: Any) -> "Client":
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        reply = await running.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, ACCEPT)
        assert reply.status == 200, reply
        made = cls(running, reply.headers["mcp-session-id"], version)
        made.answer = reply.message["result"]
        told = await running.ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, made.headers)
        assert told.status == 202
        return made

    async def ask(self, method: str, params: Any = None, *, request_id: Any = 1) -> Any:
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            **({} if params is None else {"params": params}),
        }
        return await self.running.ask(message, self.headers)

    async def call(self, name: str, *, request_id: Any = 1, meta: Any = None, **arguments: Any) -> Any:
        return await self.ask("tools/call", params_of(name, meta, arguments), request_id=request_id)

    async def start(self, name: str, *, request_id: Any = 1, meta: Any = None, **arguments: Any) -> RawClient:
        client = await self.running.client()
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "tools/call",
            "params": params_of(name, meta, arguments),
        }
        client.post(message, self.headers)
        return client

    async def stream(self) -> "Events":
        client = await self.running.client()
        client.get(self.headers)
        head = await client.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        return Events(client)

    async def tell(self, message: Any) -> int:
        return (await self.running.ask({"jsonrpc": "2.0", **message}, self.headers)).status


def params_of(name: str, meta: Any, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **({} if meta is None else {"_meta": meta})}


class Events:
    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.splitter = EventSplitter(limit=1 << 24)
        self.ready: list[Any] = []

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            while not self.ready:
                chunk = await self.client.chunk()
                if not chunk:
                    return None
                events = [parse_event(block) for block in self.splitter.feed(chunk)]
                self.ready += [json.loads(event.data) for event in events if event.data]
        return self.ready.pop(0)


def modern(method: str, params: dict[str, Any] | None = None, *, request_id: Any = 1, **meta: Any) -> tuple[Any, Any]:
    sent = {**(params or {}), "_meta": {**request_meta("2026-07-28"), **meta}}
    headers = {**ACCEPT, **request_headers("2026-07-28", method, sent)}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": sent}, headers


def events_of(reply: Any) -> list[Any]:
    found = [parse_event(block) for block in EventSplitter(limit=1 << 24).feed(reply.body)]
    return [json.loads(event.data) for event in found if event.data]


def said(result: Any) -> Any:
    text = result["result"]["content"][0]["text"]
    return json.loads(text) if text[:1] in "{[" else text


# the session era


async def test_a_session_is_opened_with_what_the_server_said_of_itself() -> None:
    async with served() as running:
        client = await Client.open(running)
        assert client.answer["serverInfo"] == {"name": "lines", "version": "1", "title": "Lines"}
        assert client.answer["instructions"] == "be kind"
        assert client.answer["protocolVersion"] == "2025-11-25"
        older = await Client.open(running, version="2024-11-05")
        assert older.answer["protocolVersion"] == "2024-11-05"
        assert client.session != older.session


@pytest.mark.parametrize("request_id", [0, 7, "seven", 'a\u2028"b', 2**60, -1])
async def test_an_answer_comes_back_under_the_id_of_who_asked(request_id: Any) -> None:
    async with served() as running:
        client = await Client.open(running)
        reply = await client.call("echo", request_id=request_id, n=1)
        assert reply.headers["content-type"] == "application/json"
        assert reply.message == {"jsonrpc": "2.0", "id": request_id, "result": reply.message["result"]}
        assert said(reply.message) == {"n": 1}


async def test_two_clients_with_the_same_ids_get_each_their_own_answers() -> None:
    async with served() as running:
        clients = [await Client.open(running) for _ in range(2)]
        replies = await asyncio.gather(*(clients[n % 2].call("echo", request_id=n // 2, n=n) for n in range(40)))
        assert [said(reply.message) for reply in replies] == [{"n": n} for n in range(40)]
        assert [reply.message["id"] for reply in replies] == [n // 2 for n in range(40)]


async def test_progress_reaches_only_who_asked_for_it_under_his_own_token() -> None:
    async with served() as running:
        client, other = await Client.open(running), await Client.open(running)
        listening = await other.stream()
        reply = await client.call("progress", request_id="p", meta={"progressToken": "mine", "kept": 1})
        *progress, answer = events_of(reply)
        assert [event["params"]["progressToken"] for event in progress] == ["mine"] * 3
        assert [event["params"]["progress"] for event in progress] == [0, 1, 2]
        assert (answer["id"], said(answer)) == ("p", "done")
        await other.call("grow")
        assert (await listening.next())["method"] == "notifications/tools/list_changed"  # and nothing before it


async def test_a_token_that_is_spelled_in_another_way_is_replaced_as_well() -> None:
    async with served() as running:
        client = await Client.open(running)
        body = (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{},'
            '"\\u005fmeta":{"progress\\u0054oken":1}}}'
        )
        connection = await running.client()
        connection.post(body.encode(), client.headers)
        *progress, _ = events_of(await connection.reply())
        assert [event["params"]["progressToken"] for event in progress] == [1, 1, 1]
        sent = said((await client.call("sent")).message)
        assert [m["params"]["_meta"]["progressToken"] == m["id"] for m in sent if "_meta" in m.get("params", {})] == [
            True
        ]


async def test_a_cancelled_request_is_cancelled_at_the_server_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairway.proxy.stdio.DRAIN", 0.3)  # what stays pending is never answered
    async with served() as running:
        client, other = await Client.open(running), await Client.open(running)
        pending = await client.start("slow", request_id="s")
        foreign = await other.start("slow", request_id="s")
        await until(lambda: len(bridge_of(running).link.pending) == 2)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": "s", "reason": "enough"}}
        assert await client.tell(cancel) == 202
        assert (await pending.reply()).message["error"]["message"] == "the request was cancelled"
        sent = said((await client.call("sent")).message)
        mine = next(m["id"] for m in sent if m.get("params", {}).get("name") == "slow")
        assert [m["params"] for m in sent if m["method"] == "notifications/cancelled"] == [
            {"requestId": mine, "reason": "enough"}
        ]
        assert len(bridge_of(running).link.pending) == 1
        foreign.close()


async def test_hanging_up_is_no_cancellation_in_the_session_era_and_is_one_in_the_modern_era(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairway.proxy.stdio.DRAIN", 0.3)  # what stays pending is never answered
    async with served() as running:
        client = await Client.open(running)
        staying = await client.start("slow", seconds=20)
        await until(lambda: len(bridge_of(running).link.pending) == 1)
        staying.close()
        message, headers = modern("tools/call", {"name": "slow", "arguments": {"seconds": 20}})
        leaving = await running.client()
        leaving.post(message, headers)
        await until(lambda: len(bridge_of(running).link.pending) == 2)
        leaving.close()
        await until(lambda: len(bridge_of(running).link.pending) == 1)
        sent = said((await client.call("sent")).message)
        cancelled = [m["params"]["requestId"] for m in sent if m["method"] == "notifications/cancelled"]
        slow = [m["id"] for m in sent if m.get("params", {}).get("name") == "slow"]
        assert cancelled == slow[1:]


async def test_the_server_may_ask_its_only_client() -> None:
    async with served() as running:
        client = await Client.open(running, sampling={})
        asking = await client.start("ask", request_id="a")
        events = Events(asking)
        assert (await asking.head()).headers["content-type"] == "text/event-stream"
        asked = await events.next()
        assert (asked["method"], asked["params"]) == ("sampling/createMessage", {"n": 1})
        stranger = await running.ask({"jsonrpc": "2.0", "id": asked["id"], "result": {"stolen": 1}}, {**ACCEPT})
        assert stranger.status == 400
        assert await client.tell({"id": asked["id"], "result": {"role": "assistant"}}) == 202
        answer = said(await events.next())
        assert answer == {"jsonrpc": "2.0", "id": "server-1", "result": {"role": "assistant"}}


@pytest.mark.parametrize("why", ["two sessions", "no capability", "unknown method", "a modern call"])
async def test_otherwise_the_server_is_told_that_nobody_can_be_asked(why: str) -> None:
    async with served() as running:
        client = await Client.open(running, **({} if why == "no capability" else {"sampling": {}}))
        if why == "two sessions":
            await Client.open(running, sampling={})
        if why == "a modern call":
            message, headers = modern("tools/call", {"name": "slow", "arguments": {"seconds": 20}})
            other = await running.client()
            other.post(message, headers)
            await until(lambda: len(bridge_of(running).link.pending) == 1)
        method = "secrets/reveal" if why == "unknown method" else "sampling/createMessage"
        reply = await client.call("ask", method=method)
        assert said(reply.message)["error"]["code"] in (-32600, -32601)


async def test_logs_reach_the_only_session_and_nobody_when_there_are_two() -> None:
    async with served() as running:
        client = await Client.open(running)
        events = events_of(await client.call("log", data="private"))
        assert [event.get("method") for event in events] == ["notifications/message", None]
        other = await Client.open(running)
        listening = await other.stream()
        reply = await client.call("log", data="private")
        assert reply.headers["content-type"] == "application/json"
        await other.call("grow")
        assert (await listening.next())["method"] == "notifications/tools/list_changed"


async def test_a_session_ends_with_delete_and_is_not_found_afterwards() -> None:
    async with served() as running:
        client = await Client.open(running)
        pending = await client.start("slow", request_id=5)
        await until(lambda: len(bridge_of(running).link.pending) == 1)
        connection = await running.client()
        connection.get(client.headers, method="DELETE")
        assert (await connection.reply()).status == 200
        assert "ended" in (await pending.reply()).error
        assert (await client.call("echo")).status == 404
        await until(lambda: not bridge_of(running).link.pending)


async def test_requests_of_the_session_era_need_a_session() -> None:
    async with served() as running:
        reply = await running.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, ACCEPT)
        assert (reply.status, reply.message["error"]["code"]) == (400, -32600)
        assert "Mcp-Session-Id" in reply.error
        stranger = Client(running, "made-up")
        assert (await stranger.call("echo")).status == 404
        connection = await running.client()
        connection.get({**ACCEPT, "MCP-Protocol-Version": "2025-11-25"})
        assert (await connection.reply()).status == 400


async def test_watchers_of_a_resource_hear_of_it_and_others_do_not() -> None:
    async with served() as running:
        watcher, other = await Client.open(running), await Client.open(running)
        streams = [await watcher.stream(), await other.stream()]
        assert (await watcher.ask("resources/subscribe", {"uri": "a://b"})).message["result"] == {}
        await other.call("touch", uri="a://b")
        await other.call("grow")
        assert (await streams[0].next())["params"] == {"uri": "a://b"}
        assert (await streams[1].next())["method"] == "notifications/tools/list_changed"
        await watcher.ask("resources/unsubscribe", {"uri": "a://b"})
        sent = said((await other.call("sent")).message)
        assert [m["method"] for m in sent if m["method"].endswith("subscribe")] == [
            "resources/subscribe",
            "resources/unsubscribe",
        ]


# the modern era


async def test_a_modern_client_discovers_lists_and_calls_without_a_session() -> None:
    async with served() as running:
        found = (await running.ask(*modern("server/discover"))).message["result"]
        assert (found["supportedVersions"], found["resultType"]) == (["2026-07-28"], "complete")
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "lines"
        assert "logging" not in found["capabilities"]
        listed = (await running.ask(*modern("tools/list", request_id="l"))).message
        assert (listed["id"], listed["result"]["resultType"], listed["result"]["cacheScope"]) == (
            "l",
            "complete",
            "private",
        )
        reply = await running.ask(*modern("tools/call", {"name": "echo", "arguments": {"n": 2}}))
        assert (said(reply.message), reply.message["result"]["resultType"]) == ({"n": 2}, "complete")
        sent = said((await running.ask(*modern("tools/call", {"name": "sent", "arguments": {}}))).message)
        marked = [m for m in sent if "io.modelcontextprotocol" in json.dumps(m)]
        assert marked == []  # servers of the session era refuse what is marked as modern
        assert len(bridge_of(running).sessions) == 0


async def test_modern_progress_comes_on_the_answers_own_stream() -> None:
    async with served() as running:
        message, headers = modern("tools/call", {"name": "progress", "arguments": {}}, progressToken=99)
        *progress, answer = events_of(await running.ask(message, headers))
        assert [event["params"]["progressToken"] for event in progress] == [99] * 3
        assert said(answer) == "done"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Mcp-Method": "tools/list"}, 400, -32020),
        ({"Mcp-Name": "other"}, 400, -32020),
        ({"MCP-Protocol-Version": "2027-01-01"}, 400, -32020),
    ],
)
async def test_headers_that_say_otherwise_than_the_body_are_refused(change: Any, status: int, code: int) -> None:
    async with served() as running:
        message, headers = modern("tools/call", {"name": "echo", "arguments": {}})
        reply = await running.ask(message, {**headers, **change})
        assert (reply.status, reply.message["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("ping", {}, 404, -32601),
        ("logging/setLevel", {"level": "info"}, 404, -32601),
        ("nothing/known", {}, 404, -32601),
        ("resources/read", {"uri": "a://b"}, 400, -32602),
        ("tools/call", {"name": "nope"}, 400, -32602),
    ],
)
async def test_errors_have_the_status_that_the_modern_era_gives_them(
    method: str, params: Any, status: int, code: int
) -> None:
    async with served() as running:
        reply = await running.ask(*modern(method, params, request_id="e"))
        assert (reply.status, reply.message["id"], reply.message["error"]["code"]) == (status, "e", code)


async def test_an_unknown_revision_is_answered_with_those_that_are_known() -> None:
    async with served() as running:
        message, headers = modern("tools/list")
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2027-01-01"
        reply = await running.ask(message, {**headers, "MCP-Protocol-Version": "2027-01-01"})
        assert (reply.status, reply.message["error"]["code"]) == (400, -32022)
        assert reply.message["error"]["data"]["supported"] == ["2026-07-28"]


async def test_a_modern_client_listens_for_what_it_asked_for_and_nothing_else() -> None:
    async with served() as running:
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a://b"]}
        message, headers = modern("subscriptions/listen", {"notifications": wanted}, request_id="sub")
        listening = await running.client()
        listening.post(message, headers)
        assert (await listening.head()).headers["content-type"] == "text/event-stream"
        events = Events(listening)
        first = await events.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}
        await running.ask(*modern("tools/call", {"name": "touch", "arguments": {"uri": "a://other"}}))
        await running.ask(*modern("tools/call", {"name": "touch", "arguments": {"uri": "a://b"}}))
        await running.ask(*modern("tools/call", {"name": "grow", "arguments": {}}))
        updated, grown = await events.next(), await events.next()
        assert updated["params"]["uri"] == "a://b"
        assert grown["method"] == "notifications/tools/list_changed"
        for event in (first, updated, grown):
            assert event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
        listening.close()
        await until(lambda: not bridge_of(running).news.streams())


async def test_get_is_not_allowed_in_the_modern_era() -> None:
    async with served() as running:
        client = await running.client()
        client.get({"MCP-Protocol-Version": "2026-07-28"})
        assert (await client.reply()).status == 405


# the process


async def test_a_server_that_dies_is_started_again_and_who_waited_gets_an_error() -> None:
    async with served() as running:
        client = await Client.open(running)
        listening = await client.stream()
        first = said((await client.call("pid")).message)
        waiting = await client.start("slow", request_id="w")
        streaming = await client.start("progress", request_id="s", meta={"progressToken": 1}, steps=1)
        assert events_of(await streaming.reply())
        await until(lambda: len(bridge_of(running).link.pending) == 1)
        crash = await client.call("crash", request_id="c")
        assert (crash.status, crash.message["id"]) == (502, "c")
        assert crash.error == "the server's process ended with exit code 7: it hurts"
        lost = await waiting.reply()
        assert (lost.status, lost.message["id"], lost.error) == (502, "w", crash.error)
        down = await client.call("pid")
        assert (down.status, down.headers["retry-after"]) == (503, "1")
        await until(lambda: bridge_of(running).link.up)
        assert said((await client.call("pid")).message) != first  # the session went on
        assert (await listening.next())["method"] == "notifications/tools/list_changed"


async def test_a_server_that_cannot_start_is_explained() -> None:
    async with proxy(route(upstream=command("die")), ready=False) as running:
        await until(lambda: "no license" in running.live().upstream.endpoints[0].message)
        reply = await running.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "ended with exit code 1: no license found" in reply.error
    missing = Upstream(transport="stdio", command=Command(argv=("no-such-program",)))
    async with proxy(route(upstream=missing), ready=False) as running:
        await until(lambda: "not in PATH" in running.live().upstream.endpoints[0].message)


async def test_noise_among_the_messages_does_no_harm() -> None:
    async with served() as running:
        client = await Client.open(running)
        assert said((await client.call("noise")).message) == "noisy"
        assert bridge_of(running).link.noise == 2


async def test_the_server_gets_only_the_variables_it_is_meant_to(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PROXY_SECRET", "never")
    monkeypatch.setenv("WANTED", "yes")
    (tmp_path / "token").write_text("s3cret\n")
    settings = {"env": {"PLAIN": "1"}, "env_files": {"TOKEN": str(tmp_path / "token")}, "inherit": ("WANTED",)}
    async with served(cwd=str(tmp_path), **settings) as running:
        client = await Client.open(running)
        seen = said((await client.call("env")).message)
        assert {name: seen.get(name) for name in ("PLAIN", "TOKEN", "WANTED", "PROXY_SECRET")} == {
            "PLAIN": "1",
            "TOKEN": "s3cret",
            "WANTED": "yes",
            "PROXY_SECRET": None,
        }
        assert Path(seen["PWD"]) == tmp_path


async def test_raw_line_ends_in_a_body_are_no_line_ends_to_the_server() -> None:
    async with served() as running:
        client = await Client.open(running)
        connection = await running.client()
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"a": "\n"}},
        }
        connection.post(json.dumps(message, indent=2).replace("\n", "\r\n").encode(), client.headers)
        assert said((await connection.reply()).message) == {"a": "\n"}


async def test_hidden_tools_are_neither_listed_nor_called() -> None:
    async with served(tools=Tools(filter=("echo",))) as running:
        client = await Client.open(running)
        listed = await client.ask("tools/list")
        assert [tool["name"] for tool in listed.message["result"]["tools"]] == ["echo"]
        assert (await client.call("pid")).message["error"]["code"] == -32602
        modern_list = (await running.ask(*modern("tools/list"))).message["result"]
        assert [tool["name"] for tool in modern_list["tools"]] == ["echo"]


async def test_many_requests_on_one_connection_are_answered_in_order() -> None:
    async with served() as running:
        client = await Client.open(running)
        connection = await running.client()
        for n in range(3000):
            connection.post({"jsonrpc": "2.0", "id": n, "method": "nothing"}, {**ACCEPT})  # refused without the server
        connection.post({"jsonrpc": "2.0", "id": "end", "method": "ping"}, client.headers)
        async with asyncio.timeout(60):
            assert {(await connection.reply()).status for _ in range(3000)} == {400}
            assert (await connection.reply()).message["id"] == "end"


async def test_the_server_ends_with_the_proxy_even_if_it_does_not_want_to(monkeypatch: Any) -> None:
    monkeypatch.setattr("fairway.proxy.stdio.GRACE", 0.3)
    async with served("ignore-term", "linger") as running:
        client = await Client.open(running)
        pid = int(said((await client.call("pid")).message))
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def bridge_of(running: Proxy) -> Any:
    return running.live().upstream.endpoints[0].bridge
