"""Requests to the API server: read, watch, apply, delete; nothing here decides anything."""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlencode

import orjson

from fairway.kube.errors import NotFound, Unreachable
from fairway.kube.pods import Pods
from fairway.kube.reading import checked, decode, items_of, read_object, text_at
from fairway.kube.resource import Obj, Resource
from fairway.kube.reviews import Reviews
from fairway.kube.transport import Answer, Transport

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, every item with its apiVersion and kind."""

    items: Sequence[Obj]
    continue_token: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED, BOOKMARK, or ERROR with a Status as its object."""

    type: str
    object: Obj


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true of an object when the server deletes it."""

    uid: str
    resource_version: str | None = None


class Client:
    """One method per verb. Objects are plain dicts without managedFields; answers other than success are KubeErrors."""

    def __init__(self, transport: Transport, *, field_manager: str) -> None:
        self._transport = transport
        self.field_manager = field_manager
        self.pods = Pods(transport)
        self.reviews = Reviews(transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def limit(self, *, rate: float, burst: int) -> None:
        """From now on, `rate` requests a second and `burst` at once; a rate of 0 is no limit."""
        self._transport.limit(rate=rate, burst=burst)

    async def get(self, resource: Resource, namespace: str | None, name: str, *, managed_fields: bool = False) -> Obj:
        answer = await self._transport.request("GET", resource.path(namespace, name))
        return read_object(answer.body, managed_fields=managed_fields)

    async def get_metadata(
        self, resource: Resource, namespace: str | None, name: str, *, managed_fields: bool = False
    ) -> Obj | None:
        """apiVersion, kind and metadata of an object, straight from the server; None if there is no such object."""
        try:
            answer = await self._transport.request("GET", resource.path(namespace, name), accept=_METADATA)
        except NotFound:
            return None
        return _stamped(read_object(answer.body, managed_fields=managed_fields), resource.api_version, resource.kind)

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int = 500,
        continue_token: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """One page (everything, if `limit` is 0), consistent with the newest state of the server."""
        params = {
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        accept = _METADATA_LIST if metadata_only else _JSON
        answer = await self._transport.request("GET", _url(resource.path(namespace), params), accept=accept)
        body = checked(decode(answer.body), named=False)
        items = items_of(body)
        for item in items:
            _stamped(item, resource.api_version, resource.kind)
        metadata = body["metadata"]
        return Page(items, metadata.get("continue") or "", metadata.get("resourceVersion", ""))

    async def list(
        self, resource: Resource, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Obj]:
        """All objects, page by page."""
        token = ""
        while True:
            page = await self.list_page(
                resource,
                namespace=namespace,
                continue_token=token,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            for item in page.items:
                yield item
            token = page.continue_token
            if not token:
                return

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str = "",
        initial: bool = False,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        silence: float = 90.0,
        timeout: float | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Events until the server closes the stream (which it does every few minutes).

        `initial` asks for all present objects first, ended by a bookmark. Raises WatchSilent when not one byte came for
        `silence` seconds.
        """
        # Spread over minutes, so that many watches of many replicas do not all come back at once.
        timeout = timeout if timeout is not None else 300.0 * (1.0 + random.random())  # noqa: S311
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout)),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        accept = _METADATA if metadata_only else _JSON
        lines = self._transport.lines(_url(resource.path(namespace), params), accept=accept, silence=silence)
        async for line in lines:
            event = decode(line)
            kind, obj = event.get("type"), event.get("object")
            if not isinstance(kind, str) or not isinstance(obj, dict):
                raise Unreachable("a watch delivered something that is no event")
            if kind != "ERROR":
                obj = checked(obj, named=kind != "BOOKMARK")
                _stamped(obj, resource.api_version, resource.kind)
            yield WatchEvent(kind, obj)

    async def apply(
        self,
        resource: Resource,
        obj: Obj,
        *,
        force: bool,
        subresource: str | None = None,
        field_manager: str | None = None,
        dry_run: bool = False,
        deadline: float | None = None,
        managed_fields: bool = False,
    ) -> Obj:
        """Server-side apply: creates the object or merges what this field manager wants; returns the live object."""
        metadata = obj["metadata"]
        params = {"fieldManager": field_manager or self.field_manager, "fieldValidation": "Strict"}
        if force:
            params["force"] = "true"
        if dry_run:
            params["dryRun"] = "All"
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        answer = await self._transport.request(
            "PATCH", _url(path, params), body=orjson.dumps(obj), content_type=_APPLY, deadline=deadline
        )
        return read_object(answer.body, managed_fields=managed_fields)

    async def apply_status(self, resource: Resource, obj: Obj, *, deadline: float | None = None) -> Obj:
        return await self.apply(resource, obj, force=True, subresource="status", deadline=deadline)

    async def create(
        self,
        resource: Resource,
        obj: Obj,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        deadline: float | None = None,
    ) -> Obj:
        """POST. For what only exists by being posted (reviews, tokens, leases, events); children are applied."""
        path = resource.path(namespace, name, subresource)
        url = _url(path, {"fieldManager": self.field_manager})
        answer = await self._transport.request(
            "POST", url, body=orjson.dumps(obj), content_type=_JSON, deadline=deadline
        )
        return read_object(answer.body)

    async def replace(self, resource: Resource, obj: Obj, *, deadline: float | None = None) -> Obj:
        """PUT: with metadata.resourceVersion set, a compare-and-swap."""
        metadata = obj["metadata"]
        url = _url(resource.path(metadata.get("namespace"), metadata["name"]), {"fieldManager": self.field_manager})
        answer = await self._transport.request(
            "PUT", url, body=orjson.dumps(obj), content_type=_JSON, deadline=deadline
        )
        return read_object(answer.body)

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Obj, *, subresource: str | None = None
    ) -> Obj:
        """A JSON merge patch."""
        url = _url(resource.path(namespace, name, subresource), {"fieldManager": self.field_manager})
        answer = await self._transport.request("PATCH", url, body=orjson.dumps(patch), content_type=_MERGE)
        return read_object(answer.body)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        deadline: float | None = None,
    ) -> Obj | None:
        """Deletes in the background. Returns the object if it lingers (grace, finalizers), None if it is gone."""
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if preconditions:
            options["preconditions"] = {"uid": preconditions.uid}
            if preconditions.resource_version:
                options["preconditions"]["resourceVersion"] = preconditions.resource_version
        answer = await self._transport.request(
            "DELETE",
            resource.path(namespace, name),
            body=orjson.dumps(options),
            content_type=_JSON,
            deadline=deadline,
        )
        body = decode(answer.body)
        if body.get("kind") == "Status":
            return None
        body = checked(body)
        if "deletionTimestamp" not in body["metadata"]:
            return None
        return _stamped(body, resource.api_version, resource.kind)

    async def request_token(
        self, namespace: str, service_account: str, *, audiences: Sequence[str] = (), expires_in: int = 3600
    ) -> tuple[str, str]:
        """A token for a ServiceAccount and the RFC 3339 time at which it expires."""
        request: Obj = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": list(audiences), "expirationSeconds": expires_in},
        }
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(service_account)}/token"
        answer = await self._transport.request("POST", path, body=orjson.dumps(request), content_type=_JSON)
        body = decode(answer.body)
        return text_at(body, "status", "token"), text_at(body, "status", "expirationTimestamp")

    async def fetch(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = "*/*",
        timeout: float = 10.0,
        max_bytes: int = 8 * 1024 * 1024,
    ) -> Answer:
        """Any path, any answer: statuses of 400 and above are returned, not raised."""
        return await self._transport.request(
            method,
            _url(path, params or {}),
            body=body,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
            max_bytes=max_bytes,
            raise_for_status=False,
        )

    async def fetch_from_pod(
        self, namespace: str, pod: str, port: int, path: str, *, scheme: str = "http", timeout: float = 10.0
    ) -> Answer:
        """GET from a port of a pod through the API server, which needs the right `get pods/proxy`."""
        target = quote(f"{scheme}:{pod}:{port}", safe=":") if scheme == "https" else f"{quote(pod)}:{port}"
        return await self.fetch(
            f"/api/v1/namespaces/{quote(namespace)}/pods/{target}/proxy/{path.lstrip('/')}", timeout=timeout
        )


def _url(path: str, params: Mapping[str, str]) -> str:
    query = urlencode({name: value for name, value in params.items() if value})
    return f"{path}?{query}" if query else path


def _stamped(obj: Obj, api_version: str, kind: str) -> Obj:
    """Items of a list come without apiVersion and kind, and metadata-only ones under a name that is not theirs."""
    obj["apiVersion"] = api_version
    obj["kind"] = kind
    return obj


__all__ = ["Answer", "Client", "Page", "Preconditions", "WatchEvent"]
