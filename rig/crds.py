"""Custom kinds: applied, and awaited until the API server serves them."""

import functools
from pathlib import Path

from rig.api import Api, ApiError, Object, condition_of, read_manifests, wait_for
from rig.errors import RigError
from rig.state import REPOSITORY

ESTABLISHED_SECONDS = 20.0


def default_crds() -> Path | None:
    directory = REPOSITORY / "deploy" / "crds"
    return directory if directory.is_dir() else None


def apply_crds(api: Api, source: Path | None) -> list[str]:
    """Apply every CRD there and wait until all are served; the names of those that did not exist before."""
    if source is None:
        return []
    manifests = {
        str(manifest["metadata"]["name"]): manifest
        for manifest in read_manifests(source)
        if manifest["kind"] == "CustomResourceDefinition"
    }
    new = []
    for name, manifest in manifests.items():
        if api.find(_path(name)) is None:
            new.append(name)
        try:
            api.apply(manifest)
        except ApiError as error:
            raise RigError(f"the API server refuses the CRD {name}: {error}") from None
    for name, manifest in manifests.items():
        wait_for(
            f"the CRD {name} to be established", functools.partial(_established, api, name), seconds=ESTABLISHED_SECONDS
        )
        wait_for(f"{name} to be served", functools.partial(_served, api, manifest), seconds=ESTABLISHED_SECONDS)
    return new


def _path(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"


def _established(api: Api, name: str) -> bool:
    manifest = api.get(_path(name))
    if condition_of(manifest, "NamesAccepted") == "False":
        raise RigError(f"the names of the CRD {name} are taken by another one")
    return condition_of(manifest, "Established") == "True"


def _served(api: Api, manifest: Object) -> bool:
    """Established is said a moment before: until then lists are answered with 404 or 429."""
    spec = manifest["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    try:
        for version in versions:
            api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
    except ApiError as error:
        if error.status in (404, 429, 503):
            return False
        raise
    return True
