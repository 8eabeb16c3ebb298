"""What the proxy asks a real API server: whose token is this, with which keys are tokens signed, where are the pods."""

import asyncio
import base64
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairway.api.policy import Authentication, Fetch, Issuer, Policy, TokenReview
from fairway.kube.config import load_access
from fairway.proxy.endpoints import Place
from fairway.proxy.kubernetes import KubernetesTopology
from rig.testcluster import RigCluster
from tests.unit.proxy.guarded import cedar, permit
from tests.unit.proxy.serving import Proxy, call, proxy, route, server, until

pytestmark = pytest.mark.anyio

RESOURCE = "http://weather.default.svc.cluster.local:8080/mcp"
RBAC = "rbac.authorization.k8s.io"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Accounts:
    """ServiceAccounts of one namespace."""

    def __init__(self, cluster: RigCluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def make(self, name: str) -> str:
        """Returns what the API server calls it."""
        manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self._cluster.api.apply(manifest, namespace=self.namespace)
        return f"system:serviceaccount:{self.namespace}:{name}"

    def token(self, name: str, *audiences: str) -> str:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences}}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        return str(self._cluster.api.post(path, asked)["status"]["token"])

    def may_review(self, name: str) -> None:
        """What `system:auth-delegator` is for."""
        self._cluster.api.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{self.namespace}-{name}"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
            }
        )


@pytest.fixture
def accounts(rig_api: RigCluster, rig_namespace: str) -> Accounts:
    return Accounts(rig_api, rig_namespace)


async def status_of(front: Proxy, token: str) -> int:
    return (await front.ask(call(), {"Authorization": f"Bearer {token}"})).status


async def test_the_api_server_says_whose_token_it_is_and_for_whom(
    rig_api: RigCluster, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.make("reviewer")
    accounts.may_review("reviewer")
    alice = f"k8s:{accounts.make('alice')}"
    accounts.make("bob")
    kubeconfig = rig_api.service_account_kubeconfig(accounts.namespace, "reviewer")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    review = TokenReview(audiences=(RESOURCE,), prefix="k8s:")
    guarded = Policy(
        authentication=Authentication(resources=(RESOURCE,), token_review=review),
        authorization=cedar(permit("call_tool", 'Tool::"add"', alice)),
    )
    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        good = accounts.token("alice", RESOURCE)
        assert await status_of(front, good) == 200
        assert await status_of(front, accounts.token("bob", RESOURCE)) == 403, "known, and not permitted"
        assert await status_of(front, accounts.token("alice", "https://else.example.org")) == 401
        assert await status_of(front, changed(good)) == 401
        assert await status_of(front, "opaque") == 401
        assert len(backend.got) == 1


async def test_a_proxy_that_may_not_ask_says_neither_yes_nor_no(
    rig_api: RigCluster, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.make("nobody")
    monkeypatch.setenv("KUBECONFIG", str(rig_api.service_account_kubeconfig(accounts.namespace, "nobody")))
    guarded = Policy(authentication=Authentication(resources=(RESOURCE,), token_review=TokenReview()))
    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        reply = await front.ask(call(), {"Authorization": f"Bearer {accounts.token('nobody', RESOURCE)}"})
        assert reply.status == 503
        assert "retry-after" in reply.headers
        assert backend.got == []


async def test_tokens_of_the_cluster_are_verified_with_the_keys_that_it_publishes(
    rig_api: RigCluster, accounts: Accounts, tmp_path: Path
) -> None:
    """What `oidc: {type: kubernetes}` becomes: any ServiceAccount may read the keys, so no further right is needed."""
    subject = accounts.make("alice")
    own = tmp_path / "own"
    own.write_text(accounts.token("alice"))
    issuer = json.loads(rig_api.api.request("GET", "/.well-known/openid-configuration"))["issuer"]
    fetch = Fetch(allow_loopback=True, ca_file=str(rig_api.ca_path), token_file=str(own))
    keys = Issuer(issuer=issuer, jwks_url=f"{rig_api.server}/openid/v1/jwks", fetch=fetch)
    guarded = Policy(
        authentication=Authentication(resources=(RESOURCE,), issuers=(keys,)),
        authorization=cedar(permit("call_tool", 'Tool::"add"', subject)),
    )
    async with server() as backend, proxy(route(backend.address, policy=guarded)) as front:
        good = accounts.token("alice", RESOURCE)
        assert await status_of(front, good) == 200
        assert await status_of(front, accounts.token("alice", "https://else.example.org")) == 401
        assert await status_of(front, own.read_text()) == 401, "a token for the API server is none for this one"
        assert await status_of(front, changed(good)) == 401
        assert len(backend.got) == 1


def changed(token: str) -> str:
    """The same token with another subject."""
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    claims["sub"] = "system:serviceaccount:default:admin"
    return ".".join((head, base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode(), signature))


# endpoints


AT_MOST = 1.0
"""Seconds until the proxy knows where the pods are now."""


class Slice:
    """One EndpointSlice of a Service."""

    def __init__(self, cluster: RigCluster, namespace: str, name: str) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name

    def write(self, *endpoints: dict[str, Any]) -> None:
        self._cluster.api.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": self._name, "labels": {"kubernetes.io/service-name": "weather-endpoints"}},
                "addressType": "IPv4",
                "ports": [{"name": "mcp", "port": 3000, "protocol": "TCP"}],
                "endpoints": list(endpoints),
            },
            namespace=self._namespace,
        )

    def delete(self) -> None:
        self._cluster.api.delete(SLICES.format(self._namespace, self._name))


def endpoint(number: int, uid: str = "u1", **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": f"weather-{number}", "uid": uid}
    return {"addresses": [f"10.1.2.{number}"], "conditions": {"ready": True, **conditions}, "targetRef": target}


def place(number: int, uid: str = "u1") -> Place:
    return Place(f"10.1.2.{number}:3000", f"weather-{number}", uid)


async def test_the_proxy_knows_within_a_second_where_pods_are_and_where_they_are_no_more(
    rig_api: RigCluster, rig_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = KubernetesTopology(load_access(kubeconfig=rig_api.kubeconfig))
    service = rig_namespace, "weather-endpoints"
    one, two = Slice(rig_api, rig_namespace, "one"), Slice(rig_api, rig_namespace, "two")
    took: list[float] = []
    heard = asyncio.Event()

    async def after(change: Callable[[], None], *expected: Place) -> None:
        began = time.monotonic()
        await asyncio.to_thread(change)
        async with asyncio.timeout(20):
            while list(topology.places(service, 1)) != list(expected):
                heard.clear()
                await heard.wait()
        took.append(time.monotonic() - began)

    await topology.start(heard.set)
    topology.follow({service})
    try:
        await after(lambda: one.write(endpoint(1), endpoint(2)), place(1), place(2))
        await after(lambda: two.write(endpoint(3)), place(1), place(2), place(3))
        await after(lambda: one.write(endpoint(1), endpoint(2, ready=False)), place(1), place(3))
        going = {"ready": False, "terminating": True}
        leaving = dataclasses.replace(place(2), leaving=True)
        await after(lambda: one.write(endpoint(1), endpoint(2, serving=True, **going)), place(1), leaving, place(3))
        ended = endpoint(2, serving=False, **going)
        await after(lambda: one.write(endpoint(1, "u2"), ended), place(1, "u2"), place(3))
        await after(two.delete, place(1, "u2"))
        await after(one.delete)
    finally:
        await topology.stop()
    with capsys.disabled():
        print(f"\nendpoints are known after {', '.join(f'{1000 * each:.0f}' for each in took)} ms")
    # the machine may stall for reasons of its own, but not at every change
    assert sorted(took)[len(took) // 2] <= AT_MOST


async def test_a_proxy_that_may_not_see_the_endpoints_says_which(rig_api: RigCluster, accounts: Accounts) -> None:
    accounts.make("blind")
    kubeconfig = rig_api.service_account_kubeconfig(accounts.namespace, "blind")
    topology = KubernetesTopology(load_access(kubeconfig=kubeconfig))
    await topology.start(lambda: None)
    topology.follow({(accounts.namespace, "weather-endpoints")})
    try:
        await until(lambda: "forbidden" in topology.error, seconds=20)
        assert f"Service {accounts.namespace}/weather-endpoints" in topology.error
    finally:
        await topology.stop()
