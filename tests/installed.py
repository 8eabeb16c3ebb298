"""Fairway as somebody would install it: its own image, its own manifests, its own rights, in the rig's node tier."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fairway.controllers.install import NAME, NAMESPACE, objects
from rig.api import wait_for
from rig.fairwayimage import REFERENCE, fairway_image
from rig.image import Entry
from rig.pyimage import python_image
from rig.testcluster import RigCluster

Object = dict[str, Any]

PACKAGES = "fairway-test-packages"
"""Namespace and Service of the index that servers' packages come from; it has what `serve_packages` was given last."""
INDEX = f"http://{PACKAGES}.{PACKAGES}.svc.cluster.local:8080"
NODE_IMAGE = "localhost/fairway-test-node:1"
"""Likewise the image that packages for Node run in."""
SETTINGS: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "fairway-operator"},
    "data": {"operator.yaml": f"package-index: {INDEX}/simple\nnpm-registry: {INDEX}/npm\nnode-image: {NODE_IMAGE}\n"},
}


@dataclass(frozen=True)
class InstalledFairway:
    """A cluster with an operator in a pod."""

    rig: RigCluster

    @classmethod
    def on(cls, rig: RigCluster, *, replicas: int = 1, image: str = REFERENCE) -> "InstalledFairway":
        """Another image for an operator that is there is an upgrade of it; loading that one is the caller's part."""
        archive = fairway_image(REFERENCE)
        rig.load_image(archive)
        for obj in objects(image=image, replicas=replicas):
            if obj["kind"] == "Deployment":
                rig.api.apply(SETTINGS, namespace=NAMESPACE)
                # settings are read at the start: others mean another operator, and so does another image of that name
                made_of = {"tests/settings": json.dumps(SETTINGS["data"]), "tests/image": archive.stem}
                obj["spec"]["template"]["metadata"]["annotations"] = made_of
            rig.api.apply(obj)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
        wait_for(
            "the operator",
            lambda: _rolled_out(rig.api.get(path), replicas),
            seconds=60,
        )
        return cls(rig)

    def apply(self, namespace: str, *manifests: Object) -> None:
        for manifest in manifests:
            self.rig.api.apply(manifest, namespace=namespace)

    def serve_packages(self, wheels: Mapping[str, bytes], others: Mapping[str, bytes] | None = None) -> None:
        """These wheels, by their names, are from now on what the operator's index has; `others` are files by path."""
        api, links = self.rig.api, dict[str, list[str]]()
        files = {f"/srv/{path}": Entry(source=data) for path, data in (others or {}).items()}
        for name, data in wheels.items():
            files[f"/srv/files/{name}"] = Entry(source=data)
            project = name.partition("-")[0].lower().replace("_", "-").replace(".", "-")
            digest = hashlib.sha256(data).hexdigest()
            links.setdefault(project, []).append(f'<a href="/files/{name}#sha256={digest}">{name}</a>')
        for project, listed in links.items():
            page = f"<!DOCTYPE html><html>{''.join(listed)}</html>"
            files[f"/srv/simple/{project}/index.html"] = Entry(source=page.encode())
        version = hashlib.sha256(
            repr(sorted((path, entry.source) for path, entry in files.items())).encode()
        ).hexdigest()[:12]
        image = f"localhost/fairway-test-index:{version}"
        entrypoint = ["python", "-m", "http.server", "8080", "--directory", "/srv"]
        self.rig.load_image(python_image(reference=image, entrypoint=entrypoint, files=files))
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PACKAGES}})
        container = {"name": "index", "image": image, "imagePullPolicy": "Never"}
        probe = {"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}
        pod = {"containers": [{**container, **probe}], "terminationGracePeriodSeconds": 0}
        metadata = {"name": f"index-{version}", "labels": {"index": version}}
        api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}, namespace=PACKAGES)
        service = {"selector": {"index": version}, "ports": [{"port": 8080}]}
        api.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": PACKAGES}, "spec": service}, namespace=PACKAGES
        )
        self.rig.wait_for_pod(PACKAGES, metadata["name"])

    @staticmethod
    def path(namespace: str, name: str) -> str:
        return f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/mcpservers/{name}"

    def server(self, namespace: str, name: str) -> Object:
        return self.rig.api.get(self.path(namespace, name))

    def status(self, namespace: str, name: str) -> Object:
        return self.server(namespace, name).get("status") or {}

    def until(
        self, namespace: str, name: str, what: str, check: Callable[[Object], object], *, seconds: float = 60
    ) -> Object:
        """The status, once it is as wanted."""

        def satisfied() -> Object | None:
            status = self.status(namespace, name)
            return status if check(status) else None

        try:
            return wait_for(f"{name}: {what}", satisfied, seconds=seconds)
        except Exception as error:
            error.add_note(json.dumps(self.status(namespace, name), indent=2))
            raise

    def ready(self, namespace: str, name: str, *, seconds: float = 60) -> Object:
        return self.until(namespace, name, "Ready", lambda s: condition(s, "Ready")[0] == "True", seconds=seconds)

    def pods(self, namespace: str, name: str | None = None, *, component: str | None = None) -> list[Object]:
        """Those that are not on their way out, of one server or of all."""
        wanted = {"fairway.dev/server": name, "fairway.dev/component": component}
        selector = ",".join(f"{label}={value}" for label, value in wanted.items() if value)
        found = self.rig.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}")
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def address(self, namespace: str, name: str) -> str:
        """Where this machine reaches the client Service."""
        service = self.rig.api.get(f"/api/v1/namespaces/{namespace}/services/{name}")
        return f"{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"


def _rolled_out(deployment: Object, replicas: int) -> bool:
    status = deployment.get("status") or {}
    if status.get("observedGeneration") != deployment["metadata"]["generation"]:
        return False
    return all(status.get(count) == replicas for count in ("replicas", "readyReplicas", "updatedReplicas"))


def condition(status: Object, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty if it is not there."""
    for found in status.get("conditions") or ():
        if found["type"] == kind:
            return found["status"], found["reason"]
    return "", ""
