"""Servers elsewhere: where their names may lead, what they are told, and that nothing else is dialled."""

import pytest

from fairway.api.policy import Headers, Policy, SetHeader
from fairway.api.runconfig import Remote, Upstream, UpstreamTLS
from fairway.proxy.dialing import FRESH, CannotDial, Lookup
from tests.unit.proxy.authority import Authority
from tests.unit.proxy.serving import call, proxy, route, server, until

pytestmark = pytest.mark.anyio


class Names:
    """A name service that says what it is told to."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def lookup(names: Names, clock: Clock | None = None, url: str = "https://mcp.example/mcp", **settings) -> Lookup:
    return Lookup(Remote(url=url, **settings), resolve=names, clock=clock or Clock())


def local(backend, *, secure: bool = False, **settings) -> Upstream:
    scheme = "https" if secure else "http"
    remote = Remote(url=f"{scheme}://localhost:{backend.port}/v1/mcp", allow_loopback=True)
    return Upstream(remote=remote, **settings)


async def test_a_remote_is_asked_at_its_path_under_its_name_with_what_the_gateway_adds(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    added = SetHeader(name="Authorization", value_file=str(tmp_path / "token"), prefix="Bearer ")
    policy = Policy(headers=Headers(set=(added, SetHeader(name="X-Tenant", value="blue"))))
    async with server() as backend, proxy(route(upstream=local(backend), policy=policy)) as front:
        reply = await front.ask(call(), {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Tenant": "red"})
        assert reply.status == 200
        got = backend.got[0]
        assert got.target == "/v1/mcp"
        assert got.header("host") == f"localhost:{backend.port}"
        assert [v for k, v in got.headers if k.lower() == "authorization"] == ["Bearer s3cret"]
        assert [v for k, v in got.headers if k.lower() == "x-tenant"] == ["blue"]
        assert got.header("cookie") is None


async def test_a_remote_that_wants_credentials_gets_them_with_the_handshake():
    policy = Policy(headers=Headers(set=(SetHeader(name="X-Key", value="k"),)))
    seen = []
    async with server() as backend:
        answer = backend._answer

        async def note(conversation, got):
            seen.append(got.header("x-key"))
            await answer(conversation, got)

        backend._answer = note
        async with proxy(route(upstream=local(backend), policy=policy)):
            assert seen
            assert set(seen) == {"k"}


async def test_a_remote_over_tls_proves_to_have_the_name_in_its_url(tmp_path):
    authority = Authority(tmp_path)
    tls = UpstreamTLS(ca_file=authority.file)
    async with (
        server(tls=authority.server("localhost")) as backend,
        proxy(route(upstream=local(backend, secure=True, tls=tls))) as front,
    ):
        assert (await front.ask(call())).status == 200
        assert front.gateway.status().routes[0].endpoints[0].address == f"localhost:{backend.port}"


async def test_a_remote_within_the_machine_is_refused_unless_it_is_allowed():
    async with server() as backend:
        upstream = Upstream(remote=Remote(url=f"http://localhost:{backend.port}/mcp", allow_private=True))
        async with proxy(route(upstream=upstream), ready=False) as front:
            await until(lambda: front.live().upstream.endpoints[0].message != "")
            assert "it is this machine" in front.live().upstream.endpoints[0].message
            assert not backend.connections


@pytest.mark.parametrize(
    ("address", "settings", "reason"),
    [
        ("93.184.216.34", {}, None),
        ("2606:4700::1111", {}, None),
        ("10.1.2.3", {}, "it is private"),
        ("10.1.2.3", {"allow_private": True}, None),
        ("127.0.0.1", {"allow_private": True}, "it is this machine"),
        ("127.0.0.1", {"allow_loopback": True}, None),
        ("::ffff:127.0.0.1", {}, "it is this machine"),
        ("169.254.169.254", {"allow_private": True, "allow_loopback": True}, "metadata"),
        ("169.254.1.1", {"allow_private": True, "allow_loopback": True}, "link-local"),
        ("fd00:ec2::254", {"allow_private": True}, "metadata"),
        ("0.0.0.0", {"allow_private": True, "allow_loopback": True}, "no single host"),
    ],
)
async def test_where_a_name_leads_is_judged(address, settings, reason):
    looked = lookup(Names([address]), **settings)
    if reason is None:
        assert await looked.address() == address
    else:
        with pytest.raises(CannotDial, match=reason):
            await looked.address()


async def test_a_name_that_leads_elsewhere_the_second_time_gains_nothing():
    clock, names = Clock(), Names(["93.184.216.34"], ["169.254.169.254"])
    looked = lookup(names, clock)
    assert [await looked.address() for _ in range(3)] == ["93.184.216.34"] * 3
    assert names.asked == 1
    clock.now += FRESH + 1
    for _ in range(2):
        with pytest.raises(CannotDial, match="metadata"):
            await looked.address()


async def test_one_bad_address_among_good_ones_spoils_all():
    with pytest.raises(CannotDial, match="private"):
        await lookup(Names(["93.184.216.34", "192.168.0.1"])).address()


async def test_after_a_failure_the_name_is_looked_up_and_another_address_tried():
    names = Names(["93.184.216.34", "93.184.216.35"])
    looked = lookup(names)
    assert await looked.address() == "93.184.216.34"
    looked.failed()
    assert await looked.address() == "93.184.216.35"
    assert names.asked == 2


async def test_when_names_cannot_be_looked_up_the_last_good_addresses_go_on():
    clock, names = Clock(), Names(["93.184.216.34"], OSError(11, "no name service"))
    looked = lookup(names, clock)
    await looked.address()
    clock.now += FRESH + 1
    assert await looked.address() == "93.184.216.34"
    with pytest.raises(CannotDial, match="does not resolve: no name service"):
        await lookup(Names(OSError(11, "no name service"))).address()
