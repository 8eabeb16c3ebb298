"""What the checks judge: plain values, gathered once. Secrets are not among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Obj = Mapping[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the program runs."""

    now: datetime = EPOCH
    open_files: int = 1 << 20
    """How many a process may have open."""
    free_bytes: int = 1 << 40
    """On the disk of the state directory."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Programs in PATH that servers may need, by name, with what they say of their version."""
    containers: str = ""
    """The container runtime that works; empty if none does."""
    containers_said: str = ""
    """Why one that is installed does not work."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables about HTTP proxies, by their names in lower case."""
    localhost: tuple[str, ...] = ("127.0.0.1",)
    """What `localhost` means here."""


@dataclass(frozen=True, slots=True)
class Laptop:
    """The state directory of `fairway up`, and the one that runs in it."""

    directory: str = ".fairway"
    writable: bool = True
    running: bool = True
    version: str = ""
    """Of the one that runs."""
    own_version: str = ""
    holder: str = ""
    """Process that holds the directory but does not answer."""
    leftovers: tuple[int, ...] = ()
    """Processes of a run that is gone."""
    ports_problem: str = ""
    """What is wrong with the file that remembers ports."""
    newest_file: datetime = EPOCH
    token_problem: str = ""
    """What is wrong with the token for local servers."""
    errors: tuple[str, ...] = ()
    """The last errors that `up` itself logged."""
    listening_elsewhere: tuple[str, ...] = ()
    """Addresses other than loopback that processes of this run listen on."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as the user's rights let it be seen. None, or missing from a mapping, means: not to be seen."""

    title: str = ""
    problem: tuple[str, str] | None = None
    """Why it could not be looked at: unreachable, login, or forbidden; and the words for it."""
    version: tuple[int, int] | None = None
    skew: float = 0.0
    """Seconds by which its clock is ahead of ours."""
    client_certificate_until: datetime | None = None
    crds: Mapping[str, Obj | None] = field(default_factory=dict)
    """Every CRD that this version has, as it is there."""
    wanted_crds: Mapping[str, Obj] = field(default_factory=dict)
    operators: tuple[Obj, ...] | None = None
    """Deployments of the operator."""
    operator_pods: tuple[Obj, ...] = ()
    lease: Obj | None = None
    rules: tuple[Obj, ...] | None = None
    """What the operator may do."""
    wanted_rules: tuple[Obj, ...] = ()
    nodes: tuple[Obj, ...] | None = None
    resource_metrics: bool | None = None
    """Whether autoscalers can read CPU and memory."""
    certificates: Mapping[str, datetime | str] = field(default_factory=dict)
    """Of TLS Secrets that servers name: namespace/name, with the end of the certificate, or what is wrong with it."""
    ingress_classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything. What was not looked at is None."""

    machine: Machine = Machine()
    laptop: Laptop | None = None
    cluster: Cluster | None = None
    servers: tuple[Obj, ...] = ()
    tool_configs: tuple[Obj, ...] = ()
    pods: tuple[Obj, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The last lines that each troubled server wrote, by namespace/name."""


def key_of(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def title_of(obj: Obj) -> str:
    """As a person would name it."""
    return key_of(obj).removeprefix("default/")


def condition(obj: Obj, name: str) -> Obj:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == name), {})


def is_fresh(obj: Obj) -> bool:
    """Whether the status is about the object as it is now."""
    return bool((obj.get("status") or {}).get("observedGeneration", 0) >= obj["metadata"].get("generation", 0))


def time_of(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return EPOCH
