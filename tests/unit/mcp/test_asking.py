"""Answers on event streams that a server ends before the answer is on them."""

import asyncio

import pytest

from fairway.mcp.asking import Ask, exchange
from fairway.mcp.http import ConnectionBroken, HttpClient, Limits
from fairway.mcp.protocol import SSE
from tests.unit.mcp.test_probe import http, listening

pytestmark = pytest.mark.anyio

ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"late":true}}'
OLD, NEW = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "s"}, {"MCP-Protocol-Version": "2026-07-28"}


def events(*said: bytes) -> bytes:
    return http("200 OK", b"".join(said), SSE)


def cut(*said: bytes) -> bytes:
    return http("200 OK", b"".join(said) + b"x", SSE)[:-1]


class Answering:
    """Gives one answer after the other, and then hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = iter(answers)

    def __call__(self, *_: object) -> bytes | None:
        return next(self._answers, None)


async def asked(server, headers):
    client = HttpClient(limits=Limits(answer=5))
    ask = Ask("POST", {"Content-Type": "application/json", **headers}, b"{}", "tools/call", 7)
    try:
        return await exchange(ask, client, f"http://{server.address}/mcp", {"Authorization": "Bearer t"})
    finally:
        await client.aclose()


PRIMING = b"id: e-1\nretry: 1\ndata: \n\n"
MORE = b'id: e-2\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
LATE = b"id: e-3\ndata: " + ANSWER + b"\n\n"


async def test_a_client_comes_back_for_its_answer_and_says_what_it_saw_last():
    async with listening(Answering(events(PRIMING), events(MORE), events(LATE))) as server:
        answer = await asked(server, OLD)
    assert answer.message == ANSWER
    assert [method for method, *_ in server.asked] == ["POST", "GET", "GET"]
    heads = [headers for *_, headers in server.asked]
    assert [head.get("last-event-id") for head in heads] == [None, "e-1", "e-2"]
    assert {head["mcp-session-id"] for head in heads} == {"s"}
    assert {head["authorization"] for head in heads} == {"Bearer t"}
    assert heads[1]["accept"] == SSE
    assert "content-type" not in heads[1]


@pytest.mark.parametrize("event", [PRIMING, b"data: {}\n\n"])
async def test_a_stream_that_breaks_is_resumed_if_the_server_said_how(event):
    def answer(method, *_):
        if method == "GET":
            return events(LATE)
        asyncio.get_running_loop().call_soon(server.hang_up)
        return cut(event)

    async with listening(answer) as server:
        if event is PRIMING:
            assert (await asked(server, OLD)).message == ANSWER
        else:
            with pytest.raises(ConnectionBroken):
                await asked(server, OLD)


@pytest.mark.parametrize(
    ("headers", "first"),
    [
        (OLD, b"data: {}\n\n"),  # nothing that it could ask for
        (OLD, "id: süß\ndata: {}\n\n".encode()),  # what cannot stand in a header
        (OLD, PRIMING + b"data: no json\n\n"),
        (NEW, PRIMING),  # this era resumes nothing
    ],
)
async def test_what_cannot_be_resumed_is_not_asked_for(headers, first):
    async with listening(Answering(events(first), events(LATE))) as server:
        answer = await asked(server, headers)
    assert answer.message is None
    assert [method for method, *_ in server.asked] == ["POST"]


async def test_a_server_that_resumes_nothing_has_not_answered():
    async with listening(Answering(events(PRIMING), http("405 Method Not Allowed"), events(LATE))) as server:
        answer = await asked(server, OLD)
    assert (answer.status, answer.message) == (200, None)
    assert len(server.asked) == 2
