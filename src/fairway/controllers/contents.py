"""What users' Secrets and ConfigMaps hold, as digests: read when an object that somebody needs has changed."""

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairway.controllers.mcpserver.needs import Content, Contents, Kind, Name, Need
from fairway.controllers.mcpserver.pythonsource import problem_of
from fairway.kube.resource import Obj, Resource
from fairway.runtime.resource_version import version_of
from fairway.runtime.store import StoreView

Fetch = Callable[[Resource, str, str], Awaitable[Obj | None]]
"""The whole object by kind, namespace and name; None if there is none."""


@dataclass(frozen=True, slots=True)
class _Known:
    version: str
    content: Content


class ContentReader:
    """Watches every Secret and ConfigMap as metadata, and fetches those that are needed when their version changes.

    Keeps digests of values, never values. `watched` says what the store holds of each kind: metadata on a cluster,
    whole objects where there is no API server.
    """

    def __init__(self, *, watched: Mapping[Kind, Resource], fetch: Fetch) -> None:
        self.watched = watched
        self._fetch = fetch
        self._known: dict[tuple[Kind, str, str], _Known] = {}

    async def read(self, namespace: str, needs: Iterable[Need], store: StoreView) -> Contents:
        needed: dict[Name, tuple[bool, frozenset[str]]] = {}
        for need in needs:
            text, python = needed.get((need.kind, need.name), (False, frozenset()))
            asked = frozenset({need.key}) if need.python and need.key else frozenset()
            needed[need.kind, need.name] = text or need.read, python | asked
        return {
            name: await self._read(*name, namespace, store, text=text, python=python)
            for name, (text, python) in needed.items()
        }

    async def _read(
        self, kind: Kind, name: str, namespace: str, store: StoreView, *, text: bool, python: frozenset[str]
    ) -> Content | None:
        seen = store.get(self.watched[kind], namespace, name)
        key = (kind, namespace, name)
        if seen is None:
            self._known.pop(key, None)
            return None
        known = self._known.get(key)
        if known is not None and known.version == version_of(seen) and _enough(known.content, text, python):
            return known.content
        obj = await self._fetch(self.watched[kind], namespace, name)
        if obj is None:
            return None
        # under the version that was seen: what was fetched may be newer, and then another look follows
        self._known[key] = _Known(version_of(seen), content_of(obj, text=text, python=python))
        return self._known[key].content


def _enough(content: Content, text: bool, python: frozenset[str]) -> bool:
    return (bool(content.text) or not text) and (python & content.digests.keys()) <= content.not_python.keys()


def content_of(obj: Mapping[str, Any], *, text: bool = False, python: frozenset[str] = frozenset()) -> Content:
    """Of source that is Python, only what is wrong with it is kept."""
    digests = {key: hashlib.sha256(value).hexdigest() for key, value in values_of(obj).items()}
    read = {str(k): str(v) for k, v in (obj.get("data") or {}).items()} if text and obj["kind"] == "ConfigMap" else {}
    sources = {key: value for key, value in values_of(obj).items() if key in python}
    problems = {key: problem_of(value) for key, value in sources.items()}
    return Content(str(obj["metadata"].get("uid", "")), digests, read, problems)


def values_of(obj: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of a Secret or ConfigMap by key."""
    encoded = obj.get("data") or {} if obj.get("kind") == "Secret" else obj.get("binaryData") or {}
    plain = {} if obj.get("kind") == "Secret" else obj.get("data") or {}
    return {key: str(value).encode() for key, value in plain.items()} | {
        key: _decoded(value) for key, value in encoded.items()
    }


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):  # an API server never stores such; a manifest on a laptop may
        return str(value).encode()
