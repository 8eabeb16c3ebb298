"""The Kubernetes binaries: found in RIG_BIN or the cache, else built once from Go modules."""

import fcntl
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import CannotRunError, RigError
from rig.golang import Go, find_go, wanted_version
from rig.progress import Progress
from rig.state import cache_directory

MODULE = Path(__file__).parent / "kube"
MULTI_CALL = "kube"
PAUSE = "pause"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
NETWORK_SIGNS = ("dial tcp", "no such host", "proxyconnect", "connection refused", "i/o timeout", "TLS handshake")


@dataclass(frozen=True)
class Binaries:
    """A directory with the multi-call binary, or with one binary for each component."""

    directory: Path

    def of(self, component: str) -> Path:
        """The file to run as `component`; what it is called by (argv[0]) decides what it is."""
        alone = self.directory / component
        return alone if alone.exists() else self.directory / MULTI_CALL

    def command(self, component: str) -> list[str]:
        """The same as the beginning of a command line, where argv[0] cannot be chosen."""
        file = self.of(component)
        return [str(file), component] if file.name == MULTI_CALL else [str(file)]

    @property
    def pause(self) -> Path:
        return self.directory / PAUSE

    def missing(self, components: Sequence[str] = COMPONENTS) -> list[str]:
        return [name for name in components if not os.access(self.of(name), os.X_OK)]


def kubernetes_version(go_mod: str | None = None) -> str:
    text = go_mod if go_mod is not None else (MODULE / "go.mod").read_text()
    match = re.search(r"^\s*(?:require\s+)?k8s\.io/kubernetes (v\d+\.\d+\.\d+\S*)", text, re.MULTILINE)
    if match is None:
        raise RigError("rig/kube/go.mod requires no k8s.io/kubernetes")
    return match.group(1)


def source_files() -> list[Path]:
    return sorted([MODULE / "go.mod", MODULE / "go.sum", *MODULE.rglob("*.go")])


def cache_key() -> str:
    digest = hashlib.sha256()
    for path in source_files():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(MODULE)} {len(content)}\n".encode())
        digest.update(content)
    return f"{kubernetes_version()}-{platform.machine()}-{digest.hexdigest()[:12]}"


def cached_directory(environ: Mapping[str, str] = os.environ) -> Path:
    return cache_directory(environ) / cache_key()


def find_binaries(environ: Mapping[str, str] = os.environ) -> Binaries | None:
    """The binaries if they are there: RIG_BIN, which must be complete, else the cache."""
    override = environ.get("RIG_BIN")
    if override:
        binaries = Binaries(Path(override).absolute())
        missing = binaries.missing([name for name in COMPONENTS if name != "kubectl"])
        if missing:
            raise RigError(
                f"RIG_BIN={override} lacks {', '.join(missing)}",
                fix="put one binary for each there, or the one called `kube`; or unset RIG_BIN",
            )
        return binaries
    binaries = Binaries(cached_directory(environ))
    return binaries if not binaries.missing() and binaries.pause.exists() else None


def ensure_binaries(*, progress: Progress, environ: Mapping[str, str] = os.environ) -> Binaries:
    """The binaries, built now if need be."""
    return find_binaries(environ) or build(progress=progress, environ=environ)


def build(*, progress: Progress, environ: Mapping[str, str] = os.environ) -> Binaries:
    """Build into the cache; whoever comes second waits and takes what the first one made."""
    target = cached_directory(environ)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.milestone("another process builds Kubernetes; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        binaries = Binaries(target)
        if not binaries.missing() and binaries.pause.exists():
            return binaries
        go_mod = (MODULE / "go.mod").read_text()
        go = find_go(wanted=wanted_version(go_mod), cache=target.parent, environ=environ)
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix="building-"))
        try:
            _build(draft, go=go, progress=progress)
            shutil.rmtree(target, ignore_errors=True)
            draft.chmod(0o755)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        if go.private_caches:
            _remove_module_cache(go.private_caches)
        return binaries


def build_environment(go: Go) -> dict[str, str]:
    # GOTOOLCHAIN=local: a compiler is never fetched by surprise. GOFLAGS of the machine may ask for -mod=vendor.
    return {**os.environ, **go.environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


def linker_flags(version: str) -> str:
    """Without these every component calls itself v0.0.0-master and clients draw wrong conclusions."""
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    settings = [f"-X {package}.{key}={value}" for package in VERSION_PACKAGES for key, value in values.items()]
    return " ".join(["-s", "-w", *settings])


def _build(output: Path, *, go: Go, progress: Progress) -> None:
    version = kubernetes_version()
    progress.milestone(
        f"building Kubernetes {version} with {go.version}: once, about 5 minutes on two cores, 4 GB of disk"
    )
    environment = build_environment(go)
    began, used = time.monotonic(), _children_cpu_seconds()
    packages = [".", f"./{PAUSE}"]
    total = _count_packages(packages, go=go, environment=environment, progress=progress)
    command = [str(go.executable), "build", "-v", "-trimpath", "-ldflags", linker_flags(version)]
    _run_with_progress(
        [*command, "-o", f"{output}/", *packages], total=total, environment=environment, progress=progress
    )
    figures = {
        "kubernetes": version,
        "go": go.version,
        "wall_seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(_children_cpu_seconds() - used, 1),
        "bytes": sum(path.stat().st_size for path in output.iterdir()),
    }
    (output / "build.json").write_text(json.dumps(figures) + "\n")
    progress.milestone(f"built in {figures['wall_seconds']} s, {figures['cpu_seconds']} s of CPU")


def _count_packages(packages: list[str], *, go: Go, environment: dict[str, str], progress: Progress) -> int:
    """How many packages there are in all; fetches the modules on the way."""
    progress.update("fetching Go modules")
    answer = subprocess.run(
        [go.executable, "list", "-deps", *packages],
        cwd=MODULE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise _failure("the Go modules could not be fetched", answer.stderr.splitlines())
    return len(answer.stdout.splitlines())


def _run_with_progress(command: list[str], *, total: int, environment: dict[str, str], progress: Progress) -> None:
    said: list[str] = []
    compiled = 0
    process = subprocess.Popen(command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            text = line.strip()
            said.append(text)
            if " " not in text:
                compiled += 1
            linking = " (linking)" if compiled >= total - 2 else ""
            progress.update(f"{compiled} of at most {total} packages compiled{linking}")
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        raise _failure("building Kubernetes failed", [text for text in said if " " in text])


def _failure(problem: str, lines: list[str]) -> RigError:
    last = "\n  ".join(line for line in lines[-6:] if line)
    problem = f"{problem}:\n  {last}"
    if any(sign in line for line in lines for sign in NETWORK_SIGNS):
        return CannotRunError(
            problem,
            fix="make the Go module proxy reachable (GOPROXY), or set RIG_BIN to a directory with the binaries",
        )
    if any("no space left" in line for line in lines):
        return CannotRunError(problem, fix="free 4 GB of disk, or point GOCACHE and XDG_CACHE_HOME to a larger one")
    return RigError(problem, fix="read the message above; `python -m rig build` tries again")


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _remove_module_cache(directory: Path) -> None:
    # Go makes its module cache read-only.
    for path in directory.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(directory)
