"""A package for Node with its dependencies in a directory of its own, fetched by the npm of this machine."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairway.packages.node import SCRIPT
from fairway.packages.python import CannotFetch

_LAST_WORDS = 3


@dataclass(frozen=True, slots=True)
class NodePackage:
    """One package in one exact version; `name` may have a scope."""

    name: str
    version: str

    @property
    def interpreter(self) -> tuple[str, ...]:
        return ("node",)

    def fetch(self, into: Path, *, program: str | None, environ: Mapping[str, str]) -> None:
        """Leaves `into`/run, which node starts; what was there before is replaced."""
        node = shutil.which("node", path=environ.get("PATH"))
        if node is None or shutil.which("npm", path=environ.get("PATH")) is None:
            raise CannotFetch(f"package {self.name}: it needs node and npm, and they are not on the PATH")
        shutil.rmtree(into / "node_modules", ignore_errors=True)
        words = [str(into), self.name, self.version, *([program] if program else [])]
        done = subprocess.run(
            [node, "-e", SCRIPT, "--", *words], env=dict(environ), capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise CannotFetch("\n".join(said[-_LAST_WORDS:]) or f"package {self.name}: node failed")
