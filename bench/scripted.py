"""A node of scripted pods: each Deployment gets the pods that it would have, and proxies that really shook hands.

Stands in for the controllers of Kubernetes and for a kubelet where a thousand of each would not fit on one machine. A
pod goes through what a real one goes through (made, scheduled, running, ready), at an address of its own on loopback.
What a proxy's status says of its server, a real handshake with a real MCP server said a moment before.
"""

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fairway.api import names, proxystatus, runconfig
from fairway.api.proxystatus import Config, ConfigState, Endpoint, EndpointState, ProxyStatus, Route
from fairway.api.toolview import ToolView
from fairway.kube.client import Client
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, POD, SECRET, Obj, Resource
from fairway.mcp.offer import named, summarise
from fairway.mcp.probe import Way, introduced, shake

AT_ONCE: Final = 16
_PROXY = names.COMPONENT_PROXY


def address(number: int) -> str:
    return f"127.77.{number // 250}.{number % 250 + 1}"


class ScriptedNode:
    """Runs what Deployments of one namespace want, one pod each, in front of the MCP server on `port`."""

    def __init__(self, client: Client, namespace: str, *, port: int) -> None:
        self._client = client
        self._namespace = namespace
        self._port = port
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._seen: set[str] = set()
        self._uids: dict[str, asyncio.Future[str]] = {}
        self._addresses = map(address, itertools.count())
        self._listeners: list[asyncio.Server] = []

    async def run(self) -> None:
        """Until cancelled."""
        page = await self._client.list_page(DEPLOYMENT, namespace=self._namespace)
        assert not page.items, "the namespace is not new"
        version = page.resource_version
        watch = partial(self._client.watch, DEPLOYMENT, namespace=self._namespace)
        try:
            async with asyncio.TaskGroup() as rollouts:
                while True:
                    async for event in watch(resource_version=version):
                        metadata = event.object["metadata"]
                        version = metadata["resourceVersion"]
                        if event.type == "ADDED" and metadata["uid"] not in self._seen:
                            self._seen.add(metadata["uid"])
                            rollouts.create_task(self._roll_out(event.object))
        finally:
            for listener in self._listeners:
                listener.close()

    async def _roll_out(self, deployment: Obj) -> None:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        server, is_proxy = labels[names.LABEL_SERVER], labels[names.LABEL_COMPONENT] == _PROXY
        uid = self._uids.setdefault(server, asyncio.get_running_loop().create_future())
        if is_proxy:
            await uid  # a handshake needs a server
        async with self._slots:
            await self._progress(deployment, ready=0)
            pod = await self._made(deployment)
            await self._tell(pod, "Pending", ip=None, ready=False)
            ip = "127.0.0.1"
            if is_proxy:
                ip = next(self._addresses)
                await self._serve(ip, await self._status(server, pod_uid=uid.result()))
            else:
                uid.set_result(pod["metadata"]["uid"])
            for ready in (False, True):
                await self._tell(pod, "Running", ip=ip, ready=ready)
            await self._progress(deployment, ready=1)

    async def _made(self, deployment: Obj) -> Obj:
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "name": f"{deployment['metadata']['name']}-0"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        return await self._client.create(
            POD, pod | {"spec": {**template["spec"], "nodeName": "scripted"}}, namespace=self._namespace
        )

    async def _progress(self, deployment: Obj, *, ready: int) -> None:
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready}
        status = {"observedGeneration": deployment["metadata"]["generation"], **counts}
        await self._client.merge(
            DEPLOYMENT, self._namespace, deployment["metadata"]["name"], {"status": status}, subresource="status"
        )

    async def _tell(self, pod: Obj, phase: str, *, ip: str | None, ready: bool) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {"type": name, "status": "True" if so else "False", "lastTransitionTime": now}
            for name, so in (("PodScheduled", True), ("ContainersReady", ready), ("Ready", ready))
        ]
        state = {"running": {"startedAt": now}} if ip else {"waiting": {"reason": "ContainerCreating"}}
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": ready,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        status: dict[str, Any] = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        if ip is not None:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "127.0.0.1"}
        await self._client.merge(
            POD, self._namespace, pod["metadata"]["name"], {"status": status}, subresource="status"
        )

    async def _status(self, server: str, *, pod_uid: str) -> bytes:
        """What a proxy would say, from its RunConfig and a handshake of its own."""
        name = f"{self._namespace}/{server}"
        written = await self._client.get(CONFIG_MAP, self._namespace, names.ChildNames(server).runconfig)
        assert written is not None
        _, hashes = runconfig.parse(written["data"][names.RUNCONFIG_KEY].encode())
        where = f"127.0.0.1:{self._port}"
        outcome = await shake(Way(address=where, path=names.MCP_PATH))
        assert outcome.session is not None, outcome
        route = Route(
            name=name,
            hash=hashes[name],
            ready=True,
            endpoints=(Endpoint(address=where, pod=f"{server}-0", uid=pod_uid, state=EndpointState.OK),),
            listen=":8080",
            server=introduced(outcome.session),
            tools=summarise(outcome.tools, outcome.tools_error, ToolView()),
            resources=named(outcome.resources),
            prompts=named(outcome.prompts),
        )
        config = Config(state=ConfigState.OK)
        return proxystatus.encode(ProxyStatus(version=1, proxy_version="bench", config=config, routes=(route,)))

    async def _serve(self, ip: str, status: bytes) -> None:
        """The admin port of one proxy, which is asked one thing."""
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer % len(status) + status)
                await writer.drain()
            writer.close()

        self._listeners.append(await asyncio.start_server(serve, ip, names.ADMIN_PORT))


FOREIGN: Final[Mapping[Resource, Obj]] = {
    CONFIG_MAP: {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 4096}},
    SECRET: {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": "x" * 1024}},
    POD: {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "somebody/elses:1"}]}},
}


async def foreign(client: Client, namespace: str, count: int) -> None:
    """So many of each kind that are nobody's business."""
    pending = ((resource, number) for number in range(count) for resource in FOREIGN)

    async def worker() -> None:
        for resource, number in pending:
            metadata = {"name": f"foreign-{number:05}", "labels": {"app": "somebody-elses", "team": "other"}}
            await client.create(resource, {**FOREIGN[resource], "metadata": metadata}, namespace=namespace)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
