"""Transport: failures as KubeErrors, limits, patience, credentials; over a real HTTP server on loopback."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Credential, Fixed, TokenFile, bearer
from fairway.kube.errors import Forbidden, NotFound, TooManyRequests, Unauthorized, Unreachable, WatchSilent
from fairway.kube.transport import Transport
from tests.unit.runtime.toys import until

pytestmark = pytest.mark.anyio

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def serving(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield serving
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Transport]]:
    made: list[Transport] = []

    def connecting(server: str, *, source: Any = None, **options: Any) -> Transport:
        access = ClusterAccess(server, "test", source or Fixed(Credential(bearer("t"))))
        made.append(Transport(access, user_agent="test/1", **options))
        return made[-1]

    yield connecting
    for transport in made:
        await transport.close()


Connect = Callable[..., Transport]


async def test_a_request_arrives_as_it_was_meant(serve: Serve, connect: Connect) -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.Request) -> web.Response:
        seen.update(method=request.method, path=request.path_qs, body=await request.read(), headers=request.headers)
        return web.Response(body=b"{}", headers={"X": "y"})

    transport = connect(await serve(handler) + "/prefix")
    answer = await transport.request("PATCH", "/api/x?a=b%20c", body=b"{1}", content_type="application/x")
    assert (answer.status, answer.body, answer.headers["x"]) == (200, b"{}", "y")
    assert (seen["method"], seen["path"], seen["body"]) == ("PATCH", "/prefix/api/x?a=b%20c", b"{1}")
    headers = seen["headers"]
    assert headers["Authorization"] == "Bearer t"
    assert headers["User-Agent"] == "test/1"
    assert (headers["Content-Type"], headers["Accept"]) == ("application/x", "application/json")


async def test_an_error_answer_is_raised_or_handed_over(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"message": "not you"}, status=403)

    transport = connect(await serve(handler))
    with pytest.raises(Forbidden, match="not you"):
        await transport.request("GET", "/")
    assert (await transport.request("GET", "/", raise_for_status=False)).status == 403


async def test_a_redirect_is_not_followed_with_our_credentials(serve: Serve, connect: Connect) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/"
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    assert (await connect(await serve(handler)).request("GET", "/")).status == 302


async def test_a_short_429_is_waited_out_for_everybody(serve: Serve, connect: Connect) -> None:
    times: list[float] = []

    async def handler(_request: web.Request) -> web.Response:
        times.append(time.monotonic())
        if len(times) == 1:
            return web.Response(status=429, headers={"Retry-After": "0.2"})
        return web.Response()

    transport = connect(await serve(handler))
    first = asyncio.create_task(transport.request("PATCH", "/first"))
    await until(lambda: times)
    await asyncio.sleep(0.05)
    await transport.request("GET", "/second")
    assert (await first).status == 200
    assert all(later - times[0] >= 0.19 for later in times[1:])


async def test_a_long_429_is_the_callers_to_wait_for(serve: Serve, connect: Connect) -> None:
    asked = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=429, headers={"Retry-After": "30"})

    with pytest.raises(TooManyRequests) as caught:
        await connect(await serve(handler)).request("GET", "/")
    assert (caught.value.retry_after, asked) == (30, 1)


async def test_patience_with_429_ends(serve: Serve, connect: Connect) -> None:
    asked = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=429, headers={"Retry-After": "0.05"})

    with pytest.raises(TooManyRequests):
        await connect(await serve(handler), patience=0.12).request("GET", "/")
    assert asked == 3


async def test_a_server_that_asks_for_no_pause_is_not_asked_without_end(serve: Serve, connect: Connect) -> None:
    asked = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=429, headers={"Retry-After": "0"})

    with pytest.raises(TooManyRequests):
        await connect(await serve(handler), patience=0.2).request("GET", "/")
    assert 2 <= asked <= 5


async def test_a_429_to_a_watch_pauses_requests_too(serve: Serve, connect: Connect) -> None:
    times: list[float] = []

    async def handler(request: web.Request) -> web.Response:
        times.append(time.monotonic())
        return web.Response(status=429 if request.path == "/watch" else 200, headers={"Retry-After": "0.2"})

    transport = connect(await serve(handler))
    with pytest.raises(TooManyRequests):
        async for _ in transport.lines("/watch", accept="*/*", silence=5):
            pass
    await transport.request("GET", "/")
    assert times[1] - times[0] >= 0.19


async def test_after_a_pause_the_rate_still_holds(serve: Serve, connect: Connect) -> None:
    times: list[float] = []

    async def handler(_request: web.Request) -> web.Response:
        times.append(time.monotonic())
        return web.Response(status=429 if len(times) == 1 else 200, headers={"Retry-After": "0.3"})

    transport = connect(await serve(handler), rate=50, burst=1)
    first = asyncio.create_task(transport.request("GET", "/"))
    await until(lambda: times)
    await asyncio.sleep(0.05)
    await asyncio.gather(first, *(transport.request("GET", "/") for _ in range(9)))
    # ten requests at 50 a second, two of them by the tokens that there are at the end of the pause
    assert times[-1] - times[1] >= 8 / 50 - 0.01


async def test_a_pause_that_is_made_longer_is_kept_to(serve: Serve, connect: Connect) -> None:
    times: dict[str, float] = {}

    async def handler(request: web.Request) -> web.Response:
        times.setdefault(request.path, time.monotonic())
        if request.path == "/calm":
            return web.Response()
        await asyncio.sleep(float(request.query["after"]))
        return web.Response(status=429, headers={"Retry-After": "0.3"})

    transport = connect(await serve(handler), patience=0.3)
    busy = [asyncio.create_task(transport.request("GET", f"/{after}?after={after}")) for after in ("0.0", "0.2")]
    await until(lambda: len(times) == 2)
    await asyncio.sleep(0.1)
    await transport.request("GET", "/calm")
    assert times["/calm"] - times["/0.2"] >= 0.48
    for task in busy:
        task.cancel()


async def test_a_401_renews_the_credentials_once(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        (tmp_path / "token").write_text("new")
        return web.Response(status=200 if seen[-1] == "Bearer new" else 401)

    (tmp_path / "token").write_text("old")
    transport = connect(await serve(handler), source=TokenFile(tmp_path / "token"))
    assert (await transport.request("GET", "/")).status == 200
    assert seen == ["Bearer old", "Bearer new"]


async def test_a_401_that_stays_is_raised(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    asked = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"message": "who are you"}, status=401)

    (tmp_path / "token").write_text("old")
    server = await serve(handler)
    with pytest.raises(Unauthorized, match="who are you"):
        await connect(server, source=TokenFile(tmp_path / "token")).request("GET", "/")
    assert asked == 2
    with pytest.raises(Unauthorized):
        await connect(server).request("GET", "/")
    assert asked == 3


async def test_nobody_there_reset_and_timeout_are_unreachable(serve: Serve, connect: Connect) -> None:
    with pytest.raises(Unreachable, match=r"GET http://127\.0\.0\.1:1"):
        await connect("http://127.0.0.1:1").request("GET", "/")

    async def reset(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(Unreachable):
        await connect(await serve(reset)).request("GET", "/")

    async def hang(_request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    transport = connect(await serve(hang))
    with pytest.raises(Unreachable, match="timed out"):
        await transport.request("GET", "/", timeout=0.05)
    with pytest.raises(Unreachable, match="timed out"):
        await transport.request("PATCH", "/", deadline=time.monotonic() + 0.05)


async def test_after_its_deadline_nothing_is_sent(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        raise AssertionError

    transport = connect(await serve(handler))
    with pytest.raises(Unreachable, match="no time left"):
        await transport.request("PATCH", "/", deadline=time.monotonic() - 1)


async def test_a_deadline_holds_while_waiting_for_a_turn(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response()

    transport = connect(await serve(handler), rate=0.1, burst=1)
    await transport.request("PATCH", "/")
    started = time.monotonic()
    with pytest.raises(Unreachable, match="no time left"):
        await transport.request("PATCH", "/", deadline=time.monotonic() + 0.5)
    assert time.monotonic() - started < 0.4


async def test_a_deadline_holds_while_all_connections_are_busy(serve: Serve, connect: Connect) -> None:
    release = asyncio.Event()
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        await release.wait()
        return web.Response()

    transport = connect(await serve(handler), connections=1)
    first = asyncio.create_task(transport.request("GET", "/first"))
    await until(lambda: seen)
    late = asyncio.create_task(transport.request("PATCH", "/late", deadline=time.monotonic() + 0.05))
    await asyncio.sleep(0.1)
    release.set()
    await first
    with pytest.raises(Unreachable, match="timed out waiting for a connection"):
        await late
    assert seen == ["/first"]


async def test_no_more_requests_at_once_than_connections_but_watches_besides(serve: Serve, connect: Connect) -> None:
    active = most = 0
    release = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal active, most
        if request.path == "/watch":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"a":1}\n')
            await release.wait()
            return response
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.02)
        active -= 1
        return web.Response()

    transport = connect(await serve(handler), connections=3)
    lines = transport.lines("/watch", accept="application/json", silence=5)
    assert await anext(lines) == b'{"a":1}'
    await asyncio.gather(*(transport.request("GET", "/") for _ in range(12)))
    assert most == 3
    release.set()
    await lines.aclose()


async def test_a_rate_is_kept(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response()

    transport = connect(await serve(handler), rate=50, burst=2)
    started = time.monotonic()
    await asyncio.gather(*(transport.request("GET", "/") for _ in range(12)))
    assert time.monotonic() - started >= 0.19


async def test_an_answer_longer_than_allowed_is_cut_off(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 5000)

    transport = connect(await serve(handler))
    assert len((await transport.request("GET", "/", max_bytes=5000)).body) == 5000
    with pytest.raises(Unreachable, match="longer than 4999"):
        await transport.request("GET", "/", max_bytes=4999)


async def test_lines_come_whole_however_they_were_cut(serve: Serve, connect: Connect) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b"on", b"e\ntwo\nth", b"", b"r", b"ee\n", b"last"):
            await response.write(part)
            await asyncio.sleep(0.005)
        return response

    transport = connect(await serve(handler))
    assert [line async for line in transport.lines("/", accept="*/*", silence=5)] == [b"one", b"two", b"three"]


async def test_a_silent_stream_is_dead(serve: Serve, connect: Connect) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await asyncio.sleep(30)
        return response

    lines = connect(await serve(handler)).lines("/", accept="*/*", silence=0.1)
    assert await anext(lines) == b"one"
    with pytest.raises(WatchSilent, match=r"nothing for 0\.1s"):
        await anext(lines)


async def test_a_stream_that_breaks_is_unreachable(serve: Serve, connect: Connect) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    lines = connect(await serve(handler)).lines("/", accept="*/*", silence=5)
    with pytest.raises(Unreachable):
        while True:
            await anext(lines)


async def test_a_stream_that_is_refused_raises(serve: Serve, connect: Connect) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"message": "no such kind"}, status=404)

    with pytest.raises(NotFound, match="no such kind"):
        await anext(connect(await serve(handler)).lines("/", accept="*/*", silence=5))


async def test_every_exchange_is_observed(serve: Serve, connect: Connect) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=404 if request.path == "/no" else 200)

    seen: list[tuple[str, int]] = []
    server = await serve(handler)
    transport = connect(server, observe=lambda method, status: seen.append((method, status)))
    await transport.request("GET", "/")
    with pytest.raises(NotFound):
        await transport.request("DELETE", "/no")
    down = connect("http://127.0.0.1:1", observe=lambda method, status: seen.append((method, status)))
    with pytest.raises(Unreachable):
        await down.request("GET", "/")
    assert seen == [("GET", 200), ("DELETE", 404), ("GET", 0)]
