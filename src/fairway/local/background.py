"""A `fairway up` that goes on in the background: started, waited for, and stopped from another process."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairway.local import control
from fairway.local.statedir import InUse, StateDirectory, shown_path
from fairway.local.up import Up

_LOOK_EVERY = 0.1
_STOPPED_WITHIN = 30.0


def start(up: Up) -> int:
    """0 once everything is ready, 1 if something is not in time or never will be, 2 if it did not start."""
    if control.is_running(up.state):
        print(  # noqa: T201
            f"fairway up: one runs in {shown_path(up.state)} already; "
            "`fairway apply` adds to it, `fairway down` stops it",
            file=sys.stderr,
        )
        return 2
    log = up.state / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as output:
        process = subprocess.Popen(_command(up), stdout=output, stderr=output, start_new_session=True)
    deadline = time.monotonic() + up.timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.stderr.write(log.read_text(errors="replace"))
            return process.returncode or 2
        servers = _servers(up.state)
        if servers and all(server.get("ready") or server.get("hopeless") for server in servers.values()):
            break
        time.sleep(_LOOK_EVERY)
    servers = _servers(up.state)
    waiting = [name for name, server in sorted(servers.items()) if not server.get("ready")]
    for name, server in sorted(servers.items()):
        state = str(server.get("url")) if server.get("ready") else f"not ready: {server.get('message')}"
        print(f"{name.removeprefix('default/')}  {state}")  # noqa: T201
    print(f"in the background as process {process.pid}; log {shown_path(log)}; fairway down stops it")  # noqa: T201
    return 1 if waiting or not servers else 0


def stop(state: Path) -> bool:
    """Ends the `up` of this directory, and what a killed one left behind; False if there was nothing to end.

    Raises TimeoutError if it does not come to an end.
    """
    asked = False
    with suppress(control.NotRunning):
        control.ask(state, {"do": "stop"})
        asked = True
    if not (state / "lock").exists():
        return asked
    deadline = time.monotonic() + _STOPPED_WITHIN
    while True:
        try:
            with StateDirectory(state) as held:  # on entry, leftovers are ended
                return asked or held.ended_leftovers
        except InUse as in_use:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{in_use}; it did not stop within {_STOPPED_WITHIN:g} s") from None
            time.sleep(_LOOK_EVERY)


def _servers(state: Path) -> Mapping[str, Mapping[str, Any]]:
    with suppress(OSError, ValueError, KeyError, AttributeError):
        return dict(json.loads((state / "servers.json").read_text())["servers"])
    return {}


def _command(up: Up) -> list[str]:
    words = [sys.executable, "-m", "fairway", "up", "--port-base", str(up.port_base), "--state-dir", str(up.state)]
    for file in up.files:
        words += ["--file", file]
    return [*words, *(["--watch"] if up.watch else [])]
