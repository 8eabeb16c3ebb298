"""What the first minute costs: `make up ARGS=--check` in a bare clone with empty caches, then again with them filled.

    python -m bench.up

CPU is that of make and everything below it. Bytes are what the machine's network interfaces received meanwhile,
loopback apart: run it when nothing else downloads. The last line is JSON; the
exit code is 1 past a budget.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.budget import finish

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    name: str
    wall_seconds: float
    cpu_seconds: float
    received_megabytes: float


def received() -> int:
    """Bytes over all interfaces but loopback and those of network namespaces."""
    total = 0
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, counters = line.split(":", 1)
        if name.strip() != "lo" and not name.strip().startswith(("fwrig", "veth", "cni")):
            total += int(counters.split()[0])
    return total


def measured(name: str, clone: Path, environment: dict[str, str]) -> Run:
    before, bytes_before, started = resource.getrusage(resource.RUSAGE_CHILDREN), received(), time.monotonic()
    done = subprocess.run(
        ["make", "up", "ARGS=--check"], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"make up failed:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(name, round(wall, 1), round(cpu, 1), round((received() - bytes_before) / 1e6, 1))


def main() -> int:
    argparse.ArgumentParser(
        prog="python -m bench.up", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory(prefix="fairway-bench-up-") as directory:
        clone, home = Path(directory) / "clone", Path(directory) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
        kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "UV_")) or k == "PATH"}
        environment = {
            **kept,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "UV_CACHE_DIR": str(home / "uv"),
        }
        environment |= {"PIP_CACHE_DIR": str(home / "pip"), "PYTHON": sys.executable if not _in_venv() else "python3"}
        runs = [measured("bare clone, empty caches", clone, environment)]
        subprocess.run(["rm", "-rf", str(clone / ".venv")], check=True)
        runs.append(measured("no environment, caches filled", clone, environment))
        runs.append(measured("environment present", clone, environment))
    print(f"{'make up ARGS=--check':<32}{'wall s':>8}{'CPU s':>8}{'MB received':>13}")
    for run in runs:
        print(f"{run.name:<32}{run.wall_seconds:>8}{run.cpu_seconds:>8}{run.received_megabytes:>13}")
    return finish("up", {"caches_filled_seconds": runs[1].wall_seconds}, {"runs": [asdict(run) for run in runs]})


def _in_venv() -> bool:
    return sys.prefix != sys.base_prefix


if __name__ == "__main__":
    sys.exit(main())
