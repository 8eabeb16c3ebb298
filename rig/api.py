"""The few calls to a Kubernetes API that the rig needs, blocking, with the standard library."""

import http.client
import json
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rig.errors import RigError
from rig.kubeconfig import Access, read_kubeconfig

Object = dict[str, Any]
T = TypeVar("T")
FIELD_MANAGER = "fairway-rig"
POLL_SECONDS = 0.05
TRIES_ON_CONFLICT = 5


class ApiError(Exception):
    """The API server answered, and the answer was no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class Unreachable(Exception):
    """Nobody answered."""


class Api:
    """One API server under one identity. Every call is a connection of its own, so any thread may use it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "Api":
        return cls(read_kubeconfig(path))

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float = 20,
    ) -> bytes:
        """The body of a good answer; ApiError for a bad one, Unreachable for none."""
        url = urllib.parse.urlsplit(self.access.server)
        if url.hostname is None:
            raise RigError(f"{self.access.server} is no address of an API server")
        connection = http.client.HTTPSConnection(
            url.hostname, url.port or 443, context=self.access.tls, timeout=timeout
        )
        headers = {"Accept": accept, "User-Agent": "fairway-rig"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.access.server}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise _error(answer.status, content)
        return content

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Object:
        parsed: Object = json.loads(self.request(method, path, body=body, **options))
        return parsed

    def get(self, path: str) -> Object:
        return self.call("GET", path)

    def items(self, path: str) -> list[Object]:
        found: list[Object] = self.get(path)["items"]
        return found

    def find(self, path: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def post(self, path: str, body: object) -> Object:
        return self.call("POST", path, body)

    def delete(self, path: str) -> None:
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def merge(self, path: str, patch: object) -> Object:
        return self.call("PATCH", path, patch, content_type="application/merge-patch+json")

    def apply(self, manifest: Object, *, namespace: str = "default") -> Object:
        """Server-side apply of one object of any kind."""
        path = self.path_of(manifest, namespace=namespace)
        query = urllib.parse.urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        for last in [False] * (TRIES_ON_CONFLICT - 1) + [True]:
            try:
                return self.call("PATCH", f"{path}?{query}", manifest, content_type="application/apply-patch+yaml")
            except ApiError as error:
                # Two writers at the same instant: the server itself asks to try again.
                if error.status != 409 or last:
                    raise
        raise AssertionError("unreachable")

    def path_of(self, manifest: Object, *, namespace: str = "default") -> str:
        """Where this object is served."""
        metadata = manifest["metadata"]
        collection = self.collection(manifest["apiVersion"], manifest["kind"], metadata.get("namespace") or namespace)
        return f"{collection}/{metadata['name']}"

    def collection(self, api_version: str, kind: str, namespace: str = "default") -> str:
        group = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._resources:
            for resource in self.get(group)["resources"]:
                if "/" not in resource["name"]:
                    found = (resource["name"], bool(resource["namespaced"]))
                    self._resources[(api_version, resource["kind"])] = found
        try:
            plural, namespaced = self._resources[(api_version, kind)]
        except KeyError:
            raise RigError(f"the API server knows no {kind} in {api_version}", fix="apply its CRD first") from None
        return f"{group}/namespaces/{namespace}/{plural}" if namespaced else f"{group}/{plural}"

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz", timeout=2) == b"ok"
        except (ApiError, Unreachable):
            return False


def wait_for(
    what: str, probe: Callable[[], T | None], *, seconds: float, meanwhile: Callable[[], None] | None = None
) -> T:
    """The first answer of `probe` that is not None or False; `meanwhile` may notice that waiting is in vain."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if meanwhile:
            meanwhile()
        if time.monotonic() > deadline:
            raise RigError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(POLL_SECONDS)


def condition_of(manifest: Object, kind: str) -> str:
    """The status of a condition: True, False, Unknown, or empty where there is none."""
    for condition in manifest.get("status", {}).get("conditions") or []:
        if condition["type"] == kind:
            return str(condition["status"])
    return ""


def read_manifests(source: Path) -> list[Object]:
    """Every object in a YAML file, or in the YAML files of a directory."""
    files = sorted([*source.glob("*.yaml"), *source.glob("*.yml")]) if source.is_dir() else [source]
    found: list[Object] = []
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except FileNotFoundError:
            raise RigError(f"there is no {file}") from None
        except yaml.YAMLError as error:
            raise RigError(f"{file} is no YAML: {error}") from None
        for document in documents:
            if document is None:
                continue
            if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= document.keys():
                raise RigError(f"{file} holds something without apiVersion, kind and metadata")
            found.append(document)
    return found


def _error(status: int, content: bytes) -> ApiError:
    try:
        answer = json.loads(content)
        return ApiError(status, answer.get("reason", ""), answer.get("message", ""))
    except (ValueError, AttributeError):
        return ApiError(status, "", content[:500].decode(errors="replace"))
