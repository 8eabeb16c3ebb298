"""TLS on both sides of the proxy, with certificates that change."""

import asyncio
import ssl

import pytest

from fairway.api.proxystatus import ConfigState, EndpointState
from fairway.api.runconfig import ListenTLS, ServiceEndpoints, Timeouts, Upstream, UpstreamTLS
from fairway.proxy.dialing import server_name
from tests.unit.proxy.authority import Authority
from tests.unit.proxy.serving import call, free_port, proxy, route, server, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def issued(authority: Authority, *names: str) -> ListenTLS:
    cert, key = authority.issue(*(names or ("127.0.0.1",)))
    return ListenTLS(cert_file=cert, key_file=key)


def to(backend, **tls) -> Upstream:
    return Upstream(addresses=(backend.address,), path="/backend", tls=UpstreamTLS(**tls))


# clients


async def test_clients_are_served_over_tls_on_kept_connections(authority):
    async with server() as backend, proxy(route(backend.address, tls=issued(authority))) as front:
        client = await front.client(tls=authority.client())
        for n in range(3):
            assert (await client.ask(call(request_id=n))).status == 200
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        client.close()
        plain = await front.client()
        plain.post(call())
        assert b"200 OK" not in await plain.closed()
        assert len(backend.got) == 3


async def test_large_answers_and_slow_readers_are_served_over_tls(authority):
    async def large(conversation, got):
        conversation.start_chunked("application/json")
        for _ in range(64):
            conversation.chunk(b"x" * 65536)
        conversation.end_chunks()

    async with server(large) as backend, proxy(route(backend.address, tls=issued(authority))) as front:
        client = await front.client(tls=authority.client())
        client.post(call())
        assert len((await client.reply()).body) == 64 * 65536


async def test_a_refusal_over_tls_arrives_though_the_client_goes_on_sending(authority):
    async with server() as backend, proxy(route(backend.address, tls=issued(authority))) as front:
        client = await front.client(tls=authority.client())
        client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 100_000)
        assert (await client.reply()).status == 413


async def test_a_client_that_hangs_up_over_tls_is_hung_up_on_at_the_server(authority):
    async def never(conversation, got):
        await conversation.gone()

    async with server(never) as backend, proxy(route(backend.address, tls=issued(authority))) as front:
        client = await front.client(tls=authority.client())
        client.post(call())
        await until(lambda: len(backend.got) == 1)
        closed = backend.closed
        client.close()
        await until(lambda: backend.closed == closed + 1)


async def test_a_new_certificate_serves_new_connections_and_a_bad_one_keeps_the_last(authority, tmp_path):
    other = Authority(tmp_path, "other")
    async with server() as backend, proxy(route(backend.address, tls=issued(authority))) as front:
        kept = await front.client(tls=authority.client())
        assert (await kept.ask(call())).status == 200
        other.issue("127.0.0.1")  # to the same files
        await until(lambda: front.gateway.config_state().state is ConfigState.OK)

        async def newest() -> bool:
            try:
                client = await front.client(tls=other.client())
            except ssl.SSLError:
                return False
            return (await client.ask(call())).status == 200

        for _ in range(200):
            if await newest():
                break
            await asyncio.sleep(0.02)  # the files are looked at now and then
        else:
            pytest.fail("the new certificate is not served")
        assert (await kept.ask(call())).status == 200
        with pytest.raises(ssl.SSLError):
            await front.client(tls=authority.client())

        (tmp_path / "tls.crt").write_text("nonsense")
        await until(lambda: front.gateway.config_state().state is ConfigState.INVALID)
        said = front.gateway.config_state().error
        assert str(tmp_path / "tls.crt") in said
        assert await newest()
        authority.issue("127.0.0.1")
        await until(lambda: front.gateway.config_state().state is ConfigState.OK)
        assert (await (await front.client(tls=authority.client())).ask(call())).status == 200


async def test_a_key_that_is_another_certificates_is_never_served(authority, tmp_path):
    tls = issued(authority)
    key = (tmp_path / "tls.key").read_bytes()
    async with server() as backend, proxy(route(backend.address, tls=tls)) as front:
        authority.issue("127.0.0.1")
        (tmp_path / "tls.key").write_bytes(key)
        await until(lambda: front.gateway.config_state().state is ConfigState.INVALID)
        assert "key values mismatch" in front.gateway.config_state().error
        assert (await (await front.client(tls=authority.client())).ask(call())).status == 200


async def test_without_a_first_certificate_nothing_listens_until_there_is_one(authority, tmp_path):
    tls = ListenTLS(cert_file=str(tmp_path / "tls.crt"), key_file=str(tmp_path / "tls.key"))
    async with server() as backend, proxy(route(backend.address, tls=tls), ready=False) as front:
        await until(lambda: "No such file" in front.gateway.config_state().error)
        assert front.live().listens_on == ""
        authority.issue("127.0.0.1")
        await until(lambda: front.live().listens_on != "")
        assert (await (await front.client(tls=authority.client())).ask(call())).status in (200, 503)


async def test_two_routes_at_one_address_have_the_same_certificate(authority):
    port, tls = free_port(), issued(authority)
    async with server() as backend:
        one = route(backend.address, name="default/a", port=port, tls=tls)
        two = route(backend.address, name="default/b", port=port, path="/b", tls=tls)
        plain = route(backend.address, name="default/c", port=port, path="/c")
        async with proxy(one, two, plain, ready=False) as front:
            await until(lambda: "other TLS settings" in front.gateway.config_state().error)
            assert (await (await front.client("default/b", tls=authority.client())).ask(call())).status in (200, 503)


# servers


async def test_a_server_is_dialled_over_tls_and_has_to_prove_who_it_is(authority):
    tls = authority.server("127.0.0.1")
    async with server(tls=tls) as backend, proxy(route(upstream=to(backend, ca_file=authority.file))) as front:
        for n in range(5):
            assert (await front.ask(call(request_id=n))).status == 200
        assert backend.got[0].header("host") == f"localhost:{backend.port}"


async def test_a_kept_connection_over_tls_is_used_again_and_a_closed_one_is_not(authority):
    tls = authority.server("127.0.0.1")
    async with server(tls=tls) as backend, proxy(route(upstream=to(backend, ca_file=authority.file))) as front:
        assert (await front.ask(call())).status == 200
        connections = backend.connections
        for n in range(5):
            assert (await front.ask(call(request_id=n))).status == 200
        assert backend.connections == connections
        backend.drop_idle()
        await until(lambda: not front.live().upstream.endpoints[0].pool.open)
        assert (await front.ask(call())).status == 200


@pytest.mark.parametrize(
    ("names", "settings", "said"),
    [
        (("other.example",), {}, "certificate is not valid for '127.0.0.1'"),
        (("127.0.0.1",), {"server_name": "other.example"}, "certificate is not valid for 'other.example'"),
        (("127.0.0.1",), {"ca_file": None}, "unable to get local issuer certificate"),
        (("127.0.0.1",), {"ca_file": "/does/not/exist"}, "/does/not/exist"),
    ],
)
async def test_a_server_that_does_not_prove_who_it_is_gets_nothing(authority, names, settings, said):
    settings = {"ca_file": authority.file, **settings}
    async with (
        server(tls=authority.server(*names)) as backend,
        proxy(route(upstream=to(backend, **settings)), ready=False) as front,
    ):
        await until(lambda: front.live().upstream.endpoints[0].state is EndpointState.UNREACHABLE)
        assert said in front.live().upstream.endpoints[0].message
        await until(lambda: bool(front.live().listens_on))
        assert (await front.ask(call())).status == 503
        assert not backend.got
        assert not backend.handshakes


async def test_a_server_name_stands_for_whom_the_certificate_is(authority):
    settings = {"ca_file": authority.file, "server_name": "weather.example"}
    async with (
        server(tls=authority.server("weather.example")) as backend,
        proxy(route(upstream=to(backend, **settings))) as front,
    ):
        assert (await front.ask(call())).status == 200


def test_pods_behind_a_service_prove_to_be_the_service():
    service = ServiceEndpoints(namespace="team", name="weather-endpoints", port=1)
    assert server_name(Upstream(service=service, tls=UpstreamTLS())) == "weather-endpoints.team.svc"
    assert server_name(Upstream(service=service, tls=UpstreamTLS(server_name="a.b"))) == "a.b"
    assert server_name(Upstream(addresses=("a:1",), tls=UpstreamTLS())) == ""


async def test_new_authorities_come_into_force_and_bad_ones_keep_the_last(authority, tmp_path):
    other = Authority(tmp_path, "other")
    trusted = tmp_path / "trusted"
    trusted.write_text((tmp_path / "ca.crt").read_text())
    short = Timeouts(idle=0.2)
    async with server(tls=authority.server("127.0.0.1")) as backend:
        served = route(upstream=to(backend, ca_file=str(trusted)), timeouts=short)
        async with proxy(served) as front:
            endpoint = front.live().upstream.endpoints[0]
            trusted.write_text("nonsense")
            await until(lambda: not endpoint.pool.open)
            assert (await front.ask(call())).status == 200
            assert str(trusted) in front.live().error
            trusted.write_text((tmp_path / "other.crt").read_text())
            await until(lambda: not endpoint.pool.open)
            assert (await front.ask(call())).status == 503
            assert not endpoint.good
            backend.tls.load_cert_chain(*other.issue("127.0.0.1", file="server"))
            await until(lambda: endpoint.good)
            assert (await front.ask(call())).status == 200
            assert front.live().error == ""


async def test_a_server_that_speaks_no_tls_is_explained(authority):
    async def refuse(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(refuse, "127.0.0.1", 0)
    address = f"127.0.0.1:{plain.sockets[0].getsockname()[1]}"
    upstream = Upstream(addresses=(address,), tls=UpstreamTLS(ca_file=authority.file))
    async with plain, proxy(route(upstream=upstream), ready=False) as front:
        await until(lambda: front.live().upstream.endpoints[0].message != "")
        assert f"TLS with {address} failed" in front.live().upstream.endpoints[0].message
