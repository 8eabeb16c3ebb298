"""Where things are: which address a route listens on, and which servers stand behind a Service.

A RunConfig says what a route is, not where the proxy runs. In a pod, routes listen as the RunConfig says and Services
are looked up in the API server. In local mode one proxy serves all servers, and a file says both:

    {
      "listen": {"<route name>": "127.0.0.1:7001"},
      "endpoints": {"<namespace>/<service>": [{"address": "127.0.0.1:40123", "pod": "x", "uid": "..."}]},
      "attach": {"<namespace>/<pod>": {"socket": "../run/x/stdio.sock", "pod": "x", "uid": "..."}}
    }

A route that the file gives no address to is not served. The file is read again when it changes; one that cannot be used
leaves the last good one in force.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from fairway.api.runconfig import Attach, Listen, Route
from fairway.proxy.address import Address, parse_address
from fairway.proxy.endpoints import SOCKETED, Place
from fairway.proxy.files import MAX_FILE, Fingerprint, fingerprint

Service = tuple[str, str]
"""Namespace and name."""


class Topology(Protocol):
    """Looked at whenever it says that something changed."""

    @property
    def error(self) -> str:
        """What is wrong with it at the moment; empty if nothing is."""

    def address(self, route: Route) -> Address | None:
        """Where the route listens; None if it does not listen here."""

    def places(self, service: Service, port: int) -> Collection[Place]:
        """The servers behind a Service, on that port."""

    def attached(self, attach: Attach) -> Collection[Place]:
        """Where the input and output of that pod are."""

    def follow(self, services: Collection[Service]) -> None:
        """From now on these Services matter, and no others."""

    def refresh(self) -> bool:
        """Whether something changed that only looking can tell."""

    async def start(self, on_change: Callable[[], None]) -> None: ...

    async def stop(self) -> None: ...


class StandAlone:
    """Nothing but the RunConfig: addresses in it are all there is, and Services cannot be looked up."""

    error = ""

    def __init__(self) -> None:
        self._services: Collection[Service] = ()

    def address(self, route: Route) -> Address | None:
        return listen_address(route.listen)

    def places(self, service: Service, port: int) -> Collection[Place]:  # noqa: ARG002
        return ()

    def attached(self, attach: Attach) -> Collection[Place]:
        return through_api_server(attach)

    def follow(self, services: Collection[Service]) -> None:
        self.error = ""
        if services:
            named = ", ".join(f"{namespace}/{name}" for namespace, name in sorted(services))
            self.error = f"Service {named}: endpoints of a Service need --topology kubernetes or a topology file"

    def refresh(self) -> bool:
        return False

    async def start(self, on_change: Callable[[], None]) -> None: ...

    async def stop(self) -> None: ...


def through_api_server(attach: Attach) -> Collection[Place]:
    """The pod as a cluster's API server knows it."""
    return [Place(f"attach:{attach.namespace}/{attach.pod}", attach.pod)]


def listen_address(listen: Listen) -> Address:
    return listen.host, listen.port


class FilePlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One server behind a Service."""

    address: str
    pod: str = ""
    uid: str = ""

    def __post_init__(self) -> None:
        parse_address(self.address, port_zero=False)


class FileSocket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input and output of one pod."""

    socket: str
    pod: str = ""
    uid: str = ""


class TopologyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model of the file; a contract with local mode."""

    listen: dict[str, str] = {}
    """Address by name of the route."""
    endpoints: dict[str, tuple[FilePlace, ...]] = {}
    """Servers by namespace/name of the Service."""
    attach: dict[str, FileSocket] = {}
    """Pods that speak over standard input and output, by the namespace/name that a RunConfig knows them by."""

    def __post_init__(self) -> None:
        for address in self.listen.values():
            parse_address(address)


_decoder: Final = msgspec.json.Decoder(TopologyFile)


@dataclass(slots=True)
class FileTopology:
    """The topology that a file describes."""

    path: Path
    error: str = ""
    _file: TopologyFile = field(default_factory=TopologyFile)
    _seen: Fingerprint | None = None

    def address(self, route: Route) -> Address | None:
        text = self._file.listen.get(route.name)
        return None if text is None else parse_address(text)

    def places(self, service: Service, port: int) -> Collection[Place]:  # noqa: ARG002  the file's addresses have ports
        found = self._file.endpoints.get("/".join(service), ())
        return [Place(place.address, place.pod, place.uid) for place in found]

    def attached(self, attach: Attach) -> Collection[Place]:
        found = self._file.attach.get(f"{attach.namespace}/{attach.pod}")
        return [] if found is None else [Place(f"{SOCKETED}{found.socket}", found.pod, found.uid)]

    def follow(self, services: Collection[Service]) -> None: ...

    def refresh(self) -> bool:
        now = fingerprint([self.path])
        if now == self._seen:
            return False
        self._seen = now
        try:
            if self.path.stat().st_size > MAX_FILE:
                raise ValueError(f"larger than {MAX_FILE} bytes")
            self._file = _decoder.decode(self.path.read_bytes())
        except OSError as error:
            self.error = f"{self.path.name}: {error.strerror or error}"
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.error = f"{self.path.name}: {error}"
        else:
            self.error = ""
        return True

    async def start(self, on_change: Callable[[], None]) -> None: ...

    async def stop(self) -> None: ...
