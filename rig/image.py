"""Container images without a registry or docker: a docker-archive made with the standard library, imported by ctr."""

import hashlib
import io
import json
import os
import platform
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rig.errors import RigError
from rig.packages import program
from rig.state import State

# A fixed date: what goes in, and not when, decides what comes out.
EPOCH = "1970-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Entry:
    """One file, link or directory of an image. `source` is a file to copy, or the content; None makes a directory."""

    source: Path | bytes | None = None
    mode: int = 0o644
    link: str = ""
    uid: int = 0


@dataclass(frozen=True)
class Layer:
    """A layer on disk, and the digest of its content."""

    archive: Path
    digest: str


@dataclass(frozen=True)
class ImageConfig:
    """What runs in the image and as whom."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    directory: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[int] = ()

    def to_json(self) -> dict[str, object]:
        config: dict[str, object] = {
            "Env": [f"{name}={value}" for name, value in sorted(self.environment.items())],
            "WorkingDir": self.directory,
        }
        if self.entrypoint:
            config["Entrypoint"] = list(self.entrypoint)
        if self.command:
            config["Cmd"] = list(self.command)
        if self.user:
            config["User"] = self.user
        if self.labels:
            config["Labels"] = dict(sorted(self.labels.items()))
        if self.ports:
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in sorted(self.ports)}
        return config


def architecture(machine: str | None = None) -> str:
    name = machine or platform.machine()
    return ARCHITECTURES.get(name, name)


def tree(root: Path, *, at: str = "/") -> dict[str, Entry]:
    """Everything under a directory, as entries of an image."""
    found: dict[str, Entry] = {}
    base = PurePosixPath(at)
    for path in sorted(root.rglob("*")):
        name = str(base / path.relative_to(root).as_posix())
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = Entry(link=os.readlink(path))  # noqa: PTH115  the text of the link, not what it resolves to
        elif path.is_dir():
            found[name] = Entry(mode=mode)
        elif path.is_file():
            found[name] = Entry(source=path, mode=mode)
        else:
            raise RigError(f"{path} is neither file, directory nor link and cannot be in an image")
    return found


def build_layer(entries: Mapping[str, Entry], output: Path) -> Layer:
    """Write one layer. Parent directories are made; the same entries give the same bytes."""
    wanted = {_inside(name): entry for name, entry in entries.items()}
    for name in list(wanted):
        for parent in PurePosixPath(name).parents:
            if str(parent) != ".":
                wanted.setdefault(str(parent), Entry(mode=0o755))
    output.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    draft = output.with_name(output.name + f".{os.getpid()}.new")
    try:
        with draft.open("wb") as file, tarfile.open(fileobj=_Hashing(file, digest), mode="w|", bufsize=1 << 20) as tar:  # type: ignore[call-overload]
            for name in sorted(wanted):
                _add(tar, name, wanted[name])
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    return Layer(archive=output, digest=digest.hexdigest())


def build_image(
    *,
    reference: str,
    config: ImageConfig,
    output: Path,
    files: Mapping[str, Entry] | None = None,
    layers: Sequence[Layer] = (),
) -> Path:
    """A docker-archive of these layers, with `files` as the last one."""
    if not reference or any(character.isspace() for character in reference):
        raise RigError(f"{reference!r} is no image reference", fix="name it like fairway:dev")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".image-") as directory:
        stack = list(layers)
        if files is not None:
            stack.append(build_layer(files, Path(directory) / "files.tar"))
        if not stack:
            raise RigError(f"the image {reference} would be empty")
        content = _config(config, stack)
        identity = hashlib.sha256(content).hexdigest()
        manifest = [
            {
                "Config": f"{identity}.json",
                "RepoTags": [with_tag(reference)],
                "Layers": [f"{layer.digest}/layer.tar" for layer in stack],
            }
        ]
        draft = Path(directory) / "image.tar"
        with tarfile.open(draft, "w") as tar:
            # First, so that whoever wants to know what it is need not read the layers.
            _add(tar, "manifest.json", Entry(source=json.dumps(manifest).encode()))
            _add(tar, f"{identity}.json", Entry(source=content))
            for layer in {layer.digest: layer for layer in stack}.values():
                _add(tar, f"{layer.digest}/layer.tar", Entry(source=layer.archive))
        draft.replace(output)
    return output


def with_tag(reference: str) -> str:
    """`name` as `name:latest`, which is what a pod that leaves out the tag asks for."""
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def image_identity(archive: Path) -> str:
    """The digest of the configuration, which names the whole content."""
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile("manifest.json")
            if file is None:
                raise KeyError("manifest.json")
            manifest = json.load(file)
        return str(manifest[0]["RepoTags"]) + " " + str(manifest[0]["Config"])
    except FileNotFoundError:
        raise RigError(f"there is no image {archive}") from None
    except (tarfile.TarError, KeyError, IndexError, ValueError, TypeError):
        raise RigError(f"{archive} is no docker-archive", fix="save images with `docker save` or build_image") from None


def load_image(state: State, archive: Path) -> None:
    """Import an image into the node of a running rig. One that is there already costs nothing."""
    settings = state.settings()
    if settings is None or not settings.node or not containerd_socket(state).exists():
        raise RigError("no node is running here to load images into", fix="python -m rig up --node")
    seen = state.root / "images" / hashlib.sha256(image_identity(archive).encode()).hexdigest()
    if seen.exists():
        return
    ctr(state, "images", "import", "--snapshotter", snapshotter(state.root), str(archive))
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.touch()


def containerd_socket(state: State) -> Path:
    settings = state.settings()
    if settings is None:
        raise RigError("there is no rig here", fix="python -m rig up --node")
    return settings.sockets / "containerd.sock"


def ctr(state: State, *arguments: str) -> str:
    answer = subprocess.run(
        [program("ctr"), "--address", str(containerd_socket(state)), "--namespace", "k8s.io", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise RigError(f"ctr {' '.join(arguments)} failed: {answer.stderr.strip()[-500:]}")
    return answer.stdout


def snapshotter(directory: Path, mounts: str | None = None) -> str:
    """overlayfs, except where the directory itself is on one (a container): there layers are copied."""
    text = mounts if mounts is not None else Path("/proc/self/mounts").read_text()
    kinds = {PurePosixPath(line.split()[1]): line.split()[2] for line in text.splitlines()}
    path = PurePosixPath(directory)
    for candidate in (path, *path.parents):
        if candidate in kinds:
            return "native" if kinds[candidate] in ("overlay", "tmpfs") else "overlayfs"
    return "overlayfs"


class _Hashing:
    """A file that is digested while it is written."""

    def __init__(self, file: io.BufferedWriter, digest: "hashlib._Hash") -> None:
        self._file = file
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)


def _inside(name: str) -> str:
    path = PurePosixPath("/") / name
    if ".." in path.parts or str(path) == "/":
        raise RigError(f"{name!r} is no path inside an image")
    return str(path.relative_to("/"))


def _add(tar: tarfile.TarFile, name: str, entry: Entry) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.uid, 0
    if entry.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(info)
    elif entry.source is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif isinstance(entry.source, bytes):
        info.size = len(entry.source)
        tar.addfile(info, io.BytesIO(entry.source))
    else:
        with entry.source.open("rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            tar.addfile(info, file)


def _config(config: ImageConfig, layers: Iterable[Layer]) -> bytes:
    stack = list(layers)
    return json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "created": EPOCH,
            "config": config.to_json(),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in stack]},
            "history": [{"created": EPOCH} for _ in stack],
        },
        sort_keys=True,
    ).encode()
