"""The old HTTP+SSE transport through the proxy: servers that speak it, and servers on lines that are served over it."""

import asyncio
import json

import pytest

from fairway.api.policy import NO_POLICY, Policy, Sessions
from fairway.api.proxystatus import EndpointState
from fairway.api.runconfig import RunConfig, Tools, Upstream, encode
from fairway.proxy.files import ConfigFiles
from fairway.proxy.legacy import read_target, session_of
from fairway.proxy.lists import UnreadableList
from tests.unit.proxy.guarded import Idp, audited, cedar, lines, permit
from tests.unit.proxy.old_server import OldClient, old_server
from tests.unit.proxy.serving import call, free_port, listing, proxy, route, until
from tests.unit.proxy.test_stdio import command

pytestmark = pytest.mark.anyio
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def sse(*addresses: str, **settings):
    upstream = settings.pop("upstream", None) or Upstream(transport="sse", addresses=addresses, path="/sse")
    return route(upstream=upstream, mode="sse", path="/sse", **settings)


def text(answer) -> str:
    return answer["result"]["content"][0]["text"]


async def test_a_client_is_told_to_post_to_the_proxy_and_the_server_hears_its_own_words():
    async with old_server() as backend, proxy(sse(backend.address)) as front:
        client = await OldClient.open(front)
        assert client.endpoint.startswith("/sse?sessionId=")
        assert "session_id" not in client.endpoint
        assert (await client.ask(INITIALIZE))["result"]["serverInfo"]["name"] == "old"
        assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        message = call("add", a=1)
        assert json.loads(text(await client.ask(message)))["said"] == message["params"]
        got = backend.got[-1]
        assert (got.method, got.message) == ("POST", message)
        assert got.target == "/messages?session_id=2&x=1"
        assert got.header("host") == f"localhost:{backend.port}"
        client.close()


async def test_two_servers_keep_their_own_sessions_and_share_them_out():
    async with old_server() as one, old_server() as two, proxy(sse(one.address, two.address)) as front:
        await until(lambda: all(e.good for e in front.live().upstream.endpoints))
        clients = [await OldClient.open(front) for _ in range(6)]
        first = [json.loads(text(await client.ask(call())))["port"] for client in clients]
        again = [json.loads(text(await client.ask(call())))["port"] for client in clients]
        assert first == again
        assert sorted(first) == sorted([one.port] * 3 + [two.port] * 3)
        for client in clients:
            client.close()
        await until(lambda: all(e.in_flight == 0 for e in front.live().upstream.endpoints))
        assert not front.live().streams


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("messages/1", "/messages/1"),
        ("?id=%d", "/sse?id=2"),
        ("http://elsewhere.example:99/m?a=b#c", "/m?a=b"),
        ("//elsewhere.example/m", "/m"),
        ("/a b", None),
        ("/a\x7f", None),
        ("http://[", None),
        ("/" + "a" * 5000, None),
    ],
)
async def test_wherever_a_server_points_messages_go_to_itself_or_nowhere(endpoint, target):
    async with old_server() as backend, proxy(sse(backend.address)) as front:
        backend.endpoint = endpoint
        if target is None:
            stream = await front.client()
            stream.get(path="/sse")
            head = await stream.head()
            if head.status == 200:  # the stream had begun already
                rest = await stream.closed()
                assert b"endpoint" not in rest
                assert b"\r\n0\r\n\r\n" not in rest  # half a stream does not look whole
            else:
                assert head.status == 502
                stream.close()
        else:
            client = await OldClient.open(front)
            reply = await client.post(call())
            assert reply.status == 404  # as this server says of paths without a session
            assert backend.got[-1].target == target
            client.close()


def test_a_target_is_a_path_of_the_server():
    assert read_target(b"/m?a=1", "/sse") == "/m?a=1"
    assert read_target(b"../m", "/a/b/sse") == "/a/m"
    assert read_target(b"", "/sse") == "/sse"
    with pytest.raises(UnreadableList):
        read_target(b"/a\r\nHost: b", "/sse")
    with pytest.raises(UnreadableList):
        read_target(b"/\xff", "/sse")


def test_of_two_session_ids_none_counts():
    assert session_of(b"a=b&sessionId=x") == "x"
    assert session_of(b"sessionId=x&sessionId=y") is None
    assert session_of(b"sessionId=") is None
    assert session_of(b"") is None


async def test_a_client_of_the_newer_transport_is_sent_to_the_older_one():
    async with old_server() as backend, proxy(sse(backend.address)) as front:
        client = await front.client()
        client.post(INITIALIZE, path="/sse")
        reply = await client.reply()
        assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
        for method in ("DELETE", "HEAD"):
            client = await front.client()
            client.get(method=method, path="/sse")
            assert (await client.reply(to_head=method == "HEAD")).status == 405
        assert not backend.got


async def test_what_is_refused_is_told_on_the_stream_where_clients_listen():
    tools = Tools(filter=("add",))
    async with old_server() as backend, proxy(sse(backend.address, tools=tools)) as front:
        client = await OldClient.open(front)
        assert [tool["name"] for tool in (await client.ask(listing()))["result"]["tools"]] == ["add"]
        refused = await client.ask(call("secret", request_id="x"))
        assert (refused["id"], refused["error"]["code"]) == ("x", -32602)
        seen = len(backend.got)
        assert (await client.post({"jsonrpc": "2.0", "method": "tools/call"})).status == 400
        assert (await client.post(b"[]")).status == 400
        assert len(backend.got) == seen
        assert "port" in text(await client.ask(call("add")))
        client.close()


async def test_a_session_is_its_owners_and_nobody_else_hears_of_what_is_refused(tmp_path):
    idp = Idp(tmp_path)
    policy = Policy(
        authentication=idp.authentication(),
        authorization=cedar(permit("call_tool", 'Tool::"add"', "alice"), permit("call_tool", 'Tool::"secret"', "bob")),
        audit=audited(tmp_path / "audit"),
    )
    async with old_server() as backend, proxy(sse(backend.address, policy=policy)) as front:
        stranger = await front.client()
        stranger.get(path="/sse")
        assert (await stranger.reply()).status == 401
        alice = await OldClient.open(front, idp.headers("alice"))
        assert [tool["name"] for tool in (await alice.ask(listing()))["result"]["tools"]] == ["add"]
        assert "port" in text(await alice.ask(call("add")))
        assert (await alice.ask(call("secret", request_id=7)))["error"]["code"] == 403
        seen = len(backend.got)
        for headers in (idp.headers("bob"), {}):
            stolen = await alice.post(call("secret", request_id=8), headers=headers)
            assert stolen.status == (404 if headers else 401)
        assert (await alice.post(call("add"), endpoint="/sse?sessionId=made-up")).status == 404
        assert len(backend.got) == seen
        assert "port" in text(await alice.ask(call("add", request_id=9)))  # and nothing else was on her stream
        assert all("authorization" not in {name.lower() for name, _ in got.headers} for got in backend.got)
        alice.close()
        await until(lambda: any(line["method"] == "GET" for line in lines(tmp_path / "audit")))
        calls = [line for line in lines(tmp_path / "audit") if line["method"] == "tools/call"]
        assert {(line["name"], line["status"]) for line in calls} == {("add", 202), ("secret", 403), ("secret", 404),
            ("secret", 401), ("add", 404)} - {("secret", 401)}  # fmt: skip


async def test_a_limit_is_told_on_the_stream_too(tmp_path):
    from fairway.api.policy import Bucket, RateLimit

    policy = Policy(rate_limit=RateLimit(shared=Bucket(tokens=3, per=3600)))
    async with old_server() as backend, proxy(sse(backend.address, policy=policy)) as front:
        client = await OldClient.open(front)
        answers = [await client.ask(call("add", request_id=n)) for n in range(4)]
        assert ["result" in answer for answer in answers] == [True, True, False, False]
        assert answers[-1]["id"] == 3
        client.close()


async def test_replicas_that_share_a_key_take_each_others_messages(tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 32)
    policy = Policy(sessions=Sessions(key_files=(str(tmp_path / "key"),)))
    async with old_server() as backend:
        served = sse(backend.address, policy=policy, tools=Tools(filter=("add",)))
        async with proxy(served) as one, proxy(served) as two:
            client = await OldClient.open(one)
            client.front = two
            assert "port" in text(await client.ask(call("add")))
            refused = await client.post(call("secret"))
            assert refused.status == 400  # the stream is not held there
            client.close()


async def test_a_new_filter_holds_for_streams_that_are_open(tmp_path):
    async with old_server() as backend:
        port = free_port()

        def write(**settings):
            config = RunConfig(version=1, routes=(sse(backend.address, port=port, **settings),))
            (tmp_path / "new").write_bytes(encode(config))
            (tmp_path / "new").replace(tmp_path / "run.json")

        write()
        async with proxy(configs=ConfigFiles(tmp_path / "run.json")) as front:
            client = await OldClient.open(front)
            assert len((await client.ask(listing()))["result"]["tools"]) == 2
            write(tools=Tools(filter=("add",)))
            await until(lambda: front.live().route.tools.filter == ("add",))
            assert len((await client.ask(listing()))["result"]["tools"]) == 1
            client.close()


@pytest.mark.parametrize("kind", ["server", "lines"])
async def test_a_proxy_that_ends_waits_for_answers_that_are_still_to_come(kind):
    async with old_server() as backend:
        backend.silent = {"slow"}
        upstream = None if kind == "server" else command()
        async with proxy(sse(backend.address, upstream=upstream)) as front:
            idle, busy = await OldClient.open(front), await OldClient.open(front)
            if kind == "lines":
                for client in (idle, busy):
                    await client.ask(INITIALIZE)
            assert (await busy.post(call("slow", seconds=1))).status == 202
            ending = asyncio.create_task(front.gateway.stop(grace=20))
            assert await idle.event() is None
            if kind == "server":
                number = max(backend.streams)
                backend.say(number, {"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
                backend.say(number, {"jsonrpc": "2.0", "id": 1, "result": {"late": True}})
                assert (await busy.next())["method"] == "notifications/message"
            assert (await busy.next())["id"] == 1
            assert await busy.event() is None
            await ending


async def test_the_status_says_what_is_wrong_with_a_server_of_another_kind():
    async with old_server() as backend:
        async with proxy(sse(backend.address)) as front:
            said = front.gateway.status().routes[0]
            assert (said.server.name, said.tools.names) == ("old", ("add", "secret"))
        newer = Upstream(addresses=(backend.address,), path="/mcp")
        backend.silent = {"x"}
        async with proxy(route(upstream=newer), ready=False) as front:
            await until(lambda: front.live().upstream.endpoints[0].state is EndpointState.FAILED)
            assert front.live().upstream.endpoints[0].message.endswith("spec.transport is streamable-http, try sse")


# servers on lines


async def test_a_server_on_lines_is_served_over_the_old_transport():
    async with proxy(sse(upstream=command())) as front:
        one, two = await OldClient.open(front), await OldClient.open(front)
        for client in (one, two):
            assert (await client.ask(INITIALIZE))["result"]["serverInfo"]["name"]
            assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        assert (await one.ask({"jsonrpc": "2.0", "id": "p", "method": "ping"}))["id"] == "p"
        said = await asyncio.gather(*(client.ask(call("echo", who=n)) for n, client in enumerate((one, two))))
        assert [json.loads(text(answer)) for answer in said] == [{"who": 0}, {"who": 1}]
        asked = call("progress", steps=2)
        asked["params"]["_meta"] = {"progressToken": "mine"}
        assert (await one.post(asked)).status == 202
        events = [await one.next()]
        while "id" not in events[-1]:
            events.append(await one.next())
        assert {event["params"]["progressToken"] for event in events[:-1]} == {"mine"}
        assert (await one.ask({"jsonrpc": "2.0", "id": 3, "method": "server/discover"}))["error"]["code"] == -32601
        one.close()
        two.close()


async def test_a_session_on_lines_ends_with_its_stream_and_its_calls_are_cancelled():
    async with proxy(sse(upstream=command())) as front:
        bridge = front.live().upstream.endpoints[0].bridge
        client, other = await OldClient.open(front), await OldClient.open(front)
        await client.ask(INITIALIZE)
        await other.ask(INITIALIZE)
        assert (await client.post(call("slow", seconds=60))).status == 202
        assert (await other.post(call("slow", seconds=60, request_id=2))).status == 202
        await until(lambda: len(bridge.link.pending) == 2)
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        assert (await other.post(told)).status == 202
        assert "cancelled" in (await other.next())["error"]["message"]
        client.close()
        await until(lambda: len(bridge.sessions) == 1 and not bridge.link.pending)
        other.close()
        await until(lambda: not bridge.sessions.all())
        assert (await client.post(call("echo"))).status == 404


async def test_a_server_on_lines_that_dies_answers_its_calls_with_an_error_and_the_session_lives_on():
    async with proxy(sse(upstream=command())) as front:
        client = await OldClient.open(front)
        await client.ask(INITIALIZE)
        assert "error" in await client.ask(call("crash"))
        changed = [(await client.next())["method"] for _ in range(2)]
        assert changed == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
        await until(lambda: front.live().upstream.endpoints[0].good)
        assert "result" in await client.ask(call("echo"))
        client.close()


async def test_the_filter_holds_on_lines_too():
    async with proxy(sse(upstream=command(), tools=Tools(filter=("echo",)), policy=NO_POLICY)) as front:
        client = await OldClient.open(front)
        await client.ask(INITIALIZE)
        assert [tool["name"] for tool in (await client.ask(listing()))["result"]["tools"]] == ["echo"]
        assert (await client.ask(call("pid")))["error"]["code"] == -32602
        client.close()
