"""A pod's volumes as directories of this machine, and its mount paths as they read there."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.local.environment import ConfigMissing, Lookup, data_of

Obj = Mapping[str, Any]

_PATH_START = re.compile(r"(?P<before>^|[=:,])(?P<path>/[^=:,]*)")


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume's directory, and the files that belong in it."""

    directory: Path
    files: Mapping[str, bytes]
    managed: bool
    """Whether the directory holds exactly `files`; a scratch directory is the container's own."""
    secret: bool = False


def volumes_of(pod: Obj, base: Path, lookup: Lookup) -> dict[str, Volume]:
    """Each volume of the pod by name; raises ConfigMissing for one that cannot be made here."""
    return {v["name"]: _volume(v, pod, base / "volumes" / v["name"], lookup) for v in pod["spec"].get("volumes") or ()}


def _volume(volume: Obj, pod: Obj, directory: Path, lookup: Lookup) -> Volume:
    if "emptyDir" in volume:
        return Volume(directory, {}, managed=False)
    namespace = pod["metadata"]["namespace"]
    if "projected" in volume:
        files: dict[str, bytes] = {}
        sources = volume["projected"].get("sources") or ()
        for source in sources:
            files |= _files({"name": volume["name"], **source}, namespace, lookup, named_by="name")
        return Volume(directory, files, managed=True, secret=any("secret" in source for source in sources))
    return Volume(directory, _files(volume, namespace, lookup), managed=True, secret="secret" in volume)


def _files(volume: Obj, namespace: str, lookup: Lookup, *, named_by: str = "secretName") -> dict[str, bytes]:
    if "configMap" in volume:
        source, kind, name = volume["configMap"], "ConfigMap", volume["configMap"]["name"]
    elif "secret" in volume:
        source, kind, name = volume["secret"], "Secret", volume["secret"][named_by]
    else:
        what = next((key for key in volume if key != "name"), "nothing")
        raise ConfigMissing(f"volume {volume['name']}: local mode cannot mount {what}")
    obj = lookup(kind, namespace, name)
    if obj is None:
        if source.get("optional"):
            return {}
        raise ConfigMissing(f"volume {volume['name']} asks for {kind} {name}, but there is none")
    content = data_of(obj)
    items = source.get("items")
    if items is not None:
        missing = [item["key"] for item in items if item["key"] not in content]
        if missing and not source.get("optional"):
            raise ConfigMissing(f"volume {volume['name']} asks for key {missing[0]} of {kind} {name}, which has none")
        content = {item["path"]: content[item["key"]] for item in items if item["key"] in content}
    for path in content:
        if not _stays_inside(path):
            raise ConfigMissing(f"volume {volume['name']}: {path!r} of {kind} {name} is no file name")
    return content


def _stays_inside(path: str) -> bool:
    return bool(path) and "\x00" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def mounts_of(container: Obj, volumes: Mapping[str, Volume]) -> dict[str, Path]:
    """Where each mount path of the container really is."""
    mounts = {}
    for mount in container.get("volumeMounts") or ():
        volume = volumes[mount["name"]]
        sub_path = mount.get("subPath", "")
        mounts[mount["mountPath"].rstrip("/") or "/"] = volume.directory / sub_path if sub_path else volume.directory
    return mounts


def rewritten(text: str, mounts: Mapping[str, Path]) -> str:
    """The text with every path below a mount replaced by where that is here.

    A path counts where it starts the text or follows one of `=`, `:` or `,`, so that `--file=/etc/x` and search paths
    are caught, and `http://host/etc/x` is not.
    """

    def replacement(match: re.Match[str]) -> str:
        path = match["path"]
        mount = next((m for m in sorted(mounts, key=len, reverse=True) if path == m or path.startswith(m + "/")), None)
        if mount is None or path.startswith("//"):
            return match[0]
        return f"{match['before']}{mounts[mount]}{path[len(mount) :]}"

    return _PATH_START.sub(replacement, text)


def materialise(volumes: Sequence[Volume]) -> None:
    """Makes directories and files as they should be; a file is replaced as a whole."""
    for volume in volumes:
        volume.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, content in volume.files.items():
            path = volume.directory / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, content, mode=0o600 if volume.secret else 0o644)
        if volume.managed:
            _remove_others(volume)


def _remove_others(volume: Volume) -> None:
    wanted = {volume.directory / name for name in volume.files}
    for path in volume.directory.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> bool:
    """Writes the file in one step, so that a reader sees the old or the new content; False if it is the same."""
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    scratch.replace(path)
    return True
