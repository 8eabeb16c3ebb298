"""Logs, exec and attach against a server that does exactly what a script says, wrong things too."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web

from fairway.kube.channels import V4, V5, Channel, Exit
from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Credential, Fixed, TokenFile, bearer
from fairway.kube.errors import BadRequest, Forbidden, KubeError, NotFound, TooManyRequests, Unreachable
from fairway.kube.pods import Pods
from fairway.kube.remote import Completed, OutputTooLong, Remote
from fairway.kube.streams import Streams
from fairway.kube.transport import Transport
from tests.unit.kube.peer import SUCCESS, Peer, PeerServer, Script, frame
from tests.unit.runtime.toys import until

pytestmark = pytest.mark.anyio

Serve = Callable[[Script], Awaitable[Pods]]


def transport_to(url: str, **options: object) -> Transport:
    access = ClusterAccess(url, "test", Fixed(Credential(bearer("t"))))
    return Transport(access, user_agent="test/1", **options)  # type: ignore[arg-type]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[PeerServer] = []
    transports: list[Transport] = []

    async def serving(script: Script) -> Pods:
        servers.append(await PeerServer(script).start())
        transports.append(transport_to(servers[-1].url))
        return Pods(transports[-1])

    yield serving
    for transport in transports:
        await transport.close()
    for server in servers:
        await server.close()


async def exec_cat(pods: Pods, *, stdin: bool = True) -> Remote:
    return await pods.exec("ns", "p", ["cat"], stdin=stdin)


async def test_the_request_says_what_is_wanted(serve: Serve) -> None:
    seen: dict[str, str] = {}

    async def script(peer: Peer) -> None:
        seen.update(await peer.welcome(at_once=frame(2, SUCCESS)))

    pods = await serve(script)
    async with await pods.exec("ns", "p-0", ["sh", "-c", "a b&c"], container="main", stdin=True) as remote:
        assert await remote.exit() == Exit(0)
    method, target, _ = seen[""].split(" ")
    url = urlsplit(target)
    assert (method, url.path) == ("GET", "/api/v1/namespaces/ns/pods/p-0/exec")
    assert parse_qs(url.query) == {
        "command": ["sh", "-c", "a b&c"],
        "stdout": ["true"],
        "stderr": ["true"],
        "stdin": ["true"],
        "container": ["main"],
    }
    assert (seen["authorization"], seen["sec-websocket-protocol"]) == ("Bearer t", f"{V5}, {V4}")


async def test_stdin_goes_out_and_output_comes_in_by_channel(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.message() == b"\x00hello"
        peer.send(b"\x01to you")
        peer.send(b"\x02oh")
        assert await peer.message() == b"\xff\x00"
        peer.send(b'\x03{"status":"Failure","reason":"NonZeroExitCode",'
                  b'"details":{"causes":[{"reason":"ExitCode","message":"7"}]}}')  # fmt: skip

    async with await exec_cat(await serve(script)) as remote:
        assert remote.streams.protocol == V5
        await remote.write(b"hello")
        assert [await remote.read(), await remote.read()] == [(Channel.STDOUT, b"to you"), (Channel.STDERR, b"oh")]
        remote.end_stdin()
        assert await remote.read() is None
        assert (await remote.exit()).code == 7
        with pytest.raises(ValueError, match="stdin has been closed"):
            await remote.write(b"more")


async def test_output_that_comes_behind_the_exit_is_not_lost(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(at_once=frame(2, SUCCESS) + frame(2, b"\x01late") + frame(8, b"\x03\xe8"))
        assert await peer.receive() == (8, b"\x03\xe8")

    completed = await (await exec_cat(await serve(script))).communicate()
    assert completed == Completed(b"late", b"", Exit(0))


async def test_large_input_goes_in_pieces_and_arrives_whole(serve: Serve) -> None:
    data = bytes(range(256)) * (3 << 12)
    pieces: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        while (message := await peer.message()) != b"\xff\x00":
            assert message[0] == 0
            pieces.append(message[1:])
        peer.send(SUCCESS)

    completed = await (await exec_cat(await serve(script))).communicate(data)
    assert completed.exit.ok
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 1 << 16


async def test_a_server_without_v5_cannot_close_stdin_and_the_error_says_so(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(V4)
        peer.send(b"\x01" + (await peer.message())[1:])
        peer.send(SUCCESS)

    async with await exec_cat(await serve(script)) as remote:
        assert not remote.streams.can_end_stdin
        with pytest.raises(ValueError, match=r"Kubernetes 1\.30 and newer"):
            remote.end_stdin()
        await remote.write(b"still works")
        assert await remote.read() == (Channel.STDOUT, b"still works")


async def test_a_ping_is_answered(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(at_once=frame(9, b"there?"))
        assert await peer.receive() == (10, b"there?")
        peer.send(SUCCESS)

    async with await exec_cat(await serve(script)) as remote:
        assert (await remote.exit()).ok


BROKEN = {
    "a masked frame": (bytes((0x82, 0x81)) + b"kkkkx", "breaks the websocket protocol.*masked"),
    "a channel that is none": (frame(2, b"\x09x"), "breaks v5.channel.k8s.io: a message on channel 9"),
    "an empty message": (frame(2), "breaks v5.channel.k8s.io: a message without a channel"),
    "a status that is none": (frame(2, b"\x03nonsense"), "the error channel carries no Status"),
    "a close before the end": (frame(8, b"\x03\xf3trouble"), r"closed the streams before their end \(1011: trouble\)"),
    "a close without words": (frame(8), r"before their end \(1005\)"),
    "the end of the connection": (b"", "the connection was lost"),
    "half a frame and the end": (frame(2, b"\x01abc")[:-1], "the connection was lost"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_break_is_told_after_what_came_before_it(serve: Serve, name: str) -> None:
    data, message = BROKEN[name]

    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(b"\x01before")
        await peer.writer.drain()
        await peer.message()
        peer.writer.write(data)

    async with await exec_cat(await serve(script)) as remote:
        assert await remote.read() == (Channel.STDOUT, b"before")
        await remote.write(b"go on")
        for _ in range(2):
            with pytest.raises(Unreachable, match=message):
                await remote.exit()
        with pytest.raises(Unreachable, match=message):
            await remote.write(b"x")


async def test_a_violation_is_answered_with_its_code(serve: Serve) -> None:
    told: list[tuple[int, bytes]] = []

    async def script(peer: Peer) -> None:
        await peer.welcome(at_once=frame(1, b"\xff"))
        told.append(await peer.receive())

    async with await exec_cat(await serve(script)) as remote:
        with pytest.raises(Unreachable, match="not UTF-8"):
            await remote.exit()
    await until(lambda: told)
    assert told == [(8, struct.pack("!H", 1007))]


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\n"
REFUSALS: dict[bytes, tuple[type[KubeError], str]] = {
    b'HTTP/1.1 403 Forbidden\r\nContent-Length: 21\r\n\r\n{"message":"not you"}': (Forbidden, "not you"),
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nno pod": (NotFound, "no pod"),
    b"HTTP/1.1 400 Bad\r\nContent-Length: 7\r\n\r\nupgrade": (BadRequest, "upgrade"),
    b"HTTP/1.1 429 Slow\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n": (TooManyRequests, "429"),
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi": (Unreachable, "the answer is 200 instead of a websocket"),
    SWITCH + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n": (Unreachable, "Sec-WebSocket-Accept"),
    SWITCH + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n": (Unreachable, "other than a websocket"),
    SWITCH + b"\r\n\x82\x01x": (Unreachable, "not HTTP"),
    b"\x00\x01\x02": (Unreachable, "not HTTP"),
    b"": (Unreachable, "the connection was lost"),
}


@pytest.mark.parametrize("answer", REFUSALS)
async def test_a_refusal_is_an_error_of_its_own_kind(serve: Serve, answer: bytes) -> None:
    error, message = REFUSALS[answer]

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(answer)

    with pytest.raises(error, match=message):
        await exec_cat(await serve(script))


async def test_a_subprotocol_that_was_not_offered_is_named(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome("channel.k8s.io")

    with pytest.raises(Unreachable, match=f"{V5} and {V4} were offered, and the server chose 'channel.k8s.io'"):
        await exec_cat(await serve(script))


async def test_a_token_that_is_refused_is_read_again_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    seen: list[str] = []

    async def script(peer: Peer) -> None:
        headers = await peer.request()
        seen.append(headers["authorization"])
        file.write_text("new")
        peer.writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    server = await PeerServer(script).start()
    transport = Transport(ClusterAccess(server.url, "test", TokenFile(file)), user_agent="t")
    with pytest.raises(KubeError, match="401"):
        await exec_cat(Pods(transport))
    assert seen == ["Bearer old", "Bearer new"]
    await transport.close()
    await server.close()


class Listener:
    """A receiver that writes everything down."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def output(self, channel: Channel, data: bytes) -> None:
        self.got.append((channel, data))

    def writable(self, writable: bool) -> None:
        self.got.append(writable)

    def ended(self, end: Exit | Unreachable) -> None:
        self.got.append(end)


async def test_a_server_that_says_nothing_any_more_counts_as_gone(serve: Serve) -> None:
    pings: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            opcode, payload = await peer.receive()
            pings.append(opcode)
            peer.send(payload, 10)
        while True:
            await peer.receive()

    listener = Listener()
    streams = Streams(listener, ping=0.02, silence=0.1)
    await (await serve(script)).attach_to(streams, "ns", "p", stdin=True)
    await until(lambda: listener.got)
    assert pings == [9, 9, 9]
    (end,) = listener.got
    assert isinstance(end, Unreachable)
    assert "nothing came from the server" in end.message


async def test_a_server_that_takes_nothing_is_not_taken_for_dead(serve: Serve) -> None:
    """Where a container does not read its stdin, no answer to a ping can be asked for."""
    go_on = asyncio.Event()
    sizes: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await go_on.wait()
        while sum(sizes) < 16 << 20:
            opcode, payload = await peer.receive()
            sizes.append(len(payload) - 1 if opcode == 2 else 0)
        peer.send(SUCCESS)
        await peer.writer.drain()
        await peer.receive()

    listener = Listener()
    streams = Streams(listener, ping=0.02, silence=1.0)
    await (await serve(script)).attach_to(streams, "ns", "p", stdin=True)
    for _ in range(16):
        streams.write(bytes(1 << 20))
    assert listener.got == [False]
    await asyncio.sleep(1.5)
    assert listener.got == [False]
    go_on.set()
    await until(lambda: listener.got[-1] == Exit(0))
    assert listener.got == [False, True, Exit(0)]


async def test_output_waits_at_the_server_while_nobody_reads_it(serve: Serve) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        await peer.welcome()
        for _ in range(1024):
            peer.send(b"\x01" + bytes(32 << 10))
            await peer.writer.drain()
            sent += 32 << 10
        peer.send(SUCCESS)

    async with await exec_cat(await serve(script)) as remote:
        before = -1
        while before != sent or not sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 16 << 20
        total = 0
        while (output := await remote.read()) is not None:
            total += len(output[1])
        assert total == sent == 32 << 20


async def test_writing_waits_while_nobody_reads_at_the_other_end(serve: Serve) -> None:
    go_on = asyncio.Event()
    got = 0

    async def script(peer: Peer) -> None:
        nonlocal got
        await peer.welcome()
        await go_on.wait()
        while (message := await peer.message()) != b"\xff\x00":
            got += len(message) - 1
        peer.send(SUCCESS)

    async with await exec_cat(await serve(script)) as remote:
        feeding = asyncio.create_task(remote.communicate(bytes(32 << 20)))
        await asyncio.sleep(0.2)
        assert remote.streams._connection is not None
        assert remote.streams._connection.unsent < 8 << 20
        go_on.set()
        assert (await feeding).exit.ok
        assert got == 32 << 20


async def test_a_command_that_says_too_much_is_cut_off(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(at_once=frame(2, b"\x01" + bytes(1000)))
        await peer.receive()

    async with await exec_cat(await serve(script)) as remote:
        with pytest.raises(OutputTooLong, match="more than 999 bytes"):
            await remote.communicate(limit=999)


async def test_whoever_closes_the_streams_hears_nothing_more(serve: Serve) -> None:
    closed: list[tuple[int, bytes]] = []

    async def script(peer: Peer) -> None:
        await peer.welcome(at_once=frame(2, b"\x01hi"))
        closed.append(await peer.receive())

    listener = Listener()
    streams = Streams(listener)
    await (await serve(script)).attach_to(streams, "ns", "p")
    await until(lambda: listener.got)
    streams.close()
    await until(lambda: closed)
    assert closed == [(8, b"\x03\xe8")]
    assert listener.got == [(Channel.STDOUT, b"hi")]
    streams.write(b"nobody is there")


async def test_closing_wakes_whoever_waits(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.receive()

    remote = await exec_cat(await serve(script))
    reading = asyncio.create_task(remote.read())
    await asyncio.sleep(0)
    remote.close()
    with pytest.raises(Unreachable, match="the streams were closed"):
        await reading


async def test_another_implementation_of_websockets_understands_us() -> None:
    """aiohttp's server answers as the API server's translator would."""

    async def handler(request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse(protocols=(V5,), max_msg_size=0)
        await answer.prepare(request)
        async for message in answer:
            assert message.type is aiohttp.WSMsgType.BINARY
            if message.data == b"\xff\x00":
                break
            await answer.ping(b"!")
            await answer.send_bytes(b"\x01" + message.data[1:])
        await answer.send_bytes(SUCCESS)
        await answer.close()
        return answer

    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    transport = transport_to(f"http://127.0.0.1:{runner.addresses[0][1]}")
    data = bytes(range(256)) * 2000
    completed = await (await exec_cat(Pods(transport))).communicate(data)
    assert completed == Completed(data, b"", Exit(0))
    await transport.close()
    await runner.cleanup()


LOG = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_log_is_asked_for_as_it_was_meant(serve: Serve) -> None:
    seen: list[str] = []

    async def script(peer: Peer) -> None:
        for _ in range(2):
            seen.append((await peer.request())[""])
            peer.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na\nb\n")

    pods = await serve(script)
    assert await pods.log("ns", "p") == b"a\nb\n"
    await pods.log("ns", "p", container="c", tail=0, since_seconds=9, previous=True, timestamps=True, max_bytes=7)
    queries = [parse_qs(urlsplit(line.split(" ")[1]).query) for line in seen]
    assert queries[0] == {"limitBytes": [str(16 << 20)]}
    assert queries[1] == {
        "container": ["c"],
        "tailLines": ["0"],
        "sinceSeconds": ["9"],
        "previous": ["true"],
        "timestamps": ["true"],
        "limitBytes": ["7"],
    }


async def test_a_log_is_followed_to_its_last_byte(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        assert "follow=true" in (await peer.request())[""]
        peer.writer.write(LOG + b"4\r\none\n\r\n")
        await peer.writer.drain()
        peer.writer.write(b"8\r\nno end. \r\n0\r\n\r\n")

    pods = await serve(script)
    assert b"".join([chunk async for chunk in pods.follow_log("ns", "p")]) == b"one\nno end. "


async def test_a_log_that_breaks_off_is_not_at_its_end(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(LOG + b"4\r\none\n\r\n")

    got: list[bytes] = []
    with pytest.raises(Unreachable, match="the connection was lost"):
        async for chunk in (await serve(script)).follow_log("ns", "p"):
            got.append(chunk)
    assert got == [b"one\n"]


@pytest.mark.parametrize("name", ["..", "", "."])
async def test_a_name_cannot_climb_out_of_its_path(serve: Serve, name: str) -> None:
    async def script(peer: Peer) -> None:
        raise AssertionError("nothing must be sent")

    pods = await serve(script)
    with pytest.raises(ValueError, match="no name"):
        await pods.attach("ns", name)
    with pytest.raises(ValueError, match=r"no name|none was given"):
        await pods.log(name, "p")
