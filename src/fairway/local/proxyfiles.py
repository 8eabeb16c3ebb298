"""The files of the shared proxy: the volumes of every proxy that it stands for, each where its RunConfig names it."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairway.api import names
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, SECRET, Obj
from fairway.local.environment import ConfigMissing
from fairway.local.volumes import Volume, materialise, volumes_of
from fairway.runtime.store import StoreView

_KINDS = {"ConfigMap": CONFIG_MAP, "Secret": SECRET}


def keep_files(store: StoreView, root: Path) -> None:
    """Makes `root` hold what the proxies' Deployments mount there, and nothing of those that are gone."""
    volumes = [volume for deployment in _proxies(store) for volume in _mounted(deployment, store, root)]
    materialise(volumes)
    wanted = {volume.directory for volume in volumes}
    for directory in (*root.glob("*/*"), *root.glob("*/*/*")):
        if not any(directory == kept or directory in kept.parents for kept in wanted):
            shutil.rmtree(directory, ignore_errors=True)


def _proxies(store: StoreView) -> Iterator[Obj]:
    for deployment in store.list(DEPLOYMENT):
        if (deployment["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_PROXY:
            yield deployment


def _mounted(deployment: Obj, store: StoreView, root: Path) -> Iterator[Volume]:
    namespace = deployment["metadata"]["namespace"]
    spec = deployment["spec"]["template"]["spec"]
    pod = {"metadata": {"namespace": namespace}, "spec": spec}
    directories = {
        mount["name"]: Path(mount["mountPath"])
        for container in spec["containers"]
        for mount in container.get("volumeMounts") or ()
    }

    def lookup(kind: str, namespace: str, name: str) -> Obj | None:
        return store.get(_KINDS[kind], namespace, name)

    for volume in spec.get("volumes") or ():
        directory = directories.get(volume["name"])
        if directory is None or root not in directory.parents:
            continue
        with suppress(ConfigMissing):  # the proxy says what it cannot read
            alone = {**pod, "spec": {"volumes": [volume]}}
            yield replace(volumes_of(alone, root, lookup)[volume["name"]], directory=directory)
