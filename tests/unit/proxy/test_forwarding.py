"""Requests through a whole proxy to a server that is scripted byte by byte."""

import asyncio
import json
import socket

import msgspec
import pytest

from fairway.api.runconfig import Limits, Timeouts, Upstream
from fairway.proxy import downstream, listener
from tests.unit.proxy.serving import META, RawClient, call, free_port, modern, proxy, route, server, until

pytestmark = pytest.mark.anyio


async def test_a_call_reaches_the_server_byte_for_byte_and_its_answer_the_client():
    _, headers = modern(call("add"))
    params = b'{"_meta":%b,"name":"add","arguments":{"a":1.10}}' % json.dumps(META).encode()
    body = b'{ "jsonrpc":"2.0", "id":"\\u0061", "method":"tools/call","params":%b }' % params
    answer = b'{"jsonrpc":"2.0","id":"\\u0061","result":{ "content":[],"x":1.10 }}'

    async def answers(conversation, got):
        conversation.json(answer, headers="X-Custom: Yes\r\nMcp-Session-Id: s1\r\n")

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        reply = await front.ask(body, {**headers, "Mcp-Param-Region": "eu", "X-Own": "t"})
        assert reply.body == answer
        assert reply.headers["x-custom"] == "Yes"
        assert "mcp-session-id" not in reply.headers  # nobody opened one
        (got,) = backend.got
        assert (got.method, got.target, got.body) == ("POST", "/backend", body)
        assert got.header("host") == f"localhost:{backend.port}"
        assert got.header("mcp-param-region") == "eu"
        assert got.header("x-own") is None
        assert got.header("content-length") == str(len(body))


async def test_the_host_header_for_the_server_can_be_set():
    async with server() as backend:
        upstream = Upstream(addresses=(backend.address,), host_header="weather.internal")
        async with proxy(route(upstream=upstream)) as front:
            await front.ask(call())
            assert backend.got[0].header("host") == "weather.internal"


async def test_credentials_of_the_client_never_reach_the_server():
    async with server() as backend, proxy(route(backend.address)) as front:
        await front.ask(call(), {"Authorization": "Bearer s", "Proxy-Authorization": "Basic s", "Cookie": "s=s"})
        (got,) = backend.got
        assert all(got.header(name) is None for name in ("authorization", "proxy-authorization", "cookie"))


@pytest.mark.parametrize(
    "said",
    [
        "application/json; charset=utf-7",  # in which +ACI- is a quote
        "application/json; charset=Shift_JIS",  # in which some characters take the backslash that follows
        "application/json;charset=utf-8;charset=utf-7",
        'application/json; charset="ut\\f-8"',
        "application/json; boundary=x",
        "application/json, text/plain",
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
    ],
)
async def test_a_body_that_a_server_would_decode_in_another_way_is_refused(said):
    async with server() as backend, proxy(route(backend.address)) as front:
        reply = await front.ask(call(x="+ACIAfQAs-"), {"Content-Type": said})
        assert (reply.status, backend.got) == (415, [])


@pytest.mark.parametrize(
    "said", ["application/json", "Application/JSON ; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_in_utf_8_is_passed_on_however_it_is_called(said):
    async with server() as backend, proxy(route(backend.address)) as front:
        assert (await front.ask(call(), {"Content-Type": said})).status == 200
        assert backend.got[0].header("content-type") == said


async def test_of_two_content_types_none_counts():
    async with server() as backend, proxy(route(backend.address)) as front:
        reply = await front.ask(call(), {"content-type": "application/json"})  # beside the usual one
        assert (reply.status, backend.got) == (400, [])


async def test_a_query_is_passed_on():
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call(), path="/mcp?a=1&b=%20")
        assert (await client.reply()).status == 200
        assert backend.got[0].target == "/backend?a=1&b=%20"


async def test_a_thousand_requests_on_a_few_connections_need_no_more_to_the_server():
    async with server() as backend, proxy(route(backend.address)) as front:
        before = backend.connections
        clients = [await front.client() for _ in range(4)]

        async def work(client):
            for number in range(250):
                reply = await client.ask(call(request_id=number))
                assert reply.message["id"] == number

        await asyncio.gather(*(work(client) for client in clients))
        assert len(backend.got) == 1000
        assert backend.connections - before <= 4


async def test_pipelined_requests_are_answered_in_order_and_one_after_another():
    at_work = 0

    async def answers(conversation, got):
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        await asyncio.sleep(0.01 if got.message["id"] % 2 else 0)
        at_work -= 1
        conversation.json({"id": got.message["id"], "result": {}})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for number in range(30):
            client.post(call(request_id=number))
        assert [(await client.reply()).message["id"] for _ in range(30)] == list(range(30))


async def test_a_refusal_waits_for_its_turn():
    release = asyncio.Event()

    async def answers(conversation, got):
        await release.wait()
        conversation.json({"id": 1, "result": {}})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call())
        client.post(b"[]")
        client.send(b"nonsense\r\n\r\n")
        await until(lambda: len(backend.got) == 1)
        release.set()
        assert [(await client.reply()).status for _ in range(3)] == [200, 400, 400]
        assert await client.closed() == b""
        assert len(backend.got) == 1


@pytest.mark.parametrize("pieces", [[b"data: 1\n\n"], [b"x", b"y" * 100_000, b"z"], []])
async def test_a_chunked_answer_streams_through(pieces):
    async def answers(conversation, got):
        conversation.start_chunked()
        for piece in pieces:
            conversation.chunk(piece)
            await conversation.writer.drain()
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(2):
            reply = await client.ask(call())
            assert reply.headers["transfer-encoding"] == "chunked"
            assert reply.body == b"".join(pieces)


async def test_each_event_arrives_before_the_next_is_sent():
    proceed = asyncio.Event()

    async def answers(conversation, got):
        conversation.start_chunked()
        for number in range(3):
            conversation.chunk(b"data: %d\n\n" % number)
            await conversation.writer.drain()
            await proceed.wait()
            proceed.clear()
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call())
        await client.head()
        for number in range(3):
            assert await client.chunk() == b"data: %d\n\n" % number
            proceed.set()
        assert await client.chunk() == b""


async def test_an_answer_that_ends_with_its_connection_is_whole():
    async def answers(conversation, got):
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
        await conversation.writer.drain()
        conversation.writer.close()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(2):
            assert (await client.ask(call())).body == b"hello"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_answers_without_body_have_none_whatever_their_headers_say(status):
    async def answers(conversation, got):
        if got.message["id"] == 1:
            conversation.send(f"HTTP/1.1 {status}\r\nETag: x\r\nContent-Length: 5\r\n\r\n".encode())
        else:
            conversation.json({"id": 2, "result": {}})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(3):
            assert (await client.ask(call(request_id=2))).status == 200
            assert (await client.ask(call(request_id=1))).status == int(status[:3])


async def test_the_answer_to_head_has_no_body_but_says_how_long_it_would_be():
    async def answers(conversation, got):
        if got.method == "POST":
            conversation.json({"id": 1, "result": {}})
        else:
            conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(2):
            client.get(method="HEAD")
            reply = await client.reply(to_head=True)
            assert reply.headers["content-length"] == "1234"
            assert (await client.ask(call())).status == 200


async def test_interim_answers_of_the_server_are_passed_over():
    async def answers(conversation, got):
        conversation.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        conversation.json({"id": 1, "result": {}})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        reply = await front.ask(call())
        assert reply.status == 200
        assert "link" not in reply.headers


async def test_a_client_that_waits_for_100_continue_gets_it():
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        body = json.dumps(call()).encode()
        client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nExpect: 100-continue\r\n")
        client.send(b"Content-Length: %d\r\n\r\n" % len(body))
        assert (await client.head()).status == 100
        client.send(body)
        assert (await client.reply()).status == 200
        assert backend.got[0].header("expect") is None


async def test_http_1_0_gets_answers_that_it_understands():
    async def answers(conversation, got):
        conversation.start_chunked("application/json")
        conversation.chunk(b"{}")
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        body = json.dumps(call()).encode()
        client.send(
            b"POST /mcp HTTP/1.0\r\nHost: localhost\r\nUser-Agent: test\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        reply = await client.reply()
        assert "transfer-encoding" not in reply.headers
        assert reply.body == b"{}"


async def test_connection_close_is_honoured_and_what_was_asked_is_answered_first():
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        reply = await client.ask(call(), {"Connection": "close"})
        assert reply.status == 200
        assert reply.headers["connection"] == "close"
        assert await client.closed() == b""


async def test_a_server_that_closes_after_each_answer_is_asked_on_new_connections():
    async def answers(conversation, got):
        conversation.json({"id": 1, "result": {}}, headers="Connection: close\r\n")
        await conversation.writer.drain()
        conversation.writer.close()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(5):
            assert (await client.ask(call())).status == 200
        assert len(backend.got) == 5


async def test_a_kept_connection_that_the_server_closed_is_not_used():
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for _ in range(20):
            assert (await client.ask(call())).status == 200
            backend.drop_idle()
            await asyncio.sleep(0.06)
        assert len(backend.got) == 20


async def test_nothing_is_sent_twice_when_a_server_hangs_up_on_a_request():
    async def answers(conversation, got):
        conversation.writer.close()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        reply = await front.ask(call(request_id="x"))
        assert reply.status == 502
        assert "hung up" in reply.error
        assert reply.message["id"] == "x"
        assert len(backend.got) == 1


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
async def test_half_an_answer_does_not_look_whole(start):
    async def answers(conversation, got):
        conversation.send(start)
        await conversation.writer.drain()
        conversation.writer.close()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call())
        with pytest.raises(asyncio.IncompleteReadError):
            await client.reply()


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
)
async def test_an_answer_that_is_not_http_is_a_bad_gateway(garbage):
    async def answers(conversation, got):
        conversation.send(garbage)
        await conversation.gone()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        assert (await front.ask(call())).status == 502


SECOND = b'HTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 31\r\n\r\n{"id":"smuggled","result":{ } } '


@pytest.mark.parametrize("length", [len(SECOND), len(SECOND) - 8, len(SECOND) - 31, 40, 20, 6, 1])
async def test_a_second_answer_that_nobody_asked_for_is_not_given_to_the_next_request(length):
    async def answers(conversation, got):
        body = json.dumps({"id": got.message["id"], "result": {}}).encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        conversation.send(answer + (SECOND[:length] if got.message["id"] == 1 else b""))

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        for number in (1, 2, 3):
            reply = await client.ask(call(request_id=number))
            assert reply.message["id"] == number
            assert "x-smuggled" not in reply.headers


async def test_a_server_that_speaks_unasked_is_not_listened_to_any_more():
    async def answers(conversation, got):
        conversation.json({"id": got.message["id"], "result": {}})
        await conversation.writer.drain()
        await asyncio.sleep(0.01)
        conversation.json({"id": "unasked", "result": {}})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        await until(lambda: backend.closed == 1)  # the handshake's
        client = await front.client()
        for number in (1, 2, 3):
            assert (await client.ask(call(request_id=number))).message["id"] == number
            await until(lambda number=number: backend.closed == 1 + number)


async def test_a_client_that_hangs_up_is_hung_up_on_at_the_server_at_once():
    seen = asyncio.Event()

    async def answers(conversation, got):
        await conversation.gone()
        seen.set()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call())
        await until(lambda: len(backend.got) == 1)
        client.close()
        async with asyncio.timeout(1):
            await seen.wait()
        assert front.live().upstream.endpoints[0].in_flight == 0
        assert front.live().counts.requests[("tools/call", 499)] == 1


async def test_a_client_that_hangs_up_on_a_stream_is_hung_up_on_at_the_server_at_once():
    seen = asyncio.Event()

    async def answers(conversation, got):
        conversation.start_chunked()
        conversation.chunk(b": hello\n\n")
        await conversation.gone()
        seen.set()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.get()
        await client.head()
        assert await client.chunk() == b": hello\n\n"
        client.close()
        async with asyncio.timeout(1):
            await seen.wait()


async def test_a_call_that_takes_too_long_is_a_gateway_timeout():
    async def answers(conversation, got):
        await conversation.gone()

    slow = Timeouts(call=0.3)
    async with server(answers) as backend, proxy(route(backend.address, timeouts=slow)) as front:
        client = await front.client()
        reply = await client.ask(call(request_id=9))
        assert reply.status == 504
        assert reply.message["id"] == 9


async def test_a_stream_may_take_longer_than_a_call():
    async def answers(conversation, got):
        conversation.start_chunked()
        conversation.chunk(b": a\n\n")
        await asyncio.sleep(1.2)
        conversation.chunk(b"data: b\n\n")
        conversation.end_chunks()

    slow = Timeouts(call=0.3)
    async with server(answers) as backend, proxy(route(backend.address, timeouts=slow)) as front:
        assert (await front.ask(call())).body == b": a\n\ndata: b\n\n"


async def test_a_json_answer_that_trickles_beyond_the_call_is_cut_off():
    async def answers(conversation, got):
        conversation.start_chunked("application/json")
        conversation.chunk(b"{")
        await conversation.gone()

    slow = Timeouts(call=0.3)
    async with server(answers) as backend, proxy(route(backend.address, timeouts=slow)) as front:
        client = await front.client()
        client.post(call())
        with pytest.raises(asyncio.IncompleteReadError):
            await client.reply()


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"POST /mcp HT", b"T"), (b"POST /mcp HTTP/1.1\r\nHost: a\r\nX: ", b"a")],
    ids=["line", "header"],
)
async def test_a_head_that_trickles_in_is_refused(monkeypatch, begin, more):
    monkeypatch.setattr(downstream, "HEAD_TIMEOUT", 0.3)
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.send(begin)
        answered = asyncio.create_task(client.reply())
        while not answered.done():
            client.send(more)
            await asyncio.sleep(0.05)
        assert (await answered).status in (400, 408)
        assert backend.got == []


async def test_a_body_that_stands_still_is_refused(monkeypatch):
    monkeypatch.setattr(downstream, "BODY_STALL", 0.3)
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert (await client.reply()).status == 408
        assert await client.closed() == b""


async def test_a_body_that_trickles_for_ever_is_refused(monkeypatch):
    monkeypatch.setattr(downstream, "MESSAGE_TIMEOUT", 0.5)
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n")
        answered = asyncio.create_task(client.reply())
        while not answered.done():
            client.send(b"a")
            await asyncio.sleep(0.05)
        assert (await answered).status == 408


async def test_an_idle_connection_is_closed_in_the_end():
    async with server() as backend, proxy(route(backend.address, timeouts=Timeouts(idle=0.3))) as front:
        client = await front.client()
        await client.ask(call())
        async with asyncio.timeout(3):
            assert await client.closed() == b""


async def test_a_body_that_is_too_large_is_refused_though_the_client_goes_on_sending():
    async with server() as backend, proxy(route(backend.address, limits=Limits(max_body=2048))) as front:
        client = await front.client()
        client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
        for _ in range(20):
            client.send(b"x" * 50_000)
        reply = await client.reply()
        assert reply.status == 413
        assert "2048" in reply.error
        assert backend.got == []


async def test_a_slow_reader_slows_the_server_down_and_loses_nothing():
    sent = 0
    piece = b"x" * 65536

    async def answers(conversation, got):
        nonlocal sent
        conversation.writer.transport.set_write_buffer_limits(65536)
        conversation.start_chunked("application/octet-stream")
        for _ in range(800):
            conversation.chunk(piece)
            await conversation.writer.drain()
            sent += 1
        conversation.end_chunks()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        reader, writer = await asyncio.open_connection(*front.address(), limit=1024)
        client = RawClient(reader, writer)
        client.post(call())
        await until(lambda: sent > 0)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 400  # 26 MB would have been swallowed by somebody
        reader._limit = 1 << 20
        reply = await client.reply()
        assert len(reply.body) == 800 * len(piece)


@pytest.mark.parametrize(("size", "number"), [(1_000_000, 60), (50_000, 1000)])
async def test_a_client_that_pipelines_and_does_not_read_is_not_served_ahead(size, number):
    body = b'"' + b"x" * size + b'"'

    async def answers(conversation, got):
        conversation.json(body)

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = RawClient(*await asyncio.open_connection(*front.address(), limit=1024))
        for request_id in range(number):
            client.post(call(request_id=request_id))
        before = -1
        while before != len(backend.got):
            before = len(backend.got)
            await asyncio.sleep(0.2)
        assert len(backend.got) < number / 2
        client.reader._limit = 1 << 22
        for _ in range(number):
            assert (await client.reply()).body == body


async def test_a_get_stream_and_a_delete_go_through():
    async def answers(conversation, got):
        if got.method == "GET":
            conversation.start_chunked()
            conversation.chunk(b"id: 1\ndata: {}\n\n")
            conversation.end_chunks()
        else:
            conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.get({"Last-Event-ID": "7"})
        assert (await client.reply()).body == b"id: 1\ndata: {}\n\n"
        client.get(method="DELETE")
        assert (await client.reply()).status == 200
        assert [got.header("last-event-id") for got in backend.got] == ["7", None]


async def test_what_is_sent_while_a_stream_is_open_is_read_whole_and_answered_behind_it():
    over = asyncio.Event()

    async def answers(conversation, got):
        if got.method == "GET":
            conversation.start_chunked()
            conversation.chunk(b": open\n\n")
            await over.wait()
            conversation.end_chunks()
        else:
            conversation.json({"id": got.message["id"], "result": got.header("mcp-session-id")})

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.get()
        assert (await client.head()).status == 200
        assert await client.chunk() == b": open\n\n"
        body = json.dumps(call(request_id=8)).encode()
        sent = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nContent-Length: %d\r\n\r\n%b" % (
            len(body),
            body,
        )
        for piece in (sent[:30], sent[30:-9], sent[-9:] + sent):
            client.send(piece)
            await asyncio.sleep(0.02)
        assert [got.method for got in backend.got] == ["GET"]
        over.set()
        assert await client.chunk() == b""
        for _ in range(2):
            assert (await client.reply()).message["id"] == 8


async def test_a_get_with_a_body_is_refused():
    async with server() as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.get({"Content-Length": "2"})
        client.send(b"{}")
        assert (await client.reply()).status == 400
        assert backend.got == []


async def test_a_local_origin_is_passed_on_and_another_allowed_one_is_not():
    async with server() as backend, proxy(route(backend.address)) as front:
        for origin in ("http://localhost:5", "http://127.0.0.1:6", None):
            assert (await front.ask(call(), {} if origin is None else {"Origin": origin})).status == 200
        assert [got.header("origin") for got in backend.got] == ["http://localhost:5", "http://127.0.0.1:6", None]


async def test_a_foreign_page_is_refused_and_the_server_does_not_see_it():
    async with server() as backend, proxy(route(backend.address)) as front:
        for headers in ({"Host": "evil.example.com"}, {"Origin": "http://evil.example.com"}):
            assert (await front.ask(call(), headers)).status == 403
        assert (await front.ask(call(), {"Origin": "http://localhost:3000"})).status == 200
        assert [got.header("origin") for got in backend.got] == ["http://localhost:3000"]


async def test_the_budget_for_large_bodies_is_given_back():
    async def answers(conversation, got):
        if got.message["id"] == 1:
            await conversation.gone()
        conversation.json({"id": 2, "result": {}})

    roomy = Limits(max_body=1 << 20)
    async with server(answers) as backend, proxy(route(backend.address, limits=roomy)) as front:
        (budget,) = [made.budget for made in front.gateway._listeners.values()]
        client = await front.client()
        assert (await client.ask(call(request_id=2, data="x" * 300_000))).status == 200
        assert budget.used == 0
        client.post(call(request_id=1, data="x" * 300_000))
        await until(lambda: len(backend.got) == 2)
        assert budget.used > 300_000
        client.close()
        await until(lambda: budget.used == 0)


async def test_what_is_read_ahead_counts_against_the_budget_however_small():
    async def never(conversation, got):
        await conversation.gone()

    async with server(never) as backend, proxy(route(backend.address)) as front:
        (budget,) = [made.budget for made in front.gateway._listeners.values()]
        budget.limit = 20_000
        client = await front.client()
        body = json.dumps(call(data="x" * 4000)).encode()
        client.send((b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) * 12)
        await until(lambda: budget.used > 15_000)
        (connection,) = [c for made in front.gateway._listeners.values() for c in made.connections]
        assert connection._reader.over  # of the rest it is known that there is no room, and nothing is read any more
        assert len(connection._reader.ready) < 8
        client.close()
        await until(lambda: budget.used == 0)


async def test_a_client_that_never_reads_is_not_kept_for_ever_when_its_call_has_taken_too_long(monkeypatch):
    monkeypatch.setattr(downstream, "FAREWELL", 0.2)

    async def answers(conversation, got):
        conversation.start_chunked("text/plain")
        conversation.chunk(b"x" * 8_000_000)
        await conversation.gone()

    quick = Timeouts(call=0.5)
    async with server(answers) as backend, proxy(route(backend.address, timeouts=quick)) as front:
        (made,) = front.gateway._listeners.values()
        with socket.create_connection(front.address()) as deaf:
            body = json.dumps(call()).encode()
            deaf.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await until(lambda: made.connections)
            await until(lambda: not made.connections)


async def test_more_connections_than_there_is_room_for_are_sent_away(monkeypatch):
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    async with server() as backend, proxy(route(backend.address)) as front:
        clients = [await front.client() for _ in range(2)]
        for client in clients:
            assert (await client.ask(call())).status == 200
        extra = await front.client()
        assert (await extra.reply()).status == 503
        assert await extra.closed() == b""
        clients[0].close()
        (open_now,) = [made.connections for made in front.gateway._listeners.values()]
        await until(lambda: len(open_now) < 2)
        assert (await front.ask(call())).status == 200


async def test_two_servers_behind_one_address_are_told_apart_by_path():
    async with server() as one, server() as two:
        first = route(one.address, name="default/one", path="/one")
        second = route(two.address, name="default/two", path="/two")
        # the same address: port 0 would give each its own
        port = free_port()
        first, second = (replace_port(r, port) for r in (first, second))
        async with proxy(first, second) as front:
            client = await front.client("default/one")
            for path in ("/one", "/two", "/two", "/three"):
                client.post(call(), path=path)
            assert [(await client.reply()).status for _ in range(4)] == [200, 200, 200, 404]
            assert (len(one.got), len(two.got)) == (1, 2)


def replace_port(made, port):
    return msgspec.structs.replace(made, listen=msgspec.structs.replace(made.listen, port=port))


async def test_a_route_answers_at_every_path_that_it_is_published_under():
    async def answer(conversation, got):
        conversation.json({"id": 1, "result": {"at": got.target}})

    async with server(answer) as backend, proxy(route(backend.address, also=("/team/a/mcp",))) as front:
        client = await front.client()
        for path in ("/mcp", "/team/a/mcp"):
            client.post(call(), path=path)
            reply = await client.reply()
            assert json.loads(reply.body)["result"] == {"at": "/backend"}
        client.post(call(), path="/team/b/mcp")
        assert (await client.reply()).status == 404


async def test_two_routes_cannot_be_published_under_one_path():
    async def answer(conversation, got):
        conversation.json({"id": 1, "result": {}})

    async with server(answer) as backend:
        port = free_port()
        both = (
            route(backend.address, port=port),
            route(backend.address, name="default/b", path="/b", also=("/mcp",), port=port),
        )
        async with proxy(*both, ready=False) as front:
            await until(lambda: "default/a" in front.gateway.routes and front.live().listens_on)
            assert "default/a is served at the same address and path" in front.gateway.config_state().error
