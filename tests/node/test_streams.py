"""Logs, exec and attach on real pods, and what becomes of them when the API server is killed meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from hashlib import sha256

import pytest

from fairway.kube import pods
from fairway.kube.channels import V4, V5, Channel, Exit
from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.errors import BadRequest, Forbidden, KubeError, NotFound, Unreachable
from fairway.kube.remote import Completed, Remote
from fairway.kube.resource import POD
from fairway.kube.reviews import Deed, User
from fairway.kube.transport import Transport
from rig.process import ProcessTable
from rig.testcluster import RigCluster, run_rig
from tests.node.test_rig import node, pod  # noqa: F401  the fixture, which loads the image

pytestmark = pytest.mark.anyio

ECHO = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print("got", line, end="", flush=True)
    print("heard", len(line), file=sys.stderr, flush=True)
    if line == "exit\\n":
        sys.exit(5)
"""


@pytest.fixture
async def client(node: RigCluster) -> AsyncIterator[Client]:  # noqa: F811
    transport = Transport(load_access(kubeconfig=node.kubeconfig), user_agent="test")
    async with Client(transport, field_manager="test") as made:
        yield made


@pytest.fixture
async def echo(node: RigCluster, rig_node_namespace: str) -> str:  # noqa: F811
    """The namespace of a pod `echo`, whose process reads its stdin."""
    container = {"stdin": True}
    node.api.apply(pod("echo", code=ECHO, container=container, restartPolicy="Always"), namespace=rig_node_namespace)
    await asyncio.to_thread(node.wait_for_pod, rig_node_namespace, "echo")
    return rig_node_namespace


async def python(client: Client, namespace: str, code: str, stdin: bytes | None = None) -> Completed:
    command = ["python", "-c", code]
    async with await client.pods.exec(namespace, "echo", command, stdin=stdin is not None) as remote:
        assert remote.streams.protocol == V5
        return await remote.communicate(stdin, limit=64 << 20)


async def until_seen(remote: Remote, *wanted: bytes) -> None:
    """Output and errors overtake each other."""
    seen = b""
    async with asyncio.timeout(30):
        while not all(piece in seen for piece in wanted):
            output = await remote.read()
            assert output is not None, seen
            seen += output[1]


async def test_a_command_runs_and_says_how_it_ended(client: Client, echo: str) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    completed = await python(client, echo, code)
    assert (completed.stdout, completed.stderr) == (b"out\n", b"err\n")
    assert (completed.exit.code, completed.exit.reason) == (3, "NonZeroExitCode")
    assert (await python(client, echo, "pass")).exit == Exit(0)


async def test_stdin_has_an_end_and_what_is_large_arrives_whole(client: Client, echo: str) -> None:
    data = os.urandom(1 << 20) * 20
    code = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    assert (await python(client, echo, code, data)).stdout.decode().strip() == sha256(data).hexdigest()
    code = "import os, sys; [sys.stdout.buffer.write(bytes(range(256)) * 4096) for _ in range(32)]"
    assert (await python(client, echo, code)).stdout == bytes(range(256)) * 4096 * 32
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert (await python(client, echo, code, data)).stdout == data


async def test_a_server_that_knows_no_v5_is_spoken_to_in_v4(
    client: Client, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every API server agrees on v4 if it is all that is offered, as those before 1.30 do whatever is offered.
    monkeypatch.setattr(pods, "PROTOCOLS", (V4,))
    code = "import sys; print(sys.stdin.readline()[::-1], flush=True); sys.exit(4)"
    async with await client.pods.exec(echo, "echo", ["python", "-c", code], stdin=True) as remote:
        assert remote.streams.protocol == V4
        with pytest.raises(ValueError, match=r"cannot close stdin; Kubernetes 1\.30 and newer"):
            remote.end_stdin()
        await remote.write(b"abc\n")
        assert await remote.read() == (Channel.STDOUT, b"\ncba\n")
        assert (await remote.exit()).code == 4


async def test_a_command_that_cannot_be_started_is_told_apart(client: Client, echo: str) -> None:
    async with await client.pods.exec(echo, "echo", ["no-such-program"]) as remote:
        ended = await remote.exit()
    assert not ended.ok
    assert "no-such-program" in ended.message


async def test_what_is_not_there_is_not_found(client: Client, echo: str) -> None:
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        await client.pods.exec(echo, "nobody", ["true"])
    with pytest.raises(BadRequest, match="container other is not valid"):
        await client.pods.exec(echo, "echo", ["true"], container="other")


async def test_without_the_right_to_it_nothing_is_opened(node: RigCluster, echo: str) -> None:  # noqa: F811
    kubeconfig = node.service_account_kubeconfig(echo, "default")
    transport = Transport(load_access(kubeconfig=kubeconfig), user_agent="test")
    async with Client(transport, field_manager="test") as nobody:
        with pytest.raises(Forbidden, match="pods/exec"):
            await nobody.pods.exec(echo, "echo", ["true"])
        with pytest.raises(Forbidden, match="pods/attach"):
            await nobody.pods.attach(echo, "echo")
        verdict = await nobody.reviews.own_access(Deed("get", POD, echo, "echo", "log"))
        assert not verdict.allowed


async def test_an_attachment_talks_to_the_process_itself(client: Client, echo: str) -> None:
    async with await client.pods.attach(echo, "echo", stdin=True) as remote:
        await remote.write(b"one\ntw")
        await until_seen(remote, b"got one\n", b"heard 4\n")
        await remote.write(b"o\n")
        await until_seen(remote, b"got two\n", b"heard 4\n")
    # who leaves does not end it, and the next one talks to the same process
    async with await client.pods.attach(echo, "echo", stdin=True) as remote:
        await remote.write(b"three\n")
        await until_seen(remote, b"got three\n", b"heard 6\n")
        await remote.write(b"exit\n")
        await until_seen(remote, b"got exit\n", b"heard 5\n")
        async with asyncio.timeout(30):
            await remote.exit()
    lines = (await client.pods.log(echo, "echo", previous=await restarted(client, echo))).splitlines()
    assert [line for line in lines if line.startswith((b"got", b"ready"))] == [
        b"ready", b"got one", b"got two", b"got three", b"got exit",
    ]  # fmt: skip


async def restarted(client: Client, namespace: str) -> bool:
    async with asyncio.timeout(30):
        while True:
            found = await client.get(POD, namespace, "echo")
            if found["status"]["containerStatuses"][0]["restartCount"]:
                return True
            await asyncio.sleep(0.2)


async def test_a_log_can_be_read_from_its_end_and_followed(client: Client, echo: str) -> None:
    async with (
        await client.pods.attach(echo, "echo", stdin=True) as remote,
        aclosing(client.pods.follow_log(echo, "echo", tail=1)) as log,
    ):
        assert await anext(log) == b"ready\n"
        await remote.write(b"a\nb\n")
        seen = b""
        async with asyncio.timeout(30):
            async for chunk in log:
                seen += chunk
                if b"got b\n" in seen:
                    break
        assert await client.pods.log(echo, "echo", tail=0) == b""
        assert len((await client.pods.log(echo, "echo", tail=2)).splitlines()) == 2
        assert await client.pods.log(echo, "echo", max_bytes=3) == b"rea"
    with pytest.raises(BadRequest, match="previous terminated container"):
        await client.pods.log(echo, "echo", previous=True)


async def test_streams_end_with_their_api_server_and_the_container_lives_on(
    client: Client,
    node: RigCluster,  # noqa: F811
    echo: str,
) -> None:
    if node.state is None:
        pytest.skip("only an API server that the rig started is killed")
    before = (await client.get(POD, echo, "echo"))["status"]["containerStatuses"][0]["containerID"]
    attached = await client.pods.attach(echo, "echo", stdin=True)
    await attached.write(b"before\n")
    await until_seen(attached, b"heard 7\n")
    running = await client.pods.exec(echo, "echo", ["python", "-c", "import time; time.sleep(600)"])
    async with aclosing(client.pods.follow_log(echo, "echo", tail=0)) as log:
        following = asyncio.create_task(anext(log))
        await asyncio.sleep(0.5)
        pid = ProcessTable(run=node.state.run, logs=node.state.logs).pid("kube-apiserver")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for broken in (attached.exit(), running.exit(), following):
            with pytest.raises(Unreachable):
                await asyncio.wait_for(broken, 20)
    with pytest.raises(Unreachable):
        await client.pods.attach(echo, "echo", stdin=True)
    await asyncio.to_thread(run_rig, "up", "--node", "--quiet", state=node.state)
    again = await attach_again(client, echo)
    await again.write(b"after\n")
    await until_seen(again, b"heard 6\n")
    again.close()
    assert (await client.get(POD, echo, "echo"))["status"]["containerStatuses"][0]["containerID"] == before


async def attach_again(client: Client, namespace: str) -> Remote:
    async with asyncio.timeout(60):
        while True:
            with suppress(KubeError):
                return await client.pods.attach(namespace, "echo", stdin=True)
            await asyncio.sleep(0.2)


async def test_the_api_server_knows_whose_token_it_is_and_what_he_may(client: Client, rig_node_namespace: str) -> None:
    token, _ = await client.request_token(rig_node_namespace, "default", audiences=["mcp"], expires_in=600)
    verdict = await client.reviews.token(token, audiences=["mcp", "other"])
    account = f"system:serviceaccount:{rig_node_namespace}:default"
    assert verdict.user is not None
    assert (verdict.user.name, verdict.audiences) == (account, ("mcp",))
    assert "system:serviceaccounts" in verdict.user.groups
    assert (await client.reviews.token(token, audiences=["other"])).user is None
    assert (await client.reviews.token(token + "x", audiences=["mcp"])).user is None
    assert (await client.reviews.token("")).user is None
    deed = Deed("create", POD, rig_node_namespace, "x-0", "attach")
    assert not (await client.reviews.access(verdict.user, deed)).allowed
    assert (await client.reviews.access(User("somebody", groups=("system:masters",)), deed)).allowed
    assert (await client.reviews.own_access(deed)).allowed
