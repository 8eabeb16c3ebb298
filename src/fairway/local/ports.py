"""Ports on the loopback interface: a lasting one for each server, and free ones for what runs behind it."""

import json
import os
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_PORT = 7001
LAST_PORT = 65535
HOST = "127.0.0.1"
BEHIND = range(20000, 30000)
"""For what only the proxy dials. Below the range from which systems take source ports: there, somebody's outgoing
connection may sit on a server's port, and a dial to a port that nobody listens on may reach itself."""


class NoPortLeft(Exception):
    """Every port from the base upwards is taken."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one server listens; `wanted` differs from `port` when another program holds the port it used to have."""

    port: int
    wanted: int

    @property
    def moved(self) -> bool:
        return self.port != self.wanted


def assign(
    names: Iterable[str], reserved: Mapping[str, int], *, base: int, is_free: Callable[[int], bool]
) -> dict[str, Assignment]:
    """A port for each name, in order of name; one with a reservation gets that port again unless it is taken.

    A port reserved for a server that is not there now stays reserved: it may come back, and a client remembers it.
    """
    assignments: dict[str, Assignment] = {}
    used = set(reserved.values())
    for name in sorted(names):
        wanted = reserved.get(name)
        if wanted is not None and wanted < base:
            wanted = None  # the user asked for another range since
        if wanted is not None and is_free(wanted):
            assignments[name] = Assignment(wanted, wanted)
            continue
        port = next((p for p in range(base, LAST_PORT + 1) if p not in used and is_free(p)), None)
        if port is None:
            raise NoPortLeft(f"no free port from {base} on for {name}; choose another --port-base")
        used.add(port)
        assignments[name] = Assignment(port, wanted or port)
    return assignments


def is_free(port: int) -> bool:
    """Whether a server could listen on the port right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class PortBook:
    """Remembers which port each server had, in a file, and hands out free ones for everything else."""

    def __init__(self, path: Path, *, base: int = FIRST_PORT) -> None:
        self._path = path
        self._base = base
        self._reserved = _read(path)
        self._assigned: dict[str, Assignment] = {}
        self._handed_out: set[int] = set()

    def assign(self, names: Iterable[str]) -> dict[str, Assignment]:
        """The port of each of these servers; what was assigned before in this run stays."""
        wanted = set(names)
        missing = [name for name in wanted if name not in self._assigned]
        if missing:
            taken = {a.port for a in self._assigned.values()} | self._handed_out
            self._assigned |= assign(
                missing, self._reserved, base=self._base, is_free=lambda port: port not in taken and is_free(port)
            )
            self._reserved |= {name: self._assigned[name].wanted for name in missing}
            self._write()
        return {name: self._assigned[name] for name in sorted(wanted)}

    def any_free(self) -> int:
        """A port that nothing uses and that was not handed out in this run."""
        known = self._handed_out | set(self._reserved.values())
        start = random.randrange(len(BEHIND))  # noqa: S311  so that two runs side by side seldom try the same
        for offset in range(len(BEHIND)):
            port = BEHIND.start + (start + offset) % len(BEHIND)
            if port not in known and is_free(port):
                self._handed_out.add(port)
                return port
        raise NoPortLeft(f"no free port from {BEHIND.start} to {BEHIND.stop - 1}")

    def give_back(self, ports: Iterable[int]) -> None:
        self._handed_out.difference_update(ports)

    def _write(self) -> None:
        scratch = self._path.with_suffix(".new")
        scratch.write_text(json.dumps(self._reserved, indent=2, sort_keys=True) + "\n")
        os.replace(scratch, self._path)  # noqa: PTH105  atomic, and the call is the same


def _read(path: Path) -> dict[str, int]:
    """What was remembered; a file that is missing or spoilt only costs the old numbers."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    ports = {k: v for k, v in content.items() if isinstance(v, int) and not isinstance(v, bool) and 0 < v <= LAST_PORT}
    seen: set[int] = set()
    return {k: v for k, v in sorted(ports.items()) if not (v in seen or seen.add(v))}  # type: ignore[func-returns-value]
