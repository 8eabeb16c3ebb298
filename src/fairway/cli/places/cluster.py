"""The cluster of a kubeconfig, with the rights of whoever runs the verb."""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import fairway
from fairway.cli.mistake import Mistake
from fairway.cli.places import LogSource, Outcome
from fairway.controllers.rehearsal import NowAndThen
from fairway.controllers.resources import CATALOGUE
from fairway.kube.client import Client
from fairway.kube.config import ClusterAccess
from fairway.kube.errors import KubeError, NotFound, Unreachable
from fairway.kube.resource import WELL_KNOWN, Obj, ObjectRef, Resource, UnknownResource
from fairway.kube.transport import Transport

FIELD_MANAGER = "fairway-cli"
_FOR_EVER = 7 * 24 * 3600.0


@asynccontextmanager
async def connected(access: ClusterAccess, namespace: str) -> AsyncIterator["Cluster"]:
    transport = Transport(access, user_agent=f"fairway-cli/{fairway.__version__}", connections=8, timeout=15.0)
    async with Client(transport, field_manager=FIELD_MANAGER) as client:
        yield Cluster(access, transport, client, namespace)


class Cluster:
    """A place behind an API server."""

    is_local = False

    def __init__(self, access: ClusterAccess, transport: Transport, client: Client, namespace: str) -> None:
        self.title = access.origin
        self.namespace = namespace or access.namespace
        self.client = client
        self._access = access
        self._transport = transport
        self._catalogue = WELL_KNOWN.plus(CATALOGUE.values())

    async def client_certificate(self) -> bytes | None:
        """The certificate that we log in with, where we use one."""
        credential = await self._access.source.load()
        return None if credential.certificate is None else credential.certificate.cert.read()

    async def as_http(self) -> tuple[str, Mapping[str, str], ssl.SSLContext, str]:
        """For plain requests to the API server: its address, our headers and trust, and whom its certificate names."""
        identity = await self._access.authenticator().identity()
        return self._access.server, identity.headers, identity.ssl, self._access.server_name or ""

    async def get(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        try:
            return await self.client.get(resource, namespace, name)
        except NotFound as error:
            if "could not find the requested resource" in error.message:
                raise  # not the object, the kind
            return None

    async def list(self, resource: Resource, namespace: str | None, *, labels: Mapping[str, str] = {}) -> list[Obj]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return [obj async for obj in self.client.list(resource, namespace=namespace, label_selector=selector)]

    async def log(
        self, source: LogSource, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncIterator[str]:
        params = {"container": source.container}
        params |= {"follow": "true"} if follow else {}
        params |= {"previous": "true"} if previous else {}
        params |= {} if tail is None else {"tailLines": str(tail)}
        path = f"/api/v1/namespaces/{quote(source.namespace)}/pods/{quote(source.pod)}/log?{urlencode(params)}"
        try:
            async for line in self._transport.lines(path, accept="*/*", silence=_FOR_EVER if follow else 30.0):
                yield line.decode("utf-8", "replace").rstrip("\r")
        except Unreachable:
            if not follow:
                raise

    async def resource_of(self, obj: Mapping[str, Any]) -> Resource:
        try:
            return self._catalogue.of(obj)
        except UnknownResource:
            found = await self._discovered(str(obj["apiVersion"]), str(obj["kind"]))
            self._catalogue = self._catalogue.plus((found,))
            return found

    async def _discovered(self, api_version: str, kind: str) -> Resource:
        group, _, version = api_version.rpartition("/")
        base = f"/apis/{quote(group)}/{quote(version)}" if group else f"/api/{quote(version)}"
        answer = await self.client.fetch(base, accept="application/json")
        if answer.status == 200:
            import orjson

            for item in orjson.loads(answer.body).get("resources") or ():
                if item["kind"] == kind and "/" not in item["name"]:
                    return Resource(group, version, kind, item["name"], bool(item["namespaced"]))
        raise Mistake(f"the cluster has no kind {kind} in {api_version}; is its CustomResourceDefinition installed?")

    async def apply(self, objects: Sequence[Obj], *, force: bool = False) -> AsyncIterator[tuple[Obj, Outcome]]:
        for obj in objects:
            resource = await self.resource_of(obj)
            metadata = obj["metadata"]
            before = await self.client.get_metadata(resource, metadata.get("namespace"), metadata["name"])
            after = await self._applied(resource, obj, force=force)
            if before is None:
                yield after, "created"
                continue
            same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
            yield after, "unchanged" if same else "changed"

    async def dry_run(self, obj: Obj, *, force: bool = False) -> Obj:
        return await self._applied(await self.resource_of(obj), obj, force=force, dry_run=True)

    async def _applied(self, resource: Resource, obj: Obj, *, force: bool, dry_run: bool = False) -> Obj:
        try:
            return await self.client.apply(resource, _sent(obj, resource), force=force, dry_run=dry_run)
        except KubeError as error:
            error.message = f"{obj['kind']}/{obj['metadata']['name']}: {error.message}"
            raise

    async def rehearse(self, objects: Sequence[Obj]) -> NowAndThen:
        from fairway.cli.places.stage import Stage

        stage = await Stage.around(self, objects)
        return await stage.rehearse([]), await stage.rehearse(objects)

    async def delete(self, refs: Sequence[ObjectRef]) -> AsyncIterator[tuple[ObjectRef, bool]]:
        for ref in refs:
            try:
                await self.client.delete(ref.resource, ref.namespace or None, ref.name)
            except NotFound:
                yield ref, False
            else:
                yield ref, True


def _sent(obj: Obj, resource: Resource) -> Obj:
    """Without what only the cluster writes, so that an object saved from a cluster can be applied again."""
    kept_by_cluster = ("resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in kept_by_cluster}
    if not resource.namespaced:
        metadata.pop("namespace", None)
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}
