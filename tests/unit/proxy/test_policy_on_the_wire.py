"""Policy as clients meet it: who comes in, what they may do, what the server sees of it, and what is written down."""

import asyncio
import json
import time

import pytest

from fairway.api.policy import (
    Authentication,
    Authorization,
    Bucket,
    Cors,
    Headers,
    Policy,
    RateLimit,
    Sessions,
    SetHeader,
    TokenReview,
    ToolLimit,
)
from fairway.api.proxystatus import ConfigState
from fairway.api.runconfig import ToolOverride, Tools
from fairway.mcp.http_message import Request
from fairway.proxy.admin import Admin
from fairway.proxy.files import ConfigFiles
from fairway.proxy.metrics import MIDDLEWARES
from tests.unit.proxy.guarded import PERMIT_ALL, RESOURCE, Idp, audited, cedar, lines, permit
from tests.unit.proxy.serving import call, listing, modern, proxy, route, server, until
from tests.unit.proxy.test_reload import config

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a"


@pytest.fixture
def idp(tmp_path):
    return Idp(tmp_path)


def message(method: str, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


# who comes in


async def test_a_good_token_lets_a_request_through_and_stays_behind_itself(idp):
    async with (
        server() as backend,
        proxy(route(backend.address, policy=Policy(authentication=idp.authentication()))) as front,
    ):
        reply = await front.ask(call(), idp.headers("alice", canary=CANARY))
        assert reply.status == 200
        (got,) = backend.got
        assert got.header("authorization") is None
        assert CANARY not in repr(got)
        assert "Bearer" not in repr(got.headers)


async def test_without_a_token_the_answer_says_where_to_get_one(idp):
    policy = Policy(authentication=idp.authentication(required_scopes=("mcp:tools",)))
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        reply = await front.ask(call())
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == (
            'Bearer scope="mcp:tools", '
            'resource_metadata="https://gw.example.org/.well-known/oauth-protected-resource/mcp"'
        )
        for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
            client = await front.client()
            client.send(f"GET {path} HTTP/1.1\r\nHost: gw.example.org\r\n\r\n".encode())
            document = await client.reply()
            assert document.status == 200
            assert document.headers["access-control-allow-origin"] == "*"
            assert document.message["resource"] == RESOURCE
            assert document.message["scopes_supported"] == ["mcp:tools"]
        assert backend.got == []


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource/other", "/.well-known/openid-configuration"])
async def test_there_is_no_metadata_of_what_is_not_here(idp, path):
    policy = Policy(authentication=idp.authentication())
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        client = await front.client()
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await client.reply()).status == 404


async def test_two_tokens_or_a_token_in_the_url_are_refused(idp):
    policy = Policy(authentication=idp.authentication())
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        token = idp.token()
        client = await front.client()
        client.post(call(), {"Authorization": f"Bearer {token}", "authorization": f"Bearer {idp.token('bob')}"})
        assert (await client.reply()).status == 400
        client = await front.client()
        client.post(call(), {"Authorization": f"Bearer {token}"}, path=f"/mcp?access_token={token}")
        assert (await client.reply()).status == 400
        assert backend.got == []


async def test_who_lacks_a_scope_is_told_which(idp):
    policy = Policy(authentication=idp.authentication(required_scopes=("mcp:admin",)))
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        reply = await front.ask(call(), idp.headers())
        assert reply.status == 403
        assert 'error="insufficient_scope"' in reply.headers["www-authenticate"]
        assert 'scope="mcp:admin"' in reply.headers["www-authenticate"]
        assert backend.got == []


async def test_a_server_that_refuses_the_gateway_does_not_send_the_client_for_another_token(idp):
    async def refuses(conversation, got):
        conversation.json({"error": "who are you"}, status="401 Unauthorized", headers="WWW-Authenticate: Bearer\r\n")

    policy = Policy(authentication=idp.authentication())
    async with server(refuses) as backend, proxy(route(backend.address, policy=policy)) as front:
        reply = await front.ask(call(), idp.headers())
        assert reply.status == 502
        assert "www-authenticate" not in reply.headers


# what they may do


async def test_each_client_may_do_what_policies_permit_it_and_nothing_else(idp):
    policy = Policy(
        authentication=idp.authentication(),
        authorization=cedar(
            permit("call_tool", 'Tool::"add"', "alice"),
            permit("get_prompt", 'Prompt::"greet"'),
            permit("read_resource", 'Resource::"file:///a"'),
        ),
    )
    allowed = [
        ("alice", message("tools/call", name="add")),
        ("bob", message("prompts/get", name="greet")),
        ("bob", message("resources/read", uri="file:///a")),
        ("bob", message("ping")),
        ("bob", {"jsonrpc": "2.0", "id": 5, "result": {}}),
    ]
    denied = [
        ("bob", message("tools/call", name="add"), 403, 403),
        ("alice", message("tools/call", name="secret"), 403, 403),
        ("alice", message("prompts/get", name="other"), 403, 403),
        ("alice", message("resources/read", uri="file:///b"), 403, 403),
        ("alice", message("resources/subscribe", uri="file:///a"), 403, 403),
        ("alice", message("tools/call"), 200, -32602),
        ("alice", message("tools/call", name=["add"]), 200, -32602),
        ("alice", message("admin/everything"), 200, -32601),
        ("alice", message("tasks/get", taskId="1"), 200, -32601),
    ]
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        for who, asked in allowed:
            assert (await front.ask(asked, idp.headers(who))).status == 200, asked
        passed = len(backend.got)
        assert passed == len(allowed)
        for who, asked, status, code in denied:
            reply = await front.ask(asked, idp.headers(who))
            assert (reply.status, reply.message["error"]["code"]) == (status, code), asked
            assert reply.message["id"] == 1
        asked, headers = modern(message("admin/everything"))
        reply = await front.ask(asked, {**idp.headers(), **headers})
        assert (reply.status, reply.message["error"]["code"]) == (404, -32601)
        assert len(backend.got) == passed


LISTS = [
    ("tools/list", "tools", "name", "Tool", "call_tool"),
    ("prompts/list", "prompts", "name", "Prompt", "get_prompt"),
    ("resources/list", "resources", "uri", "Resource", "read_resource"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", "Resource", "read_resource"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("method", "member", "key", "kind", "action"), LISTS)
async def test_lists_show_each_client_what_it_may_use(idp, method, member, key, kind, action, stream):
    items = [{key: name, "x": 1.0} for name in ("a", "b", "c")]

    async def answers(conversation, got):
        result = {"jsonrpc": "2.0", "id": 1, "result": {member: items, "cacheScope": "public", "nextCursor": "n"}}
        if stream:
            conversation.start_chunked()
            conversation.chunk(b"data: " + json.dumps(result).encode() + b"\n\n")
            conversation.end_chunks()
        else:
            conversation.json(result)

    policy = Policy(
        authentication=idp.authentication(),
        authorization=cedar(permit(action, f'{kind}::"a"'), permit(action, f'{kind}::"c"', "bob")),
    )
    async with server(answers) as backend, proxy(route(backend.address, policy=policy)) as front:
        for who, seen in (("alice", ["a"]), ("bob", ["a", "c"]), ("carol", ["a"])):
            reply = await front.ask(message(method), {**idp.headers(who), "Accept-Encoding": "gzip"})
            body = reply.body.removeprefix(b"data: ") if stream else reply.body
            result = json.loads(body)["result"]
            assert [item[key] for item in result[member]] == seen
            assert result["cacheScope"] == "private"
            assert result["nextCursor"] == "n"
        assert backend.got[0].header("accept-encoding") is None


async def test_policies_speak_of_tools_by_the_names_that_clients_know(idp):
    policy = Policy(authentication=idp.authentication(), authorization=cedar(permit("call_tool", 'Tool::"sum"')))
    tools = Tools(override=(ToolOverride(tool="add", name="sum"),))
    async with server() as backend, proxy(route(backend.address, policy=policy, tools=tools)) as front:
        assert (await front.ask(call("sum"), idp.headers())).status == 200
        assert backend.got[0].message["params"]["name"] == "add"
        assert (await front.ask(call("add"), idp.headers())).status == 403
        names = [tool["name"] for tool in (await front.ask(listing(), idp.headers())).message["result"]["tools"]]
        assert names == ["sum"]


async def test_arguments_are_judged_as_the_server_will_see_them(idp):
    policy = Policy(
        authentication=idp.authentication(),
        authorization=cedar(
            'permit(principal, action == Action::"call_tool", resource == Tool::"add")'
            " when { context.arguments.a < 10 };"
        ),
    )
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        assert (await front.ask(call("add", a=9), idp.headers())).status == 200
        assert (await front.ask(call("add", a=10), idp.headers())).status == 403
        twice = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"a":99}}}'
        reply = await front.ask(twice, idp.headers())
        assert reply.message["error"]["code"] == -32602
        assert len(backend.got) == 1


# how often


async def test_limits_hold_for_each_client_and_tool_and_say_when_to_come_back(idp):
    policy = Policy(
        authentication=idp.authentication(),
        rate_limit=RateLimit(
            principal=Bucket(tokens=4, per=600), tools=(ToolLimit(tool="add", principal=Bucket(tokens=2, per=600)),)
        ),
    )
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        alice = idp.headers("alice")
        statuses = [(await front.ask(call("add"), alice)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert [(await front.ask(call("other"), alice)).status for _ in range(3)] == [200, 200, 429]
        again = await front.ask(call("other"), idp.headers("alice", jti="another token of hers"))
        assert again.status == 429
        assert int(again.headers["retry-after"]) > 0
        assert (await front.ask(call("add"), idp.headers("bob"))).status == 200
        assert len(backend.got) == 5


# sessions


def sessions(name: str = "s"):
    """A server that names its sessions 1, 2, 3, and tells which one a call came in."""
    made = []

    async def answers(conversation, got):
        session = got.header("mcp-session-id")
        if got.method == "POST" and got.message["method"] == "initialize":
            made.append(f"{name}{len(made)}")
            conversation.json({"id": 1, "result": {}}, headers=f"Mcp-Session-Id: {made[-1]}\r\n")
        else:
            headers = f"Mcp-Session-Id: {session}\r\n" if session else ""
            conversation.json({"id": 1, "result": {"session": session}}, headers=headers)

    return answers


async def test_a_session_is_its_owners_and_the_server_only_hears_its_own_name_for_it(idp):
    policy = Policy(authentication=idp.authentication())
    async with server(sessions()) as backend, proxy(route(backend.address, policy=policy)) as front:
        alice, bob = idp.headers("alice"), idp.headers("bob")
        opened = await front.ask(message("initialize"), alice)
        sealed = opened.headers["mcp-session-id"]
        assert len(sealed) > 100
        mine = await front.ask(call(), {**alice, "Mcp-Session-Id": sealed})
        assert mine.message["result"] == {"session": "s0"}
        assert mine.headers["mcp-session-id"] == sealed
        another_token = await front.ask(call(), {**idp.headers("alice", jti="2"), "Mcp-Session-Id": sealed})
        assert another_token.status == 200
        before = len(backend.got)
        stolen = await front.ask(call(), {**bob, "Mcp-Session-Id": sealed})
        made_up = await front.ask(call(), {**alice, "Mcp-Session-Id": "s0"})
        assert (stolen.status, made_up.status) == (404, 404)
        assert stolen.body == made_up.body
        assert len(backend.got) == before


async def test_in_the_modern_era_there_are_no_sessions_and_nothing_of_one_passes():
    async with server(sessions()) as backend, proxy(route(backend.address)) as front:
        asked, headers = modern(call())
        reply = await front.ask(asked, {**headers, "Mcp-Session-Id": "s0"})
        assert reply.status == 200
        assert backend.got[0].header("mcp-session-id") is None


async def test_replicas_that_share_a_key_serve_each_others_sessions(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    policy = Policy(sessions=Sessions(key_files=(str(key),)))
    async with server(sessions()) as backend:
        shared = route(backend.address, policy=policy)
        async with proxy(shared) as one, proxy(shared) as two, proxy(route(backend.address)) as stranger:
            session = (await one.ask(message("initialize"))).headers["mcp-session-id"]
            reply = await two.ask(call(), {"Mcp-Session-Id": session})
            assert reply.message["result"] == {"session": "s0"}
            assert (await stranger.ask(call(), {"Mcp-Session-Id": session})).status == 404


# headers


async def test_only_what_mcp_needs_and_what_is_configured_reaches_the_server(tmp_path):
    token = tmp_path / "token"
    token.write_text("upstream-credential\n")
    policy = Policy(
        headers=Headers(
            set=(
                SetHeader(name="Authorization", value_file=str(token), prefix="Bearer "),
                SetHeader(name="User-Agent", value="gateway"),
            ),
            forward=("X-Team",),
        )
    )
    spoofed = {"X-Forwarded-User": "root", "X-Team": "a", "X-Api-Key": "k", "Cookie": "c", "Via": "v", "Origin": ""}
    del spoofed["Origin"]
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        backend.calls = sessions()  # the agent's name is the gateway's, so the server cannot tell tests by it
        reply = await front.ask(call(), {"Authorization": "Bearer client", **spoofed})
        assert reply.status == 200
        got = backend.got[-1]
        names = sorted(name.lower() for name, _ in got.headers)
        assert names == ["authorization", "content-length", "content-type", "host", "user-agent", "x-team"]
        assert got.header("authorization") == "Bearer upstream-credential"
        assert got.header("user-agent") == "gateway"


async def test_without_its_credential_no_request_goes_to_the_server(tmp_path):
    missing = SetHeader(name="Authorization", value_file=str(tmp_path / "missing"))
    policy = Policy(headers=Headers(set=(missing,)))
    async with server() as backend, proxy(route(backend.address, policy=policy), ready=False) as front:
        await until(lambda: front.live().upstream.endpoints[0].message != "")
        assert str(tmp_path / "missing") in front.live().upstream.endpoints[0].message
        await until(lambda: bool(front.live().listens_on))
        reply = await front.ask(call())
        assert reply.status == 503
        assert "missing" in reply.error
        assert str(tmp_path) not in reply.error
        assert backend.got == []


# pages


async def test_a_page_that_is_configured_is_told_so_by_every_answer(idp):
    page = "https://app.example.org"
    policy = Policy(authentication=idp.authentication(), cors=Cors(allowed_origins=(page,), allowed_hosts=("gw",)))

    async def answers(conversation, got):
        conversation.json({"id": 1, "result": {}}, headers="Access-Control-Allow-Origin: *\r\n")

    async with server(answers) as backend, proxy(route(backend.address, policy=policy)) as front:
        client = await front.client()
        client.get({"Host": "gw", "Origin": page, "Access-Control-Request-Method": "POST"}, method="OPTIONS")
        preflight = await client.reply()
        assert preflight.status == 204
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        for token in (idp.headers(), {}):
            reply = await front.ask(call(), {"Host": "gw", "Origin": page, **token})
            assert reply.status == (200 if token else 401)
            assert reply.headers["access-control-allow-origin"] == page
        assert (await front.ask(call(), {"Host": "gw", "Origin": "https://evil.example"})).status == 403
        assert (await front.ask(call(), {"Host": "evil.example", **idp.headers()})).status == 403
        assert len(backend.got) == 1


# what is written down and counted


async def test_every_request_is_written_down_once_and_says_who_did_what(idp, tmp_path):
    log = tmp_path / "audit.log"
    policy = Policy(
        authentication=idp.authentication(),
        authorization=cedar(permit("call_tool", 'Tool::"add"')),
        audit=audited(log, arguments=True, redact=("pin",)),
    )
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        await front.ask(call("add", a=1, pin="1234"), {**idp.headers(), "traceparent": parent, "tracestate": "v=1"})
        await front.ask(call("secret"), idp.headers("bob"))
        await front.ask(call("add"))
        await until(lambda: len(lines(log)) == 3)
        traced = backend.got[0].header("traceparent")
        assert traced.split("-")[1] == parent.split("-")[1]
        assert traced.split("-")[2] != parent.split("-")[2]
        assert backend.got[0].header("tracestate") == "v=1"
    done, denied, unknown = lines(log)
    assert (done["subject"], done["name"], done["outcome"], done["status"]) == ("alice", "add", "success", 200)
    assert done["arguments"] == {"a": 1, "pin": "[redacted]"}
    assert done["trace"] == parent.split("-")[1]
    assert (denied["subject"], denied["outcome"], denied["code"]) == ("bob", "denied", 403)
    assert (unknown["subject"], unknown["outcome"], unknown["status"]) == ("", "denied", 401)
    assert "1234" not in log.read_text()


async def test_every_part_of_the_pipeline_is_counted_once_for_each_request(idp, tmp_path):
    policy = Policy(
        authentication=idp.authentication(),
        authorization=PERMIT_ALL,
        rate_limit=RateLimit(shared=Bucket(tokens=1000)),
        cors=Cors(allowed_origins=("https://app.example.org",)),
        audit=audited(tmp_path / "audit.log"),
    )
    tools = Tools(filter=("add", "secret"))
    async with server(sessions()) as backend, proxy(route(backend.address, policy=policy, tools=tools)) as front:
        token = idp.headers()
        session = (await front.ask(message("initialize"), token)).headers["mcp-session-id"]
        client = await front.client()
        for _ in range(20):
            assert (await client.ask(call(), {**token, "Mcp-Session-Id": session})).status == 200
        counts = front.live().counts
        counted = {name: getattr(counts, name) for name in MIDDLEWARES}
        assert counted == dict.fromkeys(MIDDLEWARES, 21) | {"sessions": 20, "tools": 20}
        assert counts.tool_calls == {("add", 200): 20}
        text = Admin(front.gateway, terminating=lambda: False)._metrics().decode()
        for name, count in counted.items():
            assert f'fairway_proxy_middleware_total{{route="default/a",middleware="{name}"}} {count}' in text


# reload


async def test_open_streams_are_judged_again_when_the_policy_changes(idp, tmp_path):
    async def streams(conversation, got):
        conversation.start_chunked()
        conversation.chunk(b": open\n\n")
        await conversation.gone()

    def settings(*policies: str):
        guarded = Policy(authentication=idp.authentication(), authorization=cedar(*policies))
        return config(route(backend.address, policy=guarded, port=port))

    listen, headers = modern(message("subscriptions/listen", notifications={"resourceSubscriptions": ["file:///a"]}))
    path = tmp_path / "run.json"
    port = 0
    allowed = [permit("subscribe", 'Resource::"file:///a"', who) for who in ("alice", "bob")]
    async with server(streams) as backend:
        path.write_bytes(settings(*allowed))
        async with proxy(configs=ConfigFiles(path)) as front:
            clients = {}
            for who in ("alice", "bob"):
                clients[who] = await front.client()
                clients[who].post(listen, {**idp.headers(who), **headers})
                assert (await clients[who].head()).status == 200
                assert await clients[who].chunk() == b": open\n\n"
            path.write_bytes(settings(allowed[0]))
            assert await clients["bob"].chunk() == b""
            assert (await front.ask(listen, {**idp.headers("bob"), **headers})).status == 403
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await clients["alice"].chunk()


async def test_an_open_stream_ends_with_its_token(idp):
    async def streams(conversation, got):
        conversation.start_chunked()
        conversation.chunk(b": open\n\n")
        await conversation.gone()

    policy = Policy(authentication=idp.authentication(leeway=0))
    async with server(streams) as backend, proxy(route(backend.address, policy=policy)) as front:
        client = await front.client()
        client.get(idp.headers(exp=int(time.time()) + 2))
        assert (await client.head()).status == 200
        assert await client.chunk() == b": open\n\n"
        async with asyncio.timeout(10):
            assert await client.chunk() == b""
        client.get(idp.headers())
        assert (await client.head()).status == 200


async def test_a_policy_that_cannot_be_used_lets_nobody_in_and_is_no_reason_to_forget_a_good_one(idp, tmp_path):
    def settings(text: str):
        return config(route(backend.address, policy=Policy(authorization=cedar(text))))

    path = tmp_path / "run.json"
    async with server() as backend:
        path.write_bytes(settings("permit(principal, action"))
        async with proxy(configs=ConfigFiles(path), ready=False) as front:
            await until(lambda: front.live().ready)
            assert (await front.ask(call())).status == 503
            status = front.gateway.status()
            assert not front.gateway.ready
            assert status.routes[0].hash == ""
            assert not status.routes[0].ready
            assert "policies[0]" in status.routes[0].error
            assert status.config.state is ConfigState.INVALID
            path.write_bytes(settings(permit("call_tool", 'Tool::"add"')))
            await until(lambda: front.gateway.ready)
            good = front.gateway.status().routes[0].hash
            assert (await front.ask(call("add"))).status == 200
            path.write_bytes(settings("permit(principal, action, resource); nonsense"))
            await until(lambda: front.gateway.status().config.state is ConfigState.INVALID)
            assert front.gateway.status().routes[0].hash == good
            assert (await front.ask(call("add"))).status == 200
            assert (await front.ask(call("secret"))).status == 403
        assert {got.message["params"]["name"] for got in backend.got} == {"add"}


async def test_policy_files_come_into_force_when_they_change(tmp_path):
    file = tmp_path / "a.cedar"
    file.write_text(permit("call_tool", 'Tool::"add"'))
    policy = Policy(authorization=Authorization(policy_files=(str(file),)))
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        assert (await front.ask(call("secret"))).status == 403
        file.write_text(permit("call_tool", 'Tool::"secret"'))
        await until(lambda: front.live().policy.guards.authorizer.counts.evaluated == 0)
        assert (await front.ask(call("secret"))).status == 200
        assert (await front.ask(call("add"))).status == 403
        file.write_text("nonsense")
        await until(lambda: front.live().error != "")
        assert str(file) in front.gateway.status().routes[0].error
        assert (await front.ask(call("secret"))).status == 200
        file.write_text(permit("call_tool", 'Tool::"add"'))
        await until(lambda: front.live().error == "")
        assert (await front.ask(call("secret"))).status == 403


async def test_the_settings_in_force_are_shown_without_what_is_secret(idp):
    policy = Policy(headers=Headers(set=(SetHeader(name="X-Key", value="hidden-value"),)))
    async with server() as backend, proxy(route(backend.address, policy=policy)) as front:
        shown = Admin(front.gateway, terminating=lambda: False)._config()
        assert b"hidden-value" not in shown
        assert json.loads(shown)["routes"][0]["policy"]["headers"]["set"] == [{"name": "X-Key", "value": "[redacted]"}]


@pytest.mark.parametrize(("peer", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.1.2.3", 403), ("", 403)])
async def test_who_may_do_what_is_shown_to_nobody_from_elsewhere(peer, status):
    async with server() as backend, proxy(route(backend.address)) as front:
        admin = Admin(front.gateway, terminating=lambda: False)
        assert admin(Request(method="GET", path="/v1/config", headers={}, peer=peer)).status == status
        # what probes, scrapers and the operator come for is for whoever can reach the port
        assert (
            admin(Request(method="GET", path="/v1/status", headers={"host": "10.9.8.7:8081"}, peer=peer)).status == 200
        )


async def test_tokens_that_only_the_api_server_can_judge_need_one(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    policy = Policy(authentication=Authentication(resources=(RESOURCE,), token_review=TokenReview()))
    async with server() as backend, proxy(route(backend.address, policy=policy), ready=False) as front:
        await until(lambda: front.live().ready)
        assert (await front.ask(call(), {"Authorization": "Bearer x"})).status == 503
        assert "tokenReview" in front.live().error
