"""A container of the cluster as a command of docker or podman."""

import functools
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.local import pod as pods

RUNTIMES = ("docker", "podman")
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Box:
    """One run of an image. Values of variables travel in the environment of the client, never in its arguments."""

    runtime: str
    name: str
    image: str

    def command(
        self,
        container: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        ports: Mapping[int, int],
        mounts: Mapping[str, Path],
    ) -> list[str]:
        """In the foreground, gone when it ends, and reached on loopback only."""
        words = [self.runtime, "run", "--rm", "--init", "--name", self.name, "--pull", _pull(container)]
        if container.get("stdin"):
            words.append("--interactive")
        for variable in environment:
            words += ["--env", variable]
        for inside, outside in sorted(ports.items()):
            words += ["--publish", f"{pods.HOST}:{outside}:{inside}"]
        read_only = {m["mountPath"].rstrip("/") for m in container.get("volumeMounts") or () if m.get("readOnly")}
        for path, directory in sorted(mounts.items()):
            words += ["--volume", f"{directory}:{path}{':ro' if path in read_only else ''}"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        command = list(container.get("command") or ())
        if command:
            words += ["--entrypoint", command[0]]
        return [*words, self.image, *command[1:], *(container.get("args") or ())]

    def remove(self) -> None:
        """Ends it, if it is still there: it is no child of ours, and a killed client leaves it running."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self.runtime, "rm", "--force", self.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=3 * _PATIENCE,
                check=False,
            )


def _pull(container: Mapping[str, Any]) -> str:
    return {"Always": "always", "Never": "never"}.get(str(container.get("imagePullPolicy")), "missing")


@functools.cache
def working_runtime() -> str:
    """The first container runtime that is installed and answers; empty if there is none."""
    for runtime in RUNTIMES:
        try:
            done = subprocess.run(
                [runtime, "version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return runtime
    return ""
