"""An image of a Python program, put together from the interpreter that runs this: no base image, no registry."""

import contextlib
import hashlib
import os
import py_compile
import re
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rig import elf
from rig import image as image_module
from rig.errors import RigError
from rig.golang import installer
from rig.image import Entry, ImageConfig, Layer, build_image, build_layer
from rig.state import cache_directory

USER = 65532
HOME = "/home/nonroot"
PREFIX = "/usr/local"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
STDLIB = f"{PREFIX}/lib/{VERSION}"
SITE_PACKAGES = f"{STDLIB}/site-packages"
PYTHON = f"{PREFIX}/bin/{VERSION}"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# Of the standard library: tests, windows on a screen, what installs packages, what only a compiler needs.
NOT_IN_STDLIB = {
    "__pycache__",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle.py",
    "turtledemo",
}
NOT_IN_STDLIB_PATTERN = re.compile(r"^(config-.*|_test.*\.so|_ctypes_test.*\.so|xx.*\.so|_xx.*\.so|_tkinter.*\.so)$")
# Of packages: caches, tests, sources of compiled modules, scripts with the path of this machine in their first line.
NOT_IN_PACKAGES = {"__pycache__", "tests", "direct_url.json", "uv_cache.json", "INSTALLER", "RECORD", "REQUESTED"}
NOT_IN_PACKAGES_SUFFIXES = {".c", ".cpp", ".h", ".pxd", ".pyx", ".pyi"}
ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": f"{PREFIX}/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SSL_CERT_FILE": CERTIFICATES,
}


def python_image(
    *,
    reference: str,
    entrypoint: Sequence[str],
    requirements: Path | None = None,
    wheel: Path | None = None,
    files: Mapping[str, Entry] | None = None,
    environment: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ports: Sequence[int] = (),
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """The archive of an image with this interpreter, these locked requirements, that wheel and those files.

    Three layers, each kept: what changes often comes last. The same inputs give the same digest.
    """
    for path in (requirements, wheel):
        if path is not None and not path.is_file():
            raise RigError(f"there is no {path}")
    store = LayerStore(cache_directory(environ) / "images")
    layers = [store.interpreter()]
    if requirements is not None:
        layers.append(store.packages(["--require-hashes", "-r", str(requirements)], contents=[requirements]))
    if wheel is not None:
        layers.append(store.packages(["--no-index", str(wheel)], contents=[wheel]))
    if files:
        layers.append(store.files(files))
    config = ImageConfig(
        entrypoint=entrypoint,
        environment={**ENVIRONMENT, **(environment or {})},
        user=f"{USER}:{USER}",
        directory=HOME,
        labels=labels or {},
        ports=ports,
    )
    key = _digest(reference, config.to_json(), [layer.digest for layer in layers], _recipe())
    output = store.directory / f"image-{key}.tar"
    if output.exists():
        output.touch()
    else:
        build_image(reference=reference, config=config, layers=layers, output=output)
    store.forget_old()
    return output


class LayerStore:
    """Layers on disk, each under the digest of what it is made from."""

    # Enough for every image of one working copy and its last few versions.
    KEPT = 12
    IN_USE = 3600.0
    """Seconds for which what was asked for stays: others may share the directory, and are about to load it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def interpreter(self) -> Layer:
        """The interpreter, its standard library, everything that these load, and the few files that programs expect."""
        libraries = sorted(_system_libraries(_interpreter_files()).items())
        inputs = [(name, _stamp(path)) for name, path in libraries]
        bundle = _certificate_bundle()
        key = _digest(_recipe(), sys.version, sys.base_prefix, _stamp(_interpreter()), inputs, _stamp(bundle))
        return self._layer(f"interpreter-{key}", lambda: _interpreter_entries(dict(libraries), bundle))

    def packages(self, arguments: Sequence[str], *, contents: Sequence[Path]) -> Layer:
        """What installing these brings into site-packages, and the libraries that the interpreter's layer lacks."""
        key = _digest(_recipe(), sys.version, [path.name + path.read_text("latin-1") for path in contents])
        present = set(_system_libraries(_interpreter_files()))

        def entries() -> dict[str, Entry]:
            with tempfile.TemporaryDirectory(prefix="fairway-rig-") as directory:
                target = Path(directory) / "site-packages"
                _install(arguments, target)
                return _package_entries(target, present=present)

        return self._layer(f"packages-{key}", entries)

    def files(self, files: Mapping[str, Entry]) -> Layer:
        """Plain files; modules among them are compiled like all others."""
        contents = {
            name: (
                entry.source.read_bytes() if isinstance(entry.source, Path) else entry.source,
                entry.mode,
                entry.link,
            )
            for name, entry in files.items()
        }
        key = _digest(_recipe(), sys.version, sorted(contents.items()))
        return self._layer(f"files-{key}", lambda: {**files, **_compiled(files)})

    def forget_old(self) -> None:
        """Remove the layers and images that were not used for longest."""
        used = {}
        for archive in self.directory.glob("*.tar"):
            with contextlib.suppress(FileNotFoundError):  # somebody else forgets it too
                used[archive] = archive.stat().st_mtime
        kept = sorted(used.values(), reverse=True)[: self.KEPT]
        for archive, when in used.items():
            if when not in kept and when < time.time() - self.IN_USE:
                archive.unlink(missing_ok=True)
                archive.with_suffix(".sha256").unlink(missing_ok=True)

    def _layer(self, name: str, entries: Callable[[], Mapping[str, Entry]]) -> Layer:
        archive, digest = self.directory / f"{name}.tar", self.directory / f"{name}.sha256"
        if archive.exists() and digest.exists():
            archive.touch()
            return Layer(archive=archive, digest=digest.read_text())
        layer = build_layer(entries(), archive)
        draft = digest.with_suffix(f".{os.getpid()}.new")
        draft.write_text(layer.digest)
        draft.replace(digest)
        return layer


def _interpreter() -> Path:
    """The real interpreter, also where this runs in a virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))


def _stdlib_files() -> list[Path]:
    return list(
        _walk(_stdlib(), leave_out=lambda name: name in NOT_IN_STDLIB or bool(NOT_IN_STDLIB_PATTERN.match(name)))
    )


def _interpreter_files() -> list[Path]:
    return [_interpreter(), *(path for path in _stdlib_files() if path.suffix == ".so")]


def _system_libraries(files: Sequence[Path]) -> dict[str, Path]:
    libraries = elf.libraries_of(files)
    # Loaded by name when a thread ends, and so in no list of what is needed.
    libc = next((path for name, path in libraries.items() if name.startswith("libc.so")), None)
    if libc is None:
        raise RigError("this Python is not linked against glibc", fix="build images with a Python on Debian or Ubuntu")
    unwinder = libc.with_name("libgcc_s.so.1")
    if unwinder.exists():
        libraries.setdefault(unwinder.name, unwinder)
    return libraries


def _interpreter_entries(libraries: Mapping[str, Path], bundle: Path) -> dict[str, Entry]:
    executable, root = _interpreter(), _stdlib()
    loader = elf.loader_of(executable)
    entries = {
        PYTHON: Entry(source=elf.without_sections(executable.read_bytes(), executable), mode=0o755),
        f"{PREFIX}/bin/python3": Entry(link=VERSION),
        f"{PREFIX}/bin/python": Entry(link=VERSION),
        loader: Entry(source=Path(loader).resolve(), mode=0o755),
        SITE_PACKAGES: Entry(mode=0o755),
        "/tmp": Entry(mode=0o1777),  # noqa: S108  a directory of the image
        HOME: Entry(mode=0o755, uid=USER),
        "/etc/passwd": Entry(
            source=f"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:{HOME}:/sbin/nologin\n".encode()
        ),
        "/etc/group": Entry(source=f"root:x:0:\nnonroot:x:{USER}:\n".encode()),
        "/etc/nsswitch.conf": Entry(source=b"hosts: files dns\n"),
        CERTIFICATES: Entry(source=bundle),
    }
    entries |= _library_entries(libraries)
    modules = {f"{STDLIB}/{path.relative_to(root).as_posix()}": _entry(path) for path in _stdlib_files()}
    return entries | modules | _compiled(modules)


def _library_entries(libraries: Mapping[str, Path]) -> dict[str, Entry]:
    # All in the directory of libc: the loader searches that one without being told.
    directory = next(path.parent for name, path in libraries.items() if name.startswith("libc.so"))
    return {
        f"{directory}/{name}": Entry(source=elf.without_sections(path.read_bytes(), path), mode=0o755)
        for name, path in libraries.items()
    }


def _package_entries(root: Path, *, present: set[str]) -> dict[str, Entry]:
    kept = [
        path
        for path in _walk(root, leave_out=lambda name: name in NOT_IN_PACKAGES)
        if path.suffix not in NOT_IN_PACKAGES_SUFFIXES and path.relative_to(root).parts[0] != "bin"
    ]
    # Scripts name the interpreter of this machine; programs that are no scripts run anywhere.
    programs = [path for path in sorted((root / "bin").glob("*")) if path.read_bytes().startswith(elf.MAGIC)]
    # Read at once: the directory is gone when the layer is written.
    modules = {f"{SITE_PACKAGES}/{path.relative_to(root).as_posix()}": _entry(path) for path in kept}
    modules |= {f"{PREFIX}/bin/{path.name}": _entry(path) for path in programs}
    needed = elf.libraries_of([*programs, *(path for path in kept if ".so" in path.suffixes)])
    lacking = {name: path for name, path in needed.items() if name not in present and not path.is_relative_to(root)}
    libraries = {}
    if lacking:
        base = _system_libraries([_interpreter()])
        libc = {name: path for name, path in base.items() if name.startswith("libc.so")}
        libraries = {
            name: entry for name, entry in _library_entries(libc | lacking).items() if Path(name).name in lacking
        }
    return modules | libraries | _compiled(modules)


def _entry(path: Path) -> Entry:
    content = path.read_bytes()
    mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return Entry(source=elf.without_sections(content, path) if content.startswith(elf.MAGIC) else content, mode=mode)


def _walk(root: Path, *, leave_out: Callable[[str], bool]) -> Iterable[Path]:
    for directory, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if not leave_out(name))
        for name in sorted(names):
            if not leave_out(name):
                yield Path(directory) / name


def _compiled(modules: Mapping[str, Entry]) -> dict[str, Entry]:
    """The byte code of every module, found by content and never compared with a clock."""
    found: dict[str, Entry] = {}
    with tempfile.TemporaryDirectory(prefix="fairway-rig-") as directory:
        source, target = Path(directory) / "module.py", Path(directory) / "module.pyc"
        for name, entry in modules.items():
            if not name.endswith(".py") or entry.source is None:
                continue
            if isinstance(entry.source, bytes):
                source.write_bytes(entry.source)
            path = source if isinstance(entry.source, bytes) else entry.source
            try:
                py_compile.compile(
                    str(path),
                    cfile=str(target),
                    # What tracebacks show.
                    dfile=name,
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
            except py_compile.PyCompileError:
                # Templates and modules for other versions of Python.
                continue
            place = PurePosixPath(name)
            cached = place.parent / "__pycache__" / f"{place.stem}.{sys.implementation.cache_tag}.pyc"
            found[str(cached)] = Entry(source=target.read_bytes())
    return found


def _install(arguments: Sequence[str], target: Path) -> None:
    answer = subprocess.run(
        [*installer(), "--no-deps", "--target", str(target), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        last = "\n  ".join((answer.stderr or answer.stdout).strip().splitlines()[-5:])
        raise RigError(f"installing {' '.join(arguments)} for the image failed:\n  {last}")


def _certificate_bundle() -> Path:
    paths = ssl.get_default_verify_paths()
    for candidate in (paths.cafile, CERTIFICATES, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    raise RigError("this machine has no CA certificates to put into the image", fix="apt-get install ca-certificates")


def _stamp(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return (str(path), status.st_size, status.st_mtime_ns)


def _recipe() -> str:
    """Changes when the code that makes images does."""
    sources = [Path(__file__), Path(elf.__file__), Path(image_module.__file__)]
    return _digest(*(source.read_text() for source in sources))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
