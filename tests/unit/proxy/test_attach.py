"""Attaching again, and again: when a server is greeted anew and when not, over a scripted API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from fairway.api.runconfig import Attach
from fairway.kube.channels import V5
from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Credential, Fixed
from fairway.proxy import attach
from fairway.proxy.attach import AttachedServer
from fairway.proxy.bridge.messages import FromServer
from tests.unit.proxy.serving import until
from tests.unit.proxy.test_container import pod

pytestmark = pytest.mark.anyio

INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


class ApiServer:
    """One pod and its container: what is written to it, and a word for every end that an attachment can find."""

    def __init__(self) -> None:
        self.lines: list[list[bytes]] = []
        """What each attachment wrote, cut at newlines."""
        self.attached: web.WebSocketResponse | None = None
        self.request: web.Request | None = None
        self.refusal: int | None = None
        self.initialize: Callable[[], dict[str, Any]] = lambda: {"result": INITIALIZED}
        self.url = ""
        self._version = 1
        self._pod = pod()
        self._watches: list[web.StreamResponse] = []

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/ns/pods", self._watch)
        app.router.add_get("/api/v1/namespaces/ns/pods/w-0/attach", self._attach)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    @property
    def greetings(self) -> int:
        return sum(b'"initialize"' in line for lines in self.lines for line in lines)

    async def runs_as(self, container_id: str) -> None:
        """The kubelet tells which run of the container there is."""
        self._version += 1
        self._pod = pod(container_status={"containerID": container_id})
        for watch in self._watches:
            await watch.write(self._event("MODIFIED", self._as_listed()))

    def _as_listed(self) -> dict[str, Any]:
        metadata = {"namespace": "ns", "resourceVersion": str(self._version), **self._pod["metadata"]}
        return {"apiVersion": "v1", "kind": "Pod", **self._pod, "metadata": metadata}

    def _event(self, kind: str, obj: dict[str, Any]) -> bytes:
        return json.dumps({"type": kind, "object": obj}).encode() + b"\n"

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == "metadata.name=w-0"
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(self._event("ADDED", self._as_listed()))
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": str(self._version), "annotations": annotations}
        await answer.write(self._event("BOOKMARK", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
        self._watches.append(answer)
        await asyncio.Event().wait()
        return answer

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        assert request.query_string == "stdout=true&stdin=true&container=server"
        if self.refusal is not None:
            return web.json_response({"message": "not you"}, status=self.refusal)
        socket = web.WebSocketResponse(protocols=(V5,), max_msg_size=0)
        await socket.prepare(request)
        self.attached, self.request = socket, request
        lines = [b""]
        self.lines.append(lines)
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            *whole, rest = (lines.pop() + message.data[1:]).split(b"\n")
            for line in whole:
                lines.append(line)
                asked = json.loads(line) if line.strip() else {}
                if asked.get("method") == "initialize":
                    answer = {"jsonrpc": "2.0", "id": asked["id"], **self.initialize()}
                    await socket.send_bytes(b"\x01" + json.dumps(answer).encode() + b"\n")
            lines.append(rest)
        return socket

    async def say(self, message: dict[str, Any]) -> None:
        assert self.attached is not None
        await self.attached.send_bytes(b"\x01" + json.dumps(message).encode() + b"\n")

    def break_off(self) -> None:
        assert self.request is not None
        assert self.request.transport is not None
        self.request.transport.abort()

    async def end_in_order(self) -> None:
        assert self.attached is not None
        await self.attached.send_bytes(SUCCESS)
        await self.attached.close(code=WSCloseCode.OK)


class Server:
    """An attached server and what was told of it."""

    def __init__(self, api: ApiServer) -> None:
        access = ClusterAccess(api.url, "test", Fixed(Credential()))
        self.lines = AttachedServer(Attach(namespace="ns", pod="w-0"), name="w", access=access)
        self.reasons: list[str] = []
        self.lines.start(self._changed)

    def _changed(self) -> None:
        self.reasons.append(self.lines.bridge.link.why)

    @property
    def up(self) -> bool:
        return self.lines.bridge.link.up

    def ask(self, params: bytes = b"{}") -> list[FromServer | None]:
        answers: list[FromServer | None] = []
        self.lines.bridge.link.ask("tools/call", params, answers.append)
        return answers


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setattr(attach, "RUMOUR", 0.3)
    made = ApiServer()
    runner = await made.start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def server(api: ApiServer) -> AsyncIterator[Server]:
    made = Server(api)
    yield made
    await made.lines.end()


async def test_a_broken_connection_is_made_anew_without_a_greeting(api: ApiServer, server: Server) -> None:
    await until(lambda: server.up)
    answers = server.ask()
    await until(lambda: b"tools/call" in b"".join(api.lines[0]))
    api.break_off()
    await until(lambda: answers)
    assert answers == [None]
    assert "the connection to the pod w-0 broke" in server.reasons[-1]
    await until(lambda: server.up)
    assert (api.greetings, server.lines.starts) == (1, 2)
    assert api.lines[1] == [b""]


async def test_a_line_that_may_have_been_cut_is_ended_first(api: ApiServer, server: Server) -> None:
    await until(lambda: server.up)
    server.ask(json.dumps({"text": "x" * 200_000}).encode())
    await until(lambda: sum(map(len, api.lines[0])) > 200_000)
    api.break_off()
    await until(lambda: server.lines.starts == 2 and server.up)
    server.ask()
    await until(lambda: len(api.lines[1]) > 2)
    assert api.lines[1][0] == b""
    assert json.loads(api.lines[1][1])["method"] == "tools/call"


async def test_an_end_in_order_waits_for_the_next_run_and_greets_it(api: ApiServer, server: Server) -> None:
    await until(lambda: server.up)
    answers = server.ask()
    await api.end_in_order()
    await until(lambda: answers)
    assert "closed its output" in server.reasons[-1]
    await api.runs_as("containerd://2")
    await until(lambda: server.up)
    assert (api.greetings, server.lines.starts) == (2, 2)


async def test_an_end_in_order_of_a_container_that_lives_on_needs_no_greeting(api: ApiServer, server: Server) -> None:
    """As when a kubelet is restarted."""
    await until(lambda: server.up)
    await api.end_in_order()
    await until(lambda: not server.up)
    await until(lambda: server.up)
    assert (api.greetings, server.lines.starts) == (1, 2)


async def test_a_run_that_turns_out_to_be_another_is_greeted(api: ApiServer, server: Server) -> None:
    """What a pod says of its containers comes late: the attachment may have reached the next run already."""
    await until(lambda: server.up)
    answers = server.ask()
    await until(lambda: b"tools/call" in b"".join(api.lines[0]))
    await api.runs_as("containerd://2")
    await until(lambda: server.lines.starts == 2 and server.up)
    assert answers == [None]
    assert "the container server of pod w-0 was started anew" in server.reasons
    assert api.greetings == 2


async def test_a_refused_greeting_is_tried_again(api: ApiServer, server: Server) -> None:
    api.initialize = lambda: {"error": {"code": -32603, "message": "the licence has expired"}}
    await until(lambda: any("the licence has expired" in reason for reason in server.reasons))
    api.initialize = lambda: {"result": INITIALIZED}
    await until(lambda: server.up)
    assert api.greetings >= 2


async def test_a_refusal_to_attach_is_said_and_tried_again(api: ApiServer, server: Server) -> None:
    api.refusal = 403
    await until(lambda: any("cannot attach to the pod w-0: 403" in reason for reason in server.reasons))
    assert not server.up
    api.refusal = None
    await until(lambda: server.up)
    assert api.greetings == 1


async def test_noise_between_messages_and_half_a_line_at_the_start_do_no_harm(api: ApiServer, server: Server) -> None:
    await until(lambda: server.up)
    api.break_off()
    await until(lambda: server.lines.starts == 2 and server.up)
    assert api.attached is not None
    await api.attached.send_bytes(b'\x01lf of an answer"}\nstarting up ...\n')
    answers = server.ask()
    await until(lambda: b"tools/call" in b"".join(api.lines[1]))
    asked = json.loads(next(line for line in api.lines[1] if b"tools/call" in line))
    await api.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
    await until(lambda: answers)
    assert answers[0] is not None
    assert server.lines.bridge.link.noise == 2


async def test_two_proxies_use_other_ids(api: ApiServer, server: Server) -> None:
    other = Server(api)
    await until(lambda: server.up and other.up)
    ids = [json.loads(lines[0])["id"] for lines in api.lines]
    assert ids[0] != ids[1]
    assert max(ids) < 1 << 53, "what JavaScript can count to"
    await other.lines.end()


async def test_whoever_is_let_go_leaves_nothing_behind(api: ApiServer, server: Server) -> None:
    await until(lambda: server.up)
    answers = server.ask()
    await server.lines.end()
    assert answers == [None]
    assert not server.up
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not names & {"attach w", "pod of w"}
