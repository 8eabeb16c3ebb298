"""What the first minute costs: `make up ARGS=--check` in a bare clone with empty caches, then again with them filled.

    python -m bench.up

After that, five starts of the quickstart: how long until every server in it is Ready, seen from outside.

CPU is that of make and everything below it. Bytes are what the machine's network interfaces received meanwhile,
loopback apart: run it when nothing else downloads. The last line is JSON; the
exit code is 1 past a budget.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.budget import finish

REPOSITORY = Path(__file__).parents[1]
STARTS = 5
LOOK_EVERY = 0.02
PATIENCE = 60.0


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


def seconds_until_ready(clone: Path, environment: dict[str, str]) -> float:
    """From the start of `fairway up` to the moment in which all that it says is Ready; then it is stopped."""
    told = clone / ".fairway" / "servers.json"
    told.unlink(missing_ok=True)
    started = time.monotonic()
    command = [str(clone / ".venv" / "bin" / "fairway"), "up", "-f", "examples/quickstart"]
    process = subprocess.Popen(
        command, cwd=clone, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not _all_ready(told):
            if process.poll() is not None or time.monotonic() - started > PATIENCE:
                sys.exit(f"the quickstart did not become ready within {PATIENCE:g} s")
            time.sleep(LOOK_EVERY)
        return time.monotonic() - started
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _all_ready(told: Path) -> bool:
    try:
        servers = json.loads(told.read_text())["servers"]
    except (OSError, ValueError):
        return False
    return bool(servers) and all(server["ready"] for server in servers.values())


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
        ready = [seconds_until_ready(clone, environment) for _ in range(STARTS)]
    print(f"{'make up ARGS=--check':<32}{'wall s':>8}{'CPU s':>8}{'MB received':>13}")
    for run in runs:
        print(f"{run.name:<32}{run.wall_seconds:>8}{run.cpu_seconds:>8}{run.received_megabytes:>13}")
    figures = {"caches_filled_seconds": runs[1].wall_seconds, "ready_seconds": round(statistics.median(ready), 2)}
    print(f"all of the quickstart Ready, median of {STARTS}: {figures['ready_seconds']} s")
    return finish("up", figures, {"runs": [asdict(run) for run in runs], "ready": [round(s, 2) for s in ready]})


def _in_venv() -> bool:
    return sys.prefix != sys.base_prefix


if __name__ == "__main__":
    sys.exit(main())
