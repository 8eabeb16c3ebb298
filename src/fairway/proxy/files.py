"""RunConfig files: read, read again when they change, and the last good one kept when the newest cannot be used."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairway.api.proxystatus import Config, ConfigState
from fairway.api.runconfig import InvalidRunConfig, Route, RunConfig, encode, parse
from fairway.proxy.address import InvalidAddress, parse_address

MAX_FILE: Final = 8 << 20
NOT_READ: Final = Config(state=ConfigState.MISSING, error="not read yet")
GOOD: Final = Config(state=ConfigState.OK)

Fingerprint = tuple[tuple[str, int, int, int], ...]


def fingerprint(paths: list[Path]) -> Fingerprint:
    """What `stat` says of the files behind all links: changes when a mounted ConfigMap is swapped, too."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        found.append((str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A route and the hash that the control plane knows it by."""

    route: Route
    hash: str


@dataclass(slots=True)
class ConfigFiles:
    """All RunConfigs below one path: a file, or a directory of which every *.json counts.

    A file of a directory that goes away takes its routes with it. A single file that goes away is a mistake: what it
    said last stays in force.
    """

    path: Path
    routes: dict[str, Loaded] = field(default_factory=dict)
    """What is in force, by name."""
    state: Config = NOT_READ
    _good: dict[str, dict[str, Loaded]] = field(default_factory=dict)
    _seen: Fingerprint | None = None

    def refresh(self) -> bool:
        """Whether anything changed since the last look."""
        paths = self._paths()
        now = fingerprint(paths)
        if now == self._seen:
            return False
        self._seen = now
        self._read(paths)
        return True

    def _paths(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        try:
            return sorted(entry for entry in self.path.iterdir() if entry.suffix == ".json")
        except OSError:
            return []

    def _read(self, paths: list[Path]) -> None:
        errors: list[str] = []
        present = [path for path in paths if path.exists()]
        if self.path.is_dir():
            self._good = {name: routes for name, routes in self._good.items() if Path(name) in present}
        for path in present:
            try:
                self._good[str(path)] = _load(path)
            except InvalidRunConfig as error:
                errors.append(f"{path.name}: {error}")
        self.routes = {}
        taken: dict[str, str] = {}
        for name, routes in sorted(self._good.items()):
            for route_name, loaded in routes.items():
                if route_name in self.routes:
                    errors.append(f"{Path(name).name}: route {route_name} is in {taken[route_name]} already")
                else:
                    self.routes[route_name] = loaded
                    taken[route_name] = Path(name).name
        if errors:
            self.state = Config(state=ConfigState.INVALID, error="; ".join(errors))
        elif not present:
            self.state = Config(state=ConfigState.MISSING, error=f"{self.path}: there is no RunConfig")
        else:
            self.state = GOOD


def _load(path: Path) -> dict[str, Loaded]:
    try:
        if path.stat().st_size > MAX_FILE:
            raise InvalidRunConfig(f"larger than {MAX_FILE} bytes")
        config, hashes = parse(path.read_bytes())
    except OSError as error:
        raise InvalidRunConfig(error.strerror or str(error)) from None
    for route in config.routes:
        for address in route.upstream.addresses:
            try:
                parse_address(address, port_zero=False)
            except InvalidAddress as error:
                raise InvalidRunConfig(f"route {route.name}: upstream.addresses: {error}") from None
    return {route.name: Loaded(route, hashes[route.name]) for route in config.routes}


@dataclass(slots=True)
class FixedConfig:
    """A RunConfig that was given on the command line."""

    config: RunConfig
    state: Config = GOOD
    routes: dict[str, Loaded] = field(default_factory=dict)

    def refresh(self) -> bool:
        if self.routes:
            return False
        config, hashes = parse(encode(self.config))
        self.routes = {route.name: Loaded(route, hashes[route.name]) for route in config.routes}
        return True
