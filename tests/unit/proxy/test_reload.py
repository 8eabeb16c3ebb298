"""New settings while requests are under way."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from fairway.api.proxystatus import ConfigState
from fairway.api.runconfig import RunConfig, Timeouts, Tools, encode
from fairway.proxy.files import ConfigFiles
from fairway.proxy.topology import FileTopology
from tests.unit.proxy.serving import call, free_port, idle_gateway, listing, proxy, route, server, until

pytestmark = pytest.mark.anyio


def mount(directory: Path, version: str, **files: bytes) -> None:
    """As the kubelet writes a ConfigMap: files behind a link to a directory behind a link that is swapped."""
    content = directory / f"..{version}"
    content.mkdir(parents=True)
    for name, data in files.items():
        (content / f"{name}.json").write_bytes(data)
        link = directory / f"{name}.json"
        if not link.is_symlink():
            link.symlink_to(Path("..data") / f"{name}.json")
    fresh = directory / "..data_tmp"
    fresh.symlink_to(content.name)
    os.replace(fresh, directory / "..data")  # noqa: PTH105  the name of the system call is the point


def config(*routes) -> bytes:
    return encode(RunConfig(version=1, routes=routes))


async def keep_asking(front, until_set: asyncio.Event, answers: list[int], *, fresh: bool) -> None:
    client = await front.client()
    while not until_set.is_set():
        if fresh:
            client.close()
            client = await front.client()
        answers.append((await client.ask(call("add"))).status)
    client.close()


@pytest.mark.parametrize("fresh", [False, True], ids=["kept connections", "new connections"])
async def test_a_reload_under_load_loses_no_request(tmp_path, fresh):
    async with server() as backend, server() as other:
        mount(tmp_path, "1", runconfig=config(route(backend.address, port=free_port())))
        configs = ConfigFiles(tmp_path)
        async with proxy(configs=configs) as front:
            port = front.address()[1]
            enough, answers = asyncio.Event(), []
            clients = [asyncio.create_task(keep_asking(front, enough, answers, fresh=fresh)) for _ in range(4)]
            for version in range(2, 6):
                tools = Tools(filter=("add", f"t{version}"))
                address = (backend, other)[version % 2].address
                mount(tmp_path, str(version), runconfig=config(route(address, port=port, tools=tools)))
                wanted = config(route(address, port=port, tools=tools))
                await until(lambda wanted=wanted: config(front.live().route) == wanted)
                await until(lambda: front.live().ready)
            enough.set()
            await asyncio.gather(*clients)
            assert len(answers) > 50
            assert set(answers) == {200}
            assert front.address()[1] == port


async def test_a_bad_file_keeps_the_last_good_one_and_is_reported(tmp_path):
    async with server() as backend:
        path = tmp_path / "runconfig.json"
        path.write_bytes(config(route(backend.address)))
        async with proxy(configs=ConfigFiles(path)) as front:
            for bad in (b"{", b'{"version":2,"routes":[]}', b'{"version":1,"routes":[],"policies":[]}'):
                path.write_bytes(bad)
                await until(lambda: front.gateway.status().config.state is ConfigState.INVALID)
                assert "runconfig.json" in front.gateway.status().config.error
                assert (await front.ask(call())).status == 200
            path.unlink()
            await until(lambda: front.gateway.status().config.state is ConfigState.MISSING)
            assert (await front.ask(call())).status == 200
            path.write_bytes(config(route(backend.address)))
            await until(lambda: front.gateway.status().config.state is ConfigState.OK)


async def test_without_a_first_good_file_nothing_is_served_until_there_is_one(tmp_path):
    async with server() as backend:
        path = tmp_path / "runconfig.json"
        path.write_bytes(b"{")
        configs = ConfigFiles(tmp_path)
        async with idle_gateway(configs) as gateway:
            assert gateway.status().routes == ()
            assert not gateway.ready
            assert gateway.status().config.state is ConfigState.INVALID
            path.write_bytes(config(route(backend.address)))
            await until(lambda: gateway.ready)


async def test_routes_appear_change_and_vanish(tmp_path):
    release = asyncio.Event()

    async def slow(conversation, got):
        if got.method == "GET":
            conversation.start_chunked()
            conversation.chunk(b": open\n\n")
            await conversation.gone()
            return
        await release.wait()
        conversation.json({"id": 1, "result": {}})

    async with server(slow) as backend:
        (tmp_path / "a.json").write_bytes(config(route(backend.address, name="default/a")))
        async with proxy(configs=ConfigFiles(tmp_path)) as front:
            calling, streaming, idle = [await front.client() for _ in range(3)]
            old = front.address()
            calling.post(call())
            streaming.get()
            await streaming.head()
            await streaming.chunk()
            (tmp_path / "b.json").write_bytes(config(route(backend.address, name="default/b")))
            await until(lambda: "default/b" in front.gateway.routes and front.live("default/b").ready)
            assert front.address() == old
            (tmp_path / "a.json").unlink()
            await until(lambda: "default/a" not in front.gateway.routes)
            # an endless stream ends as if the server had ended it, an idle connection is closed, a call is answered
            assert await streaming.chunk() == b""
            assert await idle.closed() == b""
            release.set()
            assert (await calling.reply()).status == 200
            with pytest.raises(OSError):
                await asyncio.open_connection(*old)
            assert (await front.ask(call(), name="default/b")).status == 200


async def test_a_stream_of_a_route_that_vanishes_ends_and_its_neighbours_go_on(tmp_path):
    async def streams(conversation, got):
        conversation.start_chunked()
        conversation.chunk(b": open\n\n")
        await conversation.gone()

    port = free_port()
    async with server(streams) as backend:
        for name in ("a", "b"):
            made = route(backend.address, name=f"default/{name}", path=f"/{name}", port=port)
            (tmp_path / f"{name}.json").write_bytes(config(made))
        async with proxy(configs=ConfigFiles(tmp_path)) as front:
            streaming = {name: await front.client(f"default/{name}") for name in ("a", "b")}
            for name, client in streaming.items():
                client.send(f"GET /{name} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n".encode())
                await client.head()
                await client.chunk()
            (tmp_path / "a.json").unlink()
            assert await streaming["a"].chunk() == b""
            await until(lambda: backend.closed >= 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await streaming["b"].chunk()


async def test_two_files_with_the_same_route_do_not_fight(tmp_path):
    async with server() as one, server() as two:
        (tmp_path / "a.json").write_bytes(config(route(one.address)))
        (tmp_path / "b.json").write_bytes(config(route(two.address)))
        async with proxy(configs=ConfigFiles(tmp_path)) as front:
            assert "b.json: route default/a is in a.json already" in front.gateway.status().config.error
            assert front.live().route.upstream.addresses == (one.address,)


async def test_an_address_that_is_taken_is_reported_and_tried_again(tmp_path):
    blocker = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = blocker.sockets[0].getsockname()[1]
    async with server() as backend, proxy(route(backend.address, port=port)) as front:
        assert f"cannot listen on 127.0.0.1:{port}" in front.gateway.status().config.error
        assert front.live().listens_on == ""
        blocker.close()
        await blocker.wait_closed()
        await until(lambda: front.live().listens_on != "")
        assert front.gateway.status().config.state is ConfigState.OK
        assert (await front.ask(call())).status == 200


async def test_a_topology_file_says_where_to_listen_and_where_servers_are(tmp_path):
    topology = tmp_path / "topology.json"
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "a.json").write_bytes(
        b'{"version":1,"routes":[{"name":"default/a","listen":{"port":8080},'
        b'"upstream":{"service":{"namespace":"default","name":"a-endpoints","port":8080},"path":"/backend"}}]}'
    )
    async with server() as one, server() as two:
        places = [{"address": one.address, "pod": "a-0", "uid": "u0"}]
        listen = {"default/a": "127.0.0.1:0"}
        topology.write_text(json.dumps({"listen": listen, "endpoints": {"default/a-endpoints": places}}))
        async with proxy(configs=ConfigFiles(configs), topology=FileTopology(topology)) as front:
            assert (await front.ask(call())).status == 200
            assert front.gateway.status().routes[0].endpoints[0].pod == "a-0"
            moved = [{"address": two.address, "pod": "a-1", "uid": "u1"}]
            topology.write_text(json.dumps({"listen": listen, "endpoints": {"default/a-endpoints": moved}}))
            await until(lambda: [e.place.pod for e in front.live().upstream.endpoints] == ["a-1"])
            await until(lambda: front.live().upstream.has_good)
            assert (await front.ask(call())).status == 200
            assert len(two.got) == 1
            topology.write_text('{"listen": {"default/a": "nowhere"}}')
            await until(lambda: front.gateway.status().config.state is ConfigState.INVALID)
            assert "topology.json" in front.gateway.status().config.error
            assert (await front.ask(call())).status == 200
            topology.write_text(json.dumps({"endpoints": {"default/a-endpoints": moved}}))
            await until(lambda: front.live().listens_on == "")


async def test_a_service_needs_somebody_who_knows_it(tmp_path):
    (tmp_path / "a.json").write_bytes(
        b'{"version":1,"routes":[{"name":"default/a","listen":{"host":"127.0.0.1","port":0},'
        b'"upstream":{"service":{"namespace":"default","name":"x","port":8080}}}]}'
    )
    async with proxy(configs=ConfigFiles(tmp_path), ready=False) as front:
        await until(lambda: front.gateway.status().config.state is ConfigState.INVALID)
        assert "default/x" in front.gateway.status().config.error
        reply = await front.ask(call())
        assert (reply.status, reply.error) == (503, "no server behind default/a is ready: there are no endpoints")


async def test_new_servers_take_over_only_when_one_of_them_is_good(tmp_path):
    path = tmp_path / "a.json"
    async with server() as old, server(healthy=False) as new:
        path.write_bytes(config(route(old.address)))
        async with proxy(configs=ConfigFiles(path)) as front:
            path.write_bytes(config(route(new.address)))
            await until(lambda: front.live().route.upstream.addresses == (new.address,))
            await until(lambda: new.handshakes > 1)
            assert (await front.ask(call())).status == 200
            assert not front.live().ready
            assert front.gateway.status().routes[0].endpoints[0].address == new.address
            new.healthy = True
            await until(lambda: front.live().ready)
            assert (await front.ask(call())).status == 200
            assert (len(old.got), len(new.got)) == (1, 1)


async def test_a_request_keeps_the_settings_that_it_began_with(tmp_path):
    path = tmp_path / "a.json"
    release = asyncio.Event()

    async def slow(conversation, got):
        await release.wait()
        result = {"tools": backend.tools}
        conversation.json({"jsonrpc": "2.0", "id": 1, "result": result})

    async with server(slow) as backend:
        path.write_bytes(config(route(backend.address, tools=Tools(filter=("add",)))))
        async with proxy(configs=ConfigFiles(path)) as front:
            client = await front.client()
            client.post(listing())
            await until(lambda: len(backend.got) == 1)
            path.write_bytes(config(route(backend.address)))
            await until(lambda: front.live().policy.view is None)
            release.set()
            assert [tool["name"] for tool in (await client.reply()).message["result"]["tools"]] == ["add"]
            reply = await front.ask(listing())
            assert [tool["name"] for tool in reply.message["result"]["tools"]] == ["add", "secret"]


async def test_other_timeouts_ask_no_server_anew(tmp_path):
    path = tmp_path / "a.json"
    async with server() as backend:
        path.write_bytes(config(route(backend.address)))
        async with proxy(configs=ConfigFiles(path)) as front:
            before = front.live().upstream
            path.write_bytes(config(route(backend.address, timeouts=Timeouts(call=7))))
            await until(lambda: front.live().policy.call_seconds == 7)
            assert front.live().upstream is before
            assert front.live().ready
            assert backend.handshakes == 1


async def test_sessions_survive_new_settings_for_the_same_servers(tmp_path):
    path = tmp_path / "a.json"

    async def answers(conversation, got):
        conversation.json({"id": 1, "result": {}}, headers=f"Mcp-Session-Id: s{conversation.port}\r\n")

    async with server(answers) as one, server(answers) as two:
        path.write_bytes(config(route(one.address, two.address)))
        async with proxy(configs=ConfigFiles(path)) as front:
            await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
            reply = await front.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
            session = reply.headers["mcp-session-id"]
            path.write_bytes(config(route(one.address, two.address, timeouts=Timeouts(idle=7))))
            await until(lambda: front.live().route.timeouts.idle == 7 and front.live().ready)
            await until(lambda: sum(e.good for e in front.live().upstream.endpoints) == 2)
            for _ in range(6):
                reply = await front.ask(call(), {"Mcp-Session-Id": session})
                assert reply.headers["mcp-session-id"] == session


@pytest.mark.parametrize("address", ["nowhere", "a:0", "a:70000", "a b:1", "[::g]:1", "x" * 64 + ":1", ":1", "ü:1"])
async def test_an_address_that_is_none_does_not_come_into_force(tmp_path, address):
    path = tmp_path / "a.json"
    async with server() as backend:
        path.write_bytes(config(route(backend.address)))
        async with proxy(configs=ConfigFiles(path)) as front:
            path.write_bytes(config(route(address)))
            await until(lambda: front.gateway.status().config.state is ConfigState.INVALID)
            assert "route default/a: upstream.addresses" in front.gateway.status().config.error
            assert (await front.ask(call())).status == 200
