"""Where one rig keeps what it needs: the paths, and the few numbers that stay the same while it lives."""

import contextlib
import fcntl
import ipaddress
import json
import os
import random
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rig.errors import RigError

REPOSITORY = Path(__file__).resolve().parent.parent
# Outside the kernel's range for outgoing connections, so that nothing takes a port between the choice and its use.
PORT_RANGE = range(20000, 30000)
# The second byte of 10.x.0.0/16; low numbers are what people and clouds use most.
BLOCK_RANGE = range(130, 255)


@dataclass(frozen=True)
class Network:
    """The private /16 of one rig: pods, services and the link between the machine and its node."""

    block: int

    @property
    def cidr(self) -> str:
        return f"10.{self.block}.0.0/16"

    @property
    def pods(self) -> str:
        return f"10.{self.block}.0.0/24"

    @property
    def services(self) -> str:
        return f"10.{self.block}.128.0/20"

    @property
    def kubernetes_service(self) -> str:
        return f"10.{self.block}.128.1"

    @property
    def dns_service(self) -> str:
        return f"10.{self.block}.128.10"

    @property
    def host_address(self) -> str:
        return f"10.{self.block}.255.1"

    @property
    def node_address(self) -> str:
        return f"10.{self.block}.255.2"

    @property
    def link_prefix(self) -> int:
        return 30


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one rig's control plane."""

    apiserver: int
    etcd: int
    etcd_peer: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True)
class Settings:
    """What is decided once for a rig and remembered in `rig.json`."""

    identity: str
    network: Network
    ports: Ports
    node: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        data = json.loads(text)
        return cls(
            identity=str(data["identity"]),
            network=Network(block=int(data["network"]["block"])),
            ports=Ports(**{name: int(port) for name, port in data["ports"].items()}),
            node=bool(data["node"]),
        )

    @property
    def netns(self) -> str:
        return f"fairway-rig-{self.identity}"

    @property
    def link(self) -> str:
        """The machine's end of the link; at most 15 characters."""
        return f"fwrig-{self.identity}"

    @property
    def cgroup(self) -> str:
        return f"/fairway-rig-{self.identity}"

    @property
    def sockets(self) -> Path:
        """A directory short enough for unix sockets, which a state directory need not be."""
        return Path(f"/run/fairway-rig-{self.identity}")


@dataclass(frozen=True)
class State:
    """The directory of one rig; everything that the rig writes is under it or named in its settings."""

    root: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "State":
        return cls(root=Path(environ.get("RIG_STATE") or REPOSITORY / ".rig").absolute())

    @property
    def settings_file(self) -> Path:
        return self.root / "rig.json"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def bin(self) -> Path:
        """Where `kubectl` lies for people."""
        return self.root / "bin"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.jsonl"

    @property
    def ca_certificate(self) -> Path:
        return self.pki / "ca.crt"

    def settings(self, *, broken_is_none: bool = False) -> Settings | None:
        """The remembered settings, or None where no rig was made yet."""
        try:
            text = self.settings_file.read_text()
        except FileNotFoundError:
            return None
        try:
            return Settings.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            if broken_is_none:
                return None
            raise RigError(
                f"{self.settings_file} cannot be read ({error})", fix="python -m rig down --wipe, then python -m rig up"
            ) from None

    def remember(self, settings: Settings) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        draft = self.settings_file.with_suffix(".new")
        draft.write_text(settings.to_json())
        draft.replace(self.settings_file)


@contextlib.contextmanager
def locked(state: State) -> Iterator[None]:
    """One `up` or `down` at a time for one state directory."""
    path = state.root / "lock"
    while True:
        state.root.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever held it before may have wiped the directory, and this file with it.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return


def new_settings(*, taken: Iterable[str]) -> Settings:
    """Settings for a rig that does not exist yet, away from the networks that this machine already has."""
    return Settings(identity=secrets.token_hex(3), network=free_network(taken=taken), ports=free_ports())


def free_network(*, taken: Iterable[str]) -> Network:
    """A block that overlaps none of the given networks; by chance, so that two rigs started at once differ."""
    networks = [ipaddress.ip_network(network, strict=False) for network in taken]
    used = [network for network in networks if isinstance(network, ipaddress.IPv4Network) and network.prefixlen > 0]
    blocks = list(BLOCK_RANGE)
    random.shuffle(blocks)
    for block in blocks:
        candidate = Network(block=block)
        if not any(ipaddress.IPv4Network(candidate.cidr).overlaps(network) for network in used):
            return candidate
    raise RigError(
        "every network from 10.130.0.0/16 to 10.254.0.0/16 is in use on this machine",
        fix="python -m rig down in the directories of rigs that are no longer needed",
    )


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the components do: a port whose last connection only lingers is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  bound for an instant, to see that no address uses it
        except OSError:
            return False
        return True


def free_ports(*, is_free: Callable[[int], bool] = port_is_free) -> Ports:
    wanted = len(Ports.__dataclass_fields__)
    chosen: list[int] = []
    for port in random.sample(PORT_RANGE, 500):
        if is_free(port):
            chosen.append(port)
        if len(chosen) == wanted:
            return Ports(*chosen)
    raise RigError(f"found no {wanted} free ports between {PORT_RANGE.start} and {PORT_RANGE.stop}")


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CACHE_HOME") or ""
    # The XDG rules say that a relative path there is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "fairway" / "rig"
