"""Servers that come, go, fail and share the work."""

import asyncio
import dataclasses
import json

import msgspec
import pytest

from fairway.api.proxystatus import EndpointState
from fairway.api.runconfig import Upstream
from fairway.mcp.probe import Outcome
from fairway.proxy.endpoints import Endpoint, EndpointSet, Place
from fairway.proxy.prober import LONGEST_RETRY, LONGEST_SILENCE, PATIENCE, REFRESH, Record
from tests.unit.proxy.serving import RawClient, call, proxy, route, server, until

pytestmark = pytest.mark.anyio

OK = Outcome(EndpointState.OK)
REFUSED = Outcome(EndpointState.UNREACHABLE, "nothing listens", lasting=True)
NO_MCP = Outcome(EndpointState.NOT_MCP, "a web server")
SLOW = Outcome(EndpointState.UNREACHABLE, "no answer", lasting=False)
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


async def test_without_a_good_server_requests_are_asked_to_come_back():
    async with server(healthy=False) as backend, proxy(route(backend.address), ready=False) as front:
        await until(lambda: front.live().upstream.endpoints[0].state is not EndpointState.PENDING)
        reply = await front.ask(call(request_id=5))
        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        assert reply.message["id"] == 5
        assert "500" in reply.error
        assert not front.gateway.ready
        assert backend.got == []


async def test_a_server_that_gets_well_gets_requests():
    async with server(healthy=False) as backend, proxy(route(backend.address), ready=False) as front:
        await until(lambda: front.live().upstream.endpoints[0].state is EndpointState.FAILED)
        backend.healthy = True
        await until(lambda: front.gateway.ready)
        assert (await front.ask(call())).status == 200


async def test_a_server_that_is_restarted_gets_requests_again():
    async with server() as backend, proxy(route(backend.address)) as front:
        assert (await front.ask(call())).status == 200
        await backend.stop()
        reply = await front.ask(call())
        assert reply.status == 503
        assert "nothing listens on" in reply.error
        assert front.gateway.ready  # once ready, always ready
        await backend.start()
        await until(lambda: front.live().upstream.has_good)
        assert (await front.ask(call())).status == 200


async def test_a_request_that_cannot_reach_one_server_goes_to_another():
    async with server() as one, server() as two, proxy(route(one.address, two.address)) as front:
        await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
        await one.stop()
        for _ in range(4):
            assert (await front.ask(call())).status == 200
        assert len(two.got) >= 3


async def test_the_server_with_the_least_to_do_gets_the_next_request():
    release = asyncio.Event()

    async def slow(conversation, got):
        await release.wait()
        conversation.json({"id": 1, "result": {}})

    async with server(slow) as one, server(slow) as two, proxy(route(one.address, two.address)) as front:
        await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
        clients = [await front.client() for _ in range(10)]
        for client in clients:
            client.post(call())
            await asyncio.sleep(0)
        await until(lambda: len(one.got) + len(two.got) == 10)
        assert len(one.got) == len(two.got) == 5
        release.set()
        for client in clients:
            assert (await client.reply()).status == 200


def with_sessions(name: str):
    """Answers as a server that knows its own sessions alone."""
    made: set[str] = set()

    async def answers(conversation, got):
        session = got.header("mcp-session-id")
        if got.method == "POST" and got.message["method"] == "initialize":
            made.add(f"{name}-{len(made)}")
            conversation.json({"id": 1, "result": {}}, headers=f"Mcp-Session-Id: {name}-{len(made) - 1}\r\n")
        elif session not in made:
            conversation.json({"id": None, "error": {"code": 1, "message": "no such session"}}, status="404 Not Found")
        elif got.method == "DELETE":
            made.discard(session)
            conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            conversation.json({"id": 1, "result": {"from": name}})

    return answers


async def open_session(client: RawClient) -> str:
    return (await client.ask(INITIALIZE)).headers["mcp-session-id"]


async def test_a_session_stays_with_the_server_that_made_it():
    async with (
        server(with_sessions("one")) as one,
        server(with_sessions("two")) as two,
        proxy(route(one.address, two.address)) as front,
    ):
        await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
        client = await front.client()
        sessions = [await open_session(client) for _ in range(6)]
        holders = {}
        for session in sessions * 3:
            reply = await client.ask(call(), {"Mcp-Session-Id": session})
            holder = reply.message["result"]["from"]
            assert holders.setdefault(session, holder) == holder
        assert set(holders.values()) == {"one", "two"}
        client.get({"Mcp-Session-Id": sessions[0]}, method="DELETE")
        assert (await client.reply()).status == 200
        assert (await client.ask(call(), {"Mcp-Session-Id": sessions[0]})).status == 404
        assert (await client.ask(call(), {"Mcp-Session-Id": sessions[1]})).status == 200


async def test_a_session_whose_server_is_gone_is_unknown_so_that_the_client_begins_anew():
    async with server(with_sessions("one")) as one, proxy(route(one.address)) as front:
        client = await front.client()
        session = await open_session(client)
        front.live().place([])
        assert (await client.ask(call(), {"Mcp-Session-Id": session})).status == 404


async def test_a_session_whose_server_is_ill_has_to_wait():
    async with server(with_sessions("one")) as one, server() as two, proxy(route(one.address, two.address)) as front:
        await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
        client = await front.client()
        session = ""
        while not session:
            session = (await client.ask(INITIALIZE)).headers.get("mcp-session-id", "")
        await one.stop()
        for _ in range(2):
            assert (await client.ask(call(), {"Mcp-Session-Id": session})).status == 503


async def test_a_server_that_goes_away_finishes_what_it_has_begun():
    release = asyncio.Event()

    async def slow(conversation, got):
        await release.wait()
        conversation.json({"id": 1, "result": {}})

    async with server(slow) as backend, proxy(route(backend.address)) as front:
        client = await front.client()
        client.post(call())
        await until(lambda: len(backend.got) == 1)
        front.live().place([])
        assert (await front.ask(call())).status == 503
        release.set()
        assert (await client.reply()).status == 200


def test_a_good_server_that_is_slow_once_stays_good_but_not_for_ever():
    record = Record().after(OK)
    for _ in range(PATIENCE - 1):
        record = record.after(SLOW)
        assert record.good
    assert not record.after(SLOW).good
    assert Record().after(OK).after(SLOW).after(OK) == Record(good=True)


def test_a_server_that_is_certainly_away_is_not_good_at_once():
    assert not Record().after(OK).after(REFUSED).good
    assert not Record().after(SLOW).good


@pytest.mark.parametrize(("outcome", "longest"), [(REFUSED, LONGEST_SILENCE), (NO_MCP, LONGEST_RETRY)])
def test_retries_begin_soon_and_become_rarer_and_a_server_that_may_be_starting_is_asked_most(outcome, longest):
    record, waits = Record(), []
    for _ in range(12):
        record = record.after(outcome)
        waits.append(record.wait(0.5))
    assert waits[0] == pytest.approx(0.2)
    assert waits == sorted(waits)
    assert waits[-1] == longest
    assert 0.85 * REFRESH < Record(good=True).wait(0.0) < Record(good=True).wait(1.0) < 1.15 * REFRESH


async def test_places_that_stay_keep_their_connections():
    made = EndpointSet("a", Upstream(addresses=("x:1",)), idle=4)
    came, went = made.replace([Place("a:1", uid="1"), Place("b:1", uid="1")])
    assert (len(came), went) == (2, [])
    came, went = made.replace([Place("b:1", uid="1"), Place("b:1", uid="2")])
    assert [e.place for e in came] == [Place("b:1", uid="2")]
    assert [e.place for e in went] == [Place("a:1", uid="1")]
    assert all(isinstance(e, Endpoint) and e.removed for e in went)


async def test_a_server_is_asked_again_after_it_hung_up_on_a_request():
    async def answers(conversation, got):
        conversation.writer.close()

    async with server(answers) as backend, proxy(route(backend.address)) as front:
        before = backend.handshakes
        assert (await front.ask(call())).status == 502
        await until(lambda: backend.handshakes > before)


async def test_the_status_names_server_pod_and_what_is_wrong():
    async with server() as backend, proxy(route(backend.address, "127.0.0.1:1")) as front:
        await until(lambda: front.live().upstream.endpoints[1].state is not EndpointState.PENDING)
        said = json.loads(msgspec.json.encode(front.gateway.status()))["routes"][0]
        assert said["server"]["name"] == "scripted"
        assert said["server"]["protocolVersions"] == ["2026-07-28"]
        assert said["endpoints"][0] == {"address": backend.address, "state": "ok"}
        assert said["endpoints"][1]["state"] == "unreachable"
        assert said["endpoints"][1]["message"] == "nothing listens on :1"
        assert said["ready"] is True


def judged(made: EndpointSet, pod: str, *, good: bool) -> None:
    endpoint = next(e for e in made.endpoints if e.place.pod == pod)
    made.judge(endpoint, EndpointState.OK if good else EndpointState.UNREACHABLE, "", good=good)


async def test_a_server_that_is_leaving_serves_until_its_successor_is_known():
    made = EndpointSet("a", Upstream(addresses=("x:1",)), idle=4)
    old, new = Place("10.0.0.1:80", "old", "u-1"), Place("10.0.0.2:80", "new", "u-2")
    made.replace([old, new])
    judged(made, "old", good=True)
    judged(made, "new", good=False)
    _, went = made.replace([dataclasses.replace(old, leaving=True), new])
    assert went == []
    assert made.pick(None).place.pod == "old"
    assert made.pick(("old", "u-1")).status == 404, "a session that begins anew in time loses nothing"
    judged(made, "new", good=True)
    assert {made.pick(None).place.pod for _ in range(4)} == {"new"}
    judged(made, "new", good=False)
    assert made.pick(None).place.pod == "old"
