"""Each fault as a plain client of a real API server sees it."""

import asyncio
import errno
import http.client
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from rig.api import Api, ApiError, Object, Unreachable, wait_for
from rig.kubeconfig import read_kubeconfig
from rig.testcluster import RigCluster
from tests.faultproxy import (
    Answer,
    CloseAfter,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Events,
    FaultProxy,
    Hang,
    Hold,
    InStreamError,
    Postpone,
    Requests,
    Reset,
    Rule,
    Signal,
    SilentAfter,
    StaleList,
    Swap,
    Trickle,
    When,
    conflict,
    gateway_timeout,
    gone,
    internal_error,
    too_many_requests,
    unavailable,
    writes,
)

REPOSITORY = Path(__file__).resolve().parents[3]


def config_map(name: str, value: str = "1") -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}


def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def who(api: Api) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return str(answer["status"]["userInfo"]["username"])


@dataclass
class Watch:
    """A watch read line by line over a connection of its own."""

    connection: http.client.HTTPSConnection
    response: http.client.HTTPResponse
    rest: bytes = b""

    def line(self) -> bytes:
        """Empty at an orderly end; an exception if the connection broke (`readline` hides the difference)."""
        while b"\n" not in self.rest:
            more = self.response.read1()
            if not more:
                return b""
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line + b"\n"

    def event(self) -> tuple[str, str]:
        """Type and name of the next event that is no bookmark; ("", "") at the end."""
        while line := self.line():
            event = json.loads(line)
            if event["type"] != "BOOKMARK":
                return event["type"], event["object"].get("metadata", {}).get("name", "")
        return "", ""

    def silent(self, seconds: float) -> bool:
        """Nothing comes for that long, and the connection stays open."""
        assert self.connection.sock is not None
        self.connection.sock.settimeout(seconds)
        try:
            self.line()
        except TimeoutError:
            return True
        return False


@contextmanager
def watching(api: Api, path: str, *, version: str = "", **query: str) -> Iterator[Watch]:
    url = urlsplit(api.access.server)
    assert url.hostname is not None
    connection = http.client.HTTPSConnection(url.hostname, url.port, context=api.access.tls, timeout=20)
    parameters = "&".join(f"{name}={value}" for name, value in {"resourceVersion": version, **query}.items() if value)
    connection.request("GET", f"{path}?watch=1&{parameters}", headers={"Authorization": f"Bearer {api.access.token}"})
    try:
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield Watch(connection, response)
    finally:
        connection.close()


@pytest.fixture
def watched(rig_api: RigCluster, rig_namespace: str) -> str:
    """The path of the ConfigMaps of a namespace that holds nothing but what the test makes."""
    path = maps(rig_namespace)
    # Kubernetes puts its root certificate into every namespace, sooner or later.
    wait_for("the root certificate", lambda: rig_api.api.find(f"{path}/kube-root-ca.crt"), seconds=60)
    return path


def version_of(api: Api, path: str) -> str:
    return str(api.get(path)["metadata"]["resourceVersion"])


def test_an_ordinary_client_notices_nothing(through: Api, rig_api: RigCluster, rig_namespace: str) -> None:
    path = maps(rig_namespace)
    made = through.post(path, config_map("a"))
    assert through.get(f"{path}/a") == made == rig_api.api.get(f"{path}/a")
    assert through.merge(f"{path}/a", {"data": {"value": "2"}})["data"] == {"value": "2"}
    big = through.post(path, config_map("big", "x" * 700_000))
    assert through.get(f"{path}/big") == big
    through.delete(f"{path}/a")
    assert rig_api.api.find(f"{path}/a") is None
    with pytest.raises(ApiError, match="404 NotFound"):
        through.get(f"{path}/a")


def test_every_request_is_in_the_log(proxy: FaultProxy, through: Api, rig_namespace: str) -> None:
    path = maps(rig_namespace)
    through.apply(config_map("a"), namespace=rig_namespace)
    through.delete(f"{path}/a")
    seen = [(entry.request.verb, entry.request.name, entry.status) for entry in proxy.log.writes()]
    assert seen == [("apply", "a", 201), ("delete", "a", 200)]
    assert [entry.request.number for entry in proxy.log] == list(range(1, len(proxy.log) + 1))
    assert proxy.log.writes()[0].request.manager == "fairway-rig"


def test_a_client_certificate_is_shown_upstream_by_the_proxy(through: Api, rig_api: RigCluster) -> None:
    assert who(through) == who(rig_api.api) == "admin"


def test_a_bearer_token_travels_with_the_request(rig_api: RigCluster, rig_namespace: str) -> None:
    kubeconfig = rig_api.service_account_kubeconfig(rig_namespace, "default")
    with FaultProxy.start(kubeconfig) as proxy:
        assert who(Api.from_kubeconfig(proxy.kubeconfig)) == f"system:serviceaccount:{rig_namespace}:default"
        assert f"namespace: {rig_namespace}" in proxy.kubeconfig.read_text()


def test_a_stranger_does_not_get_in_on_the_proxys_certificate(proxy: FaultProxy) -> None:
    access = read_kubeconfig(proxy.kubeconfig)
    for token in ("", "guessed"):
        stranger = Api(type(access)(access.server, access.tls, access.ca_pem, token))
        with pytest.raises(ApiError, match="401"):
            stranger.get("/api/v1/namespaces")
    assert [entry.upstream for entry in proxy.log] == [0, 0]


def test_a_websocket_passes_through(proxy: FaultProxy, rig_api: RigCluster, watched: str) -> None:
    access = read_kubeconfig(proxy.kubeconfig)

    async def first_event() -> tuple[str, str]:
        url = f"{access.server}{watched}?watch=1&resourceVersion={version_of(rig_api.api, watched)}"
        headers = {"Authorization": f"Bearer {access.token}", "Origin": access.server}
        async with aiohttp.ClientSession(headers=headers) as session, session.ws_connect(url, ssl=access.tls) as opened:
            await asyncio.to_thread(rig_api.api.post, watched, config_map("a"))
            event = await opened.receive_json(timeout=10)
            return event["type"], event["object"]["metadata"]["name"]

    assert asyncio.run(first_event()) == ("ADDED", "a")
    assert proxy.log.matching(Requests(verbs={"watch"}))[0].status == 101


@pytest.mark.parametrize(
    ("action", "status", "reason"),
    [
        (conflict(), 409, "Conflict"),
        (gone(), 410, "Expired"),
        (too_many_requests(2), 429, "TooManyRequests"),
        (internal_error(), 500, "InternalError"),
        (unavailable(), 503, "ServiceUnavailable"),
        (gateway_timeout(after_send=False), 504, "Timeout"),
    ],
)
def test_an_error_is_answered_without_asking_the_api_server(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, rig_namespace: str, action: Answer, status: int, reason: str
) -> None:
    proxy.use(Rule(writes(), action, times=1))
    with pytest.raises(ApiError) as refused:
        through.post(maps(rig_namespace), config_map("a"))
    assert (refused.value.status, refused.value.reason) == (status, reason)
    assert rig_api.api.find(f"{maps(rig_namespace)}/a") is None
    through.post(maps(rig_namespace), config_map("a"))
    assert [(entry.status, entry.done) for entry in proxy.log.writes()] == [(status, False), (201, True)]


def test_an_error_can_come_although_it_was_done(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, rig_namespace: str
) -> None:
    proxy.use(Rule(writes(), gateway_timeout(), times=1))
    with pytest.raises(ApiError, match="504"):
        through.post(maps(rig_namespace), config_map("a"))
    assert rig_api.api.find(f"{maps(rig_namespace)}/a")
    (write,) = proxy.log.writes()
    assert (write.status, write.upstream, write.done) == (504, 201, True)


@pytest.mark.parametrize("when", [When.BEFORE_SEND, When.AFTER_SEND, When.AFTER_HEADERS, When.MID_BODY])
def test_a_connection_is_reset(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, rig_namespace: str, when: When
) -> None:
    proxy.use(Rule(writes(), Reset(when)))
    with pytest.raises(Unreachable):
        through.post(maps(rig_namespace), config_map("a"))
    arrived = rig_api.api.find(f"{maps(rig_namespace)}/a") is not None
    assert arrived is (when is not When.BEFORE_SEND)


def test_a_reset_is_a_reset_and_not_an_orderly_end(proxy: FaultProxy) -> None:
    proxy.use(Rule(Requests(), Reset()))
    access = read_kubeconfig(proxy.kubeconfig)
    raw = socket.create_connection(("127.0.0.1", proxy.port))
    with access.tls.wrap_socket(raw, server_hostname="127.0.0.1") as connected:
        connected.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {access.token}\r\n\r\n".encode())
        ended = select.poll()
        ended.register(connected, select.POLLRDHUP)
        assert ended.poll(10_000)
        # Asked of the kernel: Python's ssl makes the same end of both.
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


@pytest.mark.parametrize("when", [When.BEFORE_SEND, When.AFTER_SEND, When.AFTER_HEADERS, When.MID_BODY])
def test_a_connection_hangs(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, rig_namespace: str, when: When
) -> None:
    proxy.use(Rule(writes(), Hang(when)))
    with pytest.raises(Unreachable, match=r"[Tt]imed? ?out"):
        through.request("POST", maps(rig_namespace), body=config_map("a"), timeout=0.7)
    arrived = rig_api.api.find(f"{maps(rig_namespace)}/a") is not None
    assert arrived is (when is not When.BEFORE_SEND)


def test_an_answer_trickles_in(proxy: FaultProxy, through: Api) -> None:
    content = len(json.dumps(through.get("/api/v1/namespaces/default")))
    proxy.use(Rule(Requests(), Trickle(bytes_per_second=content)))
    began = time.monotonic()
    assert through.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert time.monotonic() - began > 0.5


def test_a_request_arrives_late(proxy: FaultProxy, through: Api) -> None:
    proxy.use(Rule(Requests(), Delay(0.5)))
    began = time.monotonic()
    through.get("/version")
    assert time.monotonic() - began > 0.5


def test_a_held_request_arrives_when_it_is_let_go_although_its_sender_gave_up(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, rig_namespace: str
) -> None:
    proxy.use(Rule(writes(), Hold()))
    with pytest.raises(Unreachable):
        through.request("POST", maps(rig_namespace), body=config_map("a"), timeout=0.5)
    assert rig_api.api.find(f"{maps(rig_namespace)}/a") is None
    proxy.release()
    wait_for("the late write", lambda: rig_api.api.find(f"{maps(rig_namespace)}/a"), seconds=60)


def test_a_held_request_is_answered_if_its_sender_waits(proxy: FaultProxy, through: Api, rig_namespace: str) -> None:
    proxy.use(Rule(writes(), Hold()))
    answers: list[Object] = []
    path = maps(rig_namespace)
    sender = threading.Thread(target=lambda: answers.append(through.post(path, config_map("a"))))
    sender.start()
    proxy.wait_held()
    assert not answers
    proxy.release()
    sender.join(10)
    assert answers[0]["metadata"]["name"] == "a"


def test_connections_are_refused_and_accepted_again(proxy: FaultProxy, through: Api, watched: str) -> None:
    with watching(through, watched) as watch:
        assert watch.event()[0] == "ADDED"
        proxy.refuse()
        with pytest.raises((OSError, http.client.HTTPException)):
            while watch.event() != ("", ""):
                pass
    with pytest.raises(Unreachable, match="refused"):
        through.get("/version")
    proxy.accept()
    assert through.get("/version")


def change(api: Api, path: str, *names: str) -> None:
    for name in names:
        api.post(path, config_map(name))


def test_events_pass_one_by_one(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a")
        assert watch.event() == ("ADDED", "a")
        rig_api.api.delete(f"{watched}/a")
        assert watch.event() == ("DELETED", "a")
    (seen,) = proxy.log.matching(Requests(verbs={"watch"}))
    assert (seen.request.resource, seen.events) == ("configmaps", 2)


def test_an_event_is_dropped(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    proxy.use(Rule(Events(name="b"), Drop()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b", "c")
        assert [watch.event()[1], watch.event()[1]] == ["a", "c"]


def test_an_event_comes_twice(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    proxy.use(Rule(Events(), Duplicate(), nth=2))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b", "c")
        assert [watch.event()[1] for _ in range(4)] == ["a", "b", "b", "c"]


def test_events_change_places(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    proxy.use(Rule(Events(name="a"), Swap()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b", "c")
        assert [watch.event()[1] for _ in range(3)] == ["b", "a", "c"]


def test_an_event_comes_late(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    proxy.use(Rule(Events(name="a"), Postpone(0.5)))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        began = time.monotonic()
        change(rig_api.api, watched, "a")
        assert watch.event() == ("ADDED", "a")
        assert time.monotonic() - began > 0.5


def test_an_event_is_garbled(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    proxy.use(Rule(Events(name="a"), Corrupt()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b")
        with pytest.raises(ValueError):
            json.loads(watch.line())
        assert watch.event() == ("ADDED", "b")


def test_a_watch_ends_with_gone_in_the_stream(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str
) -> None:
    proxy.use(Rule(Events(name="b"), InStreamError()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b", "c")
        assert watch.event() == ("ADDED", "a")
        error = json.loads(watch.line())
        assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
        assert watch.line() == b""


def test_a_watch_closes_after_so_many_events(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str
) -> None:
    proxy.use(Rule(Events(position=2), CloseAfter()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b", "c")
        assert [watch.event(), watch.event(), watch.event()] == [("ADDED", "a"), ("ADDED", "b"), ("", "")]


def test_a_watch_falls_silent_and_stays_open(
    proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str
) -> None:
    proxy.use(Rule(Events(name="a"), SilentAfter()))
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a", "b")
        assert watch.event() == ("ADDED", "a")
        assert watch.silent(0.7)


def test_rules_change_under_an_open_watch(proxy: FaultProxy, through: Api, rig_api: RigCluster, watched: str) -> None:
    with watching(through, watched, version=version_of(rig_api.api, watched)) as watch:
        change(rig_api.api, watched, "a")
        assert watch.event() == ("ADDED", "a")
        proxy.use(Rule(Events(), Drop()))
        change(rig_api.api, watched, "b")
        proxy.log.wait(
            "the event to be dropped",
            lambda log: any(entry.event_faults for entry in log),
            seconds=60,
        )
        proxy.calm()
        change(rig_api.api, watched, "c")
        assert watch.event() == ("ADDED", "c")


@dataclass(frozen=True)
class Past:
    """`old` was made long ago and is gone; `new` was made just now. `age` lies between the two."""

    path: str
    age: int


@pytest.fixture
def past(rig_api: RigCluster, watched: str) -> Past:
    change(rig_api.api, watched, "old")
    for number in range(60):
        rig_api.api.merge(f"{watched}/kube-root-ca.crt", {"metadata": {"labels": {"touched": str(number)}}})
    change(rig_api.api, watched, "new")
    rig_api.api.delete(f"{watched}/old")
    # Others write to the same cluster meanwhile: in the middle there is room for them on both sides.
    return Past(watched, age=30)


def names_in(objects: Object) -> set[str]:
    return {item["metadata"]["name"] for item in objects["items"]}


def test_a_list_shows_the_past(proxy: FaultProxy, through: Api, past: Past) -> None:
    proxy.use(Rule(Requests(verbs={"list"}), StaleList(past.age), times=1))
    then, now = through.get(past.path), through.get(past.path)
    assert names_in(then) == {"kube-root-ca.crt", "old"}
    assert names_in(now) == {"kube-root-ca.crt", "new"}
    assert int(now["metadata"]["resourceVersion"]) - int(then["metadata"]["resourceVersion"]) >= past.age


def test_the_past_ends_where_the_history_of_the_cluster_begins(proxy: FaultProxy, through: Api, past: Past) -> None:
    proxy.use(Rule(Requests(verbs={"list"}), StaleList(10**9)))
    assert "new" not in names_in(through.get(past.path))


def test_a_watch_that_lists_first_shows_the_past_and_then_what_happened_since(
    proxy: FaultProxy, through: Api, past: Past
) -> None:
    proxy.use(Rule(Requests(), StaleList(past.age, frozen=0.5), times=1))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with watching(through, past.path, **options) as watch:
        assert {watch.event(), watch.event()} == {("ADDED", "kube-root-ca.crt"), ("ADDED", "old")}
        end = json.loads(watch.line())
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        frozen_since = time.monotonic()
        since = [watch.event()]
        assert time.monotonic() - frozen_since > 0.3
        while since[-1] != ("DELETED", "old"):
            since.append(watch.event())
        assert since.count(("MODIFIED", "kube-root-ca.crt")) > past.age / 2
        assert since[-2] == ("ADDED", "new")


WRITER = """
import sys, time
from pathlib import Path
from rig.api import Api
api = Api.from_kubeconfig(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
api.post(sys.argv[2], {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
print("answered", flush=True)
time.sleep(60)
"""


@contextmanager
def writer(proxy: FaultProxy, path: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is about to write one object."""
    argv = [sys.executable, "-c", WRITER, str(proxy.kubeconfig), path]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        proxy.client_pid = process.pid
        process.stdin.write("go\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("when", [When.BEFORE_SEND, When.AFTER_SEND, When.AFTER_RESPONSE])
def test_a_client_is_killed_at_its_write(
    proxy: FaultProxy, rig_api: RigCluster, rig_namespace: str, when: When
) -> None:
    proxy.use(Rule(writes(), Signal(signal.SIGKILL, when)))
    path = maps(rig_namespace)
    with writer(proxy, path) as process:
        assert process.wait(20) == -signal.SIGKILL
        proxy.log.wait("the end of the request", lambda log: all(entry.ended for entry in log), seconds=60)
    assert (rig_api.api.find(f"{path}/a") is not None) is (when is not When.BEFORE_SEND)


def test_a_client_is_stopped_before_its_write_leaves_and_goes_on_later(
    proxy: FaultProxy, rig_api: RigCluster, rig_namespace: str
) -> None:
    proxy.use(Rule(writes(), Signal(signal.SIGSTOP, When.BEFORE_SEND, gate="on")))
    path = maps(rig_namespace)
    with writer(proxy, path) as process:
        wait_for("the client to be stopped", lambda: _state(process.pid) == "T", seconds=60)
        assert rig_api.api.find(f"{path}/a") is None
        proxy.release("on")
        wait_for("the write", lambda: rig_api.api.find(f"{path}/a"), seconds=60)
        assert _state(process.pid) == "T"
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.readline() == "answered\n"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_signal_without_a_client_fails_the_test_instead_of_passing_unnoticed(
    rig_api: RigCluster, rig_namespace: str
) -> None:
    proxy = FaultProxy.start(rig_api.kubeconfig, Rule(writes(), Signal(signal.SIGKILL, When.BEFORE_SEND)))
    with pytest.raises(Unreachable):
        Api.from_kubeconfig(proxy.kubeconfig).post(maps(rig_namespace), config_map("a"))
    with pytest.raises(ExceptionGroup, match="the fault proxy failed"):
        proxy.close()


def test_many_clients_are_served_at_once(proxy: FaultProxy, through: Api, rig_namespace: str) -> None:
    names = [f"n{number}-{secrets.token_hex(2)}" for number in range(16)]
    threads = [threading.Thread(target=change, args=(through, maps(rig_namespace), name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {entry.request.number for entry in proxy.log} == set(range(1, 17))
    assert set(names) <= {item["metadata"]["name"] for item in through.get(maps(rig_namespace))["items"]}


def test_a_write_is_carried_out_although_its_sender_hangs_up_at_once(
    proxy: FaultProxy, rig_api: RigCluster, rig_namespace: str
) -> None:
    access = read_kubeconfig(proxy.kubeconfig)
    body = json.dumps(config_map("a")).encode()
    head = (
        f"POST {maps(rig_namespace)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {access.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    raw = socket.create_connection(("127.0.0.1", proxy.port))
    with access.tls.wrap_socket(raw, server_hostname="127.0.0.1") as connected:
        connected.sendall(head.encode() + body)
    wait_for("the write", lambda: rig_api.api.find(f"{maps(rig_namespace)}/a"), seconds=60)
    (write,) = proxy.log.writes()
    assert (write.status, write.upstream) == (0, 201)
