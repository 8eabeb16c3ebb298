"""Programs from npm at pinned versions, with pinned hashes, installed once into the user's cache."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
OLDEST_NODE = (22, 19)


class UnavailableError(Exception):
    """The programs cannot be had here; the message says what is missing."""


@dataclass(frozen=True)
class Package:
    """An installed package and the node that runs it."""

    node: Path
    modules: Path

    def command(self, script: str, *arguments: str) -> list[str]:
        """`script` is a path under node_modules."""
        return [str(self.node), str(self.modules / script), *arguments]


def package(name: str) -> Package:
    """Installs on first use. `name` is a directory here that holds package.json and package-lock.json."""
    found = modules(name)
    return Package(_node(found), found)


def modules(name: str) -> Path:
    """The same for programs that need no node."""
    source = HERE / name
    lock = (source / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairway" / "npm"
    home = cache / f"{name}-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{name}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # two test sessions may start at the same time
            if not home.is_dir():
                _install(source, home)
    return home / "node_modules"


def _install(source: Path, home: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not installed")
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        place = Path(scratch) / "package"
        place.mkdir()
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, place)
        # no scripts: nothing here needs one, and they would run whatever a dependency likes
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode:
            raise UnavailableError(f"npm ci failed: {' '.join(done.stderr.split())[-300:]}")
        place.rename(home)


def _node(modules: Path) -> Path:
    for bundled in sorted(modules.glob("node-*/bin/node")):
        bundled.chmod(0o755)
        return bundled
    found = shutil.which("node")
    if found is not None:
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
        if version >= OLDEST_NODE:
            return Path(found)
    raise UnavailableError(f"node {'.'.join(map(str, OLDEST_NODE))} or newer is not installed")
