"""The bridge without any I/O: what it writes to the server for what clients ask, and what clients get."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairway.proxy.bridge.core import KEEP_ALIVE, MAX_CALLS, Bridge
from fairway.proxy.bridge.lines import MAX_LINE
from fairway.proxy.bridge.link import MAX_BACKLOG
from fairway.proxy.bridge.news import MAX_URI, MAX_WATCHED
from fairway.proxy.bridge.sessions import MAX_IDLE
from fairway.proxy.envelope import read
from fairway.proxy.middleware.principal import Principal
from fairway.proxy.request import Request


class Server:
    """The far end of the lines."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.kept = 0
        self.gave_up = ""

    def write(self, lines: bytes) -> None:
        assert lines.endswith(b"\n")
        # as the most generous reader of lines would have it
        self.lines += [json.loads(line) for line in lines.decode().splitlines()]

    def backlog(self) -> int:
        return self.kept

    def give_up(self, reason: str) -> None:
        self.gave_up = reason


class Client:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.flushed = b""
        self.ended = False
        self.failure = ""

    def on_head(self, status: int, lines: list[bytes], headers: Mapping[bytes, bytes], length: int | None) -> None:
        assert not self.status
        self.lines = b"".join(lines)
        self.status, self.headers = status, dict(headers)

    def on_body(self, piece: bytes) -> None:
        assert self.status
        assert not self.ended
        self.body += piece

    def flush(self) -> None:
        self.flushed = self.body

    def on_end(self) -> None:
        assert not self.ended
        assert not self.failure
        self.ended = True

    def on_failure(self, message: str) -> None:
        assert not self.ended
        self.failure = message

    @property
    def message(self) -> Any:
        assert self.ended
        return json.loads(self.body)


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.changes = 0
        self.bridge = Bridge(defer=self.soon.append, clock=lambda: self.now, changed=self.note)
        self.server = Server()

    def note(self) -> None:
        self.changes += 1

    def settle(self) -> None:
        while self.soon:
            soon, self.soon[:] = [*self.soon], []
            for each in soon:
                each()

    def say(self, *messages: Any) -> None:
        self.bridge.feed(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.settle()

    def greet(self, version: str = "2025-11-25", **capabilities: Any) -> None:
        self.bridge.opened(self.server, fresh=True)
        self.settle()
        asked = self.server.lines.pop()
        assert asked["method"] == "initialize"
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        assert self.server.lines.pop()["method"] == "notifications/initialized"

    def send(
        self,
        message: Any,
        *,
        session: str = "",
        method: str = "POST",
        principal: Principal | None = None,
        **headers: str,
    ) -> tuple[Client, Any]:
        client, request = Client(), Request()
        request.principal = principal
        request.method = method.encode()
        if message:
            request.body = message if isinstance(message, bytes) else json.dumps(message).encode()
            request.envelope = read(request.body)
        request.upstream_session = session.encode()
        request.headers = {b"accept": b"application/json, text/event-stream"}
        request.headers |= {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        exchange = self.bridge.exchange(client, request)
        self.bridge.receive(exchange, request)
        assert not client.status  # never before it returns
        self.settle()
        return client, exchange

    def open(self, *, principal: Principal | None = None, **capabilities: Any) -> str:
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        client, _ = self.send(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, principal=principal
        )
        return client.headers[b"mcp-session-id"].decode()


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.greet()
    return made


PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


def test_a_server_is_greeted_once_and_is_up_when_it_has_answered() -> None:
    scene = Scene()
    early, _ = scene.send(PING)
    assert (early.status, early.message["error"]["message"]) == (503, "the server is starting")
    assert b"Retry-After: 1\r\n" in early.lines
    scene.greet()
    assert (scene.changes, scene.bridge.link.up) == (1, True)


def test_lines_of_one_turn_are_one_write(scene: Scene) -> None:
    session = scene.open()
    writes = []
    scene.server.write = writes.append  # type: ignore[method-assign]
    for _ in range(3):
        request = Request()
        request.method, request.upstream_session = b"POST", session.encode()
        request.envelope = read(json.dumps(PING).encode())
        scene.bridge.receive(scene.bridge.exchange(Client(), request), request)
    scene.settle()
    assert [line.count(b"\n") for line in writes] == [3]


HIDDEN = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hidden"}}'
SMUGGLED = (
    '{"jsonrpc":"2.0","id":1,"method":"%s","params":{"name":"echo","uri":"x","arguments":{"x":"%s"}}}',
    '{"jsonrpc":"2.0","id":1,"method":"%s","params":{"name":"echo","uri":"x%s"}}',
    '{"jsonrpc":"2.0","id":1,"method":"%s%s"}',
)


@pytest.mark.parametrize("end", "\u2028\u2029\x85")
@pytest.mark.parametrize("message", SMUGGLED)
@pytest.mark.parametrize(
    "method", ["tools/call", "resources/subscribe", "resources/unsubscribe", "notifications/other"]
)
def test_text_that_ends_lines_for_some_readers_is_no_message_of_its_own(
    scene: Scene, method: str, message: str, end: str
) -> None:
    session = scene.open()
    hidden = HIDDEN.replace('"', '\\"')
    said = (message % (method, f"{end}{hidden}{end}")).encode()
    scene.send(said, session=session)
    if method.startswith("notifications"):
        scene.send(said.replace(b'"id":1,', b""), session=session)
    assert all("hidden" not in str(line.get("params", {}).get("name")) for line in scene.server.lines)


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_what_a_client_says_of_a_cancellation_is_no_message_of_its_own(scene: Scene, end: str) -> None:
    session = scene.open()
    scene.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}}, session=session)
    params = f'{{"requestId":1,"reason":[{end}{HIDDEN}{end}]}}'
    said = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}'
    scene.send(said.encode(), session=session)
    call, cancelled = scene.server.lines
    assert (call["params"]["name"], cancelled["method"]) == ("slow", "notifications/cancelled")
    assert cancelled["params"] == {"requestId": call["id"], "reason": [json.loads(HIDDEN)]}


def test_an_event_is_one_event_whatever_spaces_a_server_puts_into_its_line(scene: Scene) -> None:
    session = scene.open()
    stream, _ = scene.send(None, session=session, method="GET")
    scene.bridge.feed(b'{"jsonrpc":"2.0","method":"notifications/message","params":{\r"data":1}}\n')
    assert (
        stream.body
        == b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}\n\n'
    )


def test_a_connection_that_comes_back_to_the_same_process_is_not_greeted_again(scene: Scene) -> None:
    session = scene.open()
    lost, _ = scene.send(PING, session=session)
    scene.server.lines.clear()
    scene.bridge.closed("the connection broke")
    assert lost.failure == "the connection broke"
    between, _ = scene.send(PING, session=session)
    assert (between.status, between.message["id"]) == (503, "p")
    scene.bridge.opened(scene.server, fresh=False)
    scene.settle()
    assert scene.bridge.link.up
    client, _ = scene.send(PING, session=session)
    [asked] = [line for line in scene.server.lines if line["method"] == "ping"]
    assert not any(line["method"] == "initialize" for line in scene.server.lines)
    scene.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
    assert client.message == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_half_a_line_of_the_dead_server_is_not_taken_for_one_of_the_next(scene: Scene) -> None:
    scene.bridge.feed(b'{"jsonrpc":"2.0","id')
    scene.bridge.closed("dead")
    scene.greet()
    assert scene.bridge.link.noise == 0


def test_answers_to_nothing_are_skipped(scene: Scene) -> None:
    session = scene.open()
    client, _ = scene.send(PING, session=session)
    number = scene.server.lines[-1]["id"]
    for wrong in (number + 1, str(number), None, True, float(number) + 0.5):
        scene.say({"jsonrpc": "2.0", "id": wrong, "result": {"x": 1}})
    assert not client.status
    scene.say({"jsonrpc": "2.0", "id": number, "result": {}}, {"jsonrpc": "2.0", "id": number, "result": {"again": 1}})
    assert client.message["result"] == {}


def test_a_server_that_does_not_read_gets_no_more_requests(scene: Scene) -> None:
    session = scene.open()
    scene.server.kept = MAX_BACKLOG + 1
    client, _ = scene.send(PING, session=session)
    assert (client.status, client.message["id"]) == (503, "p")


def test_a_server_that_answers_without_end_is_given_up(scene: Scene) -> None:
    for _ in range(MAX_LINE // (1 << 20) + 1):
        scene.bridge.feed(b"x" * (1 << 20))
    assert "larger than" in scene.server.gave_up
    assert not scene.bridge.link.up


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": {"code": -32601, "message": "no"}}, "initialize answered error -32601: no"),
        ({"result": {"protocolVersion": "1999-01-01"}}, "the server speaks MCP 1999-01-01"),
        ({"result": {}}, "protocolVersion"),
        ({"result": []}, "Expected"),
        ({}, "Input data was truncated"),
    ],
)
def test_a_greeting_that_fails_is_explained(answer: Any, said: str) -> None:
    scene = Scene()
    scene.bridge.opened(scene.server, fresh=True)
    scene.settle()
    scene.say({"jsonrpc": "2.0", "id": scene.server.lines.pop()["id"], **answer})
    assert said in scene.server.gave_up
    assert not scene.bridge.link.up


def test_a_stream_that_is_not_read_is_ended_rather_than_kept_in_memory(scene: Scene) -> None:
    session = scene.open()
    stream, exchange = scene.send(None, session=session, method="GET")
    exchange.pause()
    scene.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert stream.failure
    again, _ = scene.send(None, session=session, method="GET")
    scene.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert b"tools/list_changed" in again.flushed


def test_progress_for_a_client_that_does_not_read_is_dropped_and_its_answer_is_not(scene: Scene) -> None:
    session = scene.open()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": {"progressToken": "t"}}}
    client, exchange = scene.send(call, session=session)
    number = scene.server.lines[-1]["id"]
    progress = {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": number, "progress": 1},
    }
    scene.say(progress)
    exchange.pause()
    scene.say(progress, progress, {"jsonrpc": "2.0", "id": number, "result": {}})
    assert client.body.count(b"notifications/progress") == 1
    assert client.body.rstrip().endswith(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert client.ended


def test_a_second_stream_of_a_session_takes_the_place_of_the_first(scene: Scene) -> None:
    session = scene.open()
    first, _ = scene.send(None, session=session, method="GET")
    second, exchange = scene.send(None, session=session, method="GET")
    assert first.ended
    exchange.left()
    scene.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert not second.flushed.count(b"list_changed")


def test_silent_streams_show_that_they_are_alive(scene: Scene) -> None:
    session = scene.open()
    stream, _ = scene.send(None, session=session, method="GET")
    scene.bridge.tick()
    before = stream.flushed
    scene.now += KEEP_ALIVE - 1
    scene.bridge.tick()
    assert stream.flushed == before
    scene.now += 1
    scene.bridge.tick()
    assert stream.flushed == before + b": still here\n\n"


def test_sessions_that_nobody_holds_are_forgotten_and_others_are_not(scene: Scene) -> None:
    idle, held, busy = (scene.open() for _ in range(3))
    scene.send(None, session=held, method="GET")
    scene.send(PING, session=busy)
    scene.now = MAX_IDLE + 1
    scene.bridge.tick()
    assert [scene.send(PING, session=session)[0].status for session in (idle, held, busy)] == [404, 0, 0]


def test_a_question_of_the_server_is_answered_for_a_client_that_leaves(scene: Scene) -> None:
    session = scene.open(roots={})
    stream, _ = scene.send(None, session=session, method="GET")
    scene.say({"jsonrpc": "2.0", "id": 5, "method": "roots/list"})
    assert b"roots/list" in stream.flushed
    scene.send(None, session=session, method="DELETE")
    assert scene.server.lines[-1]["id"] == 5
    assert "error" in scene.server.lines[-1]


def test_an_answer_to_the_dead_server_does_not_reach_the_next_one(scene: Scene) -> None:
    session = scene.open(roots={})
    stream, _ = scene.send(None, session=session, method="GET")
    scene.say({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    asked = json.loads(stream.flushed.split(b"data: ")[1].split(b"\n")[0])
    scene.bridge.closed("dead")
    scene.greet()
    scene.server.lines.clear()
    client, _ = scene.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}, session=session)
    assert client.status == 202
    assert scene.server.lines == []


def test_a_ping_of_the_server_is_answered_by_the_bridge(scene: Scene) -> None:
    scene.say({"jsonrpc": "2.0", "id": "x", "method": "ping"})
    assert scene.server.lines == [{"jsonrpc": "2.0", "id": "x", "result": {}}]


def test_a_subscription_outlives_the_server(scene: Scene) -> None:
    session = scene.open()
    watching, _ = scene.send(
        {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "a:b"}}, session=session
    )
    scene.say({"jsonrpc": "2.0", "id": scene.server.lines[-1]["id"], "result": {}})
    assert watching.message["result"] == {}
    scene.bridge.closed("dead")
    scene.server.lines.clear()
    scene.bridge.opened(scene.server, fresh=True)
    scene.settle()
    number = scene.server.lines[0]["id"]
    scene.say({"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": "2025-11-25"}})
    assert [line["method"] for line in scene.server.lines[1:]] == ["notifications/initialized", "resources/subscribe"]


def test_a_client_that_takes_only_events_gets_its_answer_as_one(scene: Scene) -> None:
    session = scene.open()
    client, _ = scene.send(PING, session=session, accept="text/event-stream")
    scene.say({"jsonrpc": "2.0", "id": scene.server.lines[-1]["id"], "result": {}})
    assert client.headers[b"content-type"] == b"text/event-stream"
    assert client.ended


def test_of_what_a_client_can_do_only_what_it_can_be_asked_for_is_kept(scene: Scene) -> None:
    session = scene.open(sampling={"x": ["y"] * 1000}, roots={}, experimental={"much": ["z"] * 1000})
    found = scene.bridge.find_session(session.encode())
    assert found is not None
    assert found.capabilities == {"sampling", "roots"}


def test_a_session_watches_no_more_than_it_may() -> None:
    scene = Scene()
    scene.greet(resources={"subscribe": True})
    session = scene.open()

    def subscribe(uri: str) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}}
        client, _ = scene.send(asked, session=session)
        scene.say(*({"jsonrpc": "2.0", "id": line["id"], "result": {}} for line in scene.server.lines))
        scene.server.lines.clear()
        return client.message

    assert "error" in subscribe("x" * (MAX_URI + 1))
    assert all("result" in subscribe(f"r{number}") for number in range(MAX_WATCHED))
    assert "more than" in subscribe("one more")["error"]["message"]


def test_a_modern_stream_watches_no_more_than_it_may() -> None:
    scene = Scene()
    scene.greet(resources={"subscribe": True})
    for uris in (["x" * (MAX_URI + 1)], [f"r{number}" for number in range(MAX_WATCHED + 1)]):
        params = {"notifications": {"resourceSubscriptions": uris}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        client, _ = scene.send(asked, mcp_protocol_version="2026-07-28")
        assert (client.status, scene.server.lines) == (400, [])


def test_a_session_has_no_more_requests_at_work_than_it_may_though_it_waits_for_none(scene: Scene) -> None:
    session, other = scene.open(), scene.open()
    for number in range(MAX_CALLS):
        asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "slow"}}
        _, exchange = scene.send(asked, session=session)
        exchange.left()
    refused, _ = scene.send(PING, session=session)
    assert (refused.status, len(scene.server.lines)) == (503, MAX_CALLS)
    scene.send(PING, session=other)
    assert len(scene.server.lines) == MAX_CALLS + 1


@pytest.mark.parametrize(("second", "hears"), [("alice", True), ("bob", False)])
def test_what_a_server_says_late_about_one_client_does_not_reach_the_next(
    scene: Scene, second: str, hears: bool
) -> None:
    first = scene.open(principal=Principal("alice"))
    scene.send(None, session=first, method="DELETE")
    later = scene.open(principal=Principal(second))
    stream, _ = scene.send(None, session=later, method="GET")
    scene.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "about alice"}})
    assert (b"about alice" in stream.body) is hears
    scene.greet()  # a new run knows nothing of her
    scene.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "about nobody"}})
    assert b"about nobody" in stream.body
