"""A Python package with its dependencies in an environment of its own, made by uv."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

_LAST_WORDS = 3


class CannotFetch(Exception):
    """The package cannot be had or has no such program; the message says why."""


@dataclass(frozen=True, slots=True)
class PythonPackage:
    """One package in one exact version; `name` may have extras in brackets."""

    name: str
    version: str

    @property
    def interpreter(self) -> tuple[str, ...]:
        """What goes before the program; this one knows its own."""
        return ()

    def fetch(self, into: Path, *, program: str | None, environ: Mapping[str, str]) -> None:
        """Leaves `into`/run, which starts the program; what was there before is replaced."""
        environment = into / "env"
        shutil.rmtree(environment, ignore_errors=True)
        into.mkdir(parents=True, exist_ok=True)
        self._uv(["venv", "--quiet", "--no-project", "--python", sys.executable, str(environment)], environ)
        python = environment / "bin" / "python"
        self._uv(["pip", "install", "--quiet", "--python", str(python), f"{self.name}=={self.version}"], environ)
        link = into / "run"
        link.unlink(missing_ok=True)
        link.symlink_to(environment / "bin" / self._program(environment, program))

    def _uv(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        command = [str(uv()), *arguments]
        # the server's output may be somebody's protocol: nothing of this goes there
        done = subprocess.run(
            command,
            env={**environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise CannotFetch(f"package {self.name} {self.version}: {' '.join(said[-_LAST_WORDS:]) or 'uv failed'}")

    def _program(self, environment: Path, wanted: str | None) -> str:
        programs = _programs(environment, self.name)
        own = [name for name in programs if _canonical(name) == _canonical(self.name)]
        chosen = wanted or next(iter(own), None) or (programs[0] if len(programs) == 1 else None)
        if chosen in programs:
            return chosen
        known = f"it has {', '.join(programs)}" if programs else "it has none"
        what = f"there is no program {chosen}" if chosen else "which program is meant"
        raise CannotFetch(f"package {self.name} {self.version}: {what}: {known}; name one in spec.command")


def uv() -> Path:
    """The uv that came with us."""
    from uv import find_uv_bin

    return Path(os.fsdecode(find_uv_bin()))


def _programs(environment: Path, package: str) -> list[str]:
    """Names of the programs that the package itself brings, not those of its dependencies."""
    (site,) = environment.glob("lib/python*/site-packages")
    found = (d for d in distributions(path=[str(site)]) if _canonical(_name(d)) == _canonical(package))
    entries = (entry for distribution in found for entry in distribution.entry_points)
    return sorted(entry.name for entry in entries if entry.group == "console_scripts")


def _name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()
