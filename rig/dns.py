"""The cluster's name server: answers for Services and pods of headless Services from a live watch of the API.

It runs in a pod, with nothing but the standard library. `Zone` and `answer` are pure; threads feed the zone from two
watches, and one datagram socket asks it. What is not in cluster.local does not exist.
"""

import argparse
import asyncio
import contextlib
import http.client
import ipaddress
import json
import logging
import os
import random
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

DOMAIN = "cluster.local"
TIME_TO_LIVE = 5
# What fits into the 512 bytes that every resolver takes over UDP.
MOST_ADDRESSES = 25
TYPE_A, TYPE_CNAME, CLASS_IN = 1, 5, 1
NO_ERROR, FORMAT_ERROR, NO_SUCH_NAME, NOT_IMPLEMENTED = 0, 1, 3, 4
AUTHORITATIVE, RESPONSE, TRUNCATED, RECURSION_DESIRED = 0x0400, 0x8000, 0x0200, 0x0100
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
RETRY_SECONDS = 1.0
Object = Mapping[str, Any]

log = logging.getLogger("dns")


@dataclass(frozen=True)
class Service:
    """What a name server has to know of a Service."""

    address: str
    external_name: str = ""

    @classmethod
    def of(cls, manifest: Object) -> "Service":
        spec = manifest.get("spec", {})
        address = spec.get("clusterIP", "")
        return cls(
            address=address if address != "None" else "",
            external_name=spec.get("externalName", "") if spec.get("type") == "ExternalName" else "",
        )


@dataclass(frozen=True)
class Endpoints:
    """One EndpointSlice: whose it is, the addresses that are ready, and those of pods with a name of their own."""

    service: str
    addresses: tuple[str, ...]
    hostnames: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, manifest: Object) -> "Endpoints":
        metadata = manifest["metadata"]
        name = metadata.get("labels", {}).get("kubernetes.io/service-name", "")
        addresses: list[str] = []
        hostnames: list[tuple[str, str]] = []
        for endpoint in manifest.get("endpoints") or []:
            # Unset means ready; a Service that publishes all marks all as ready.
            if manifest.get("addressType") != "IPv4" or endpoint.get("conditions", {}).get("ready") is False:
                continue
            addresses += endpoint["addresses"]
            hostname = endpoint.get("hostname")
            hostnames += [(hostname or address.replace(".", "-"), address) for address in endpoint["addresses"]]
        return cls(service=f"{name}.{metadata['namespace']}", addresses=tuple(addresses), hostnames=tuple(hostnames))


@dataclass(frozen=True)
class Found:
    """A name that exists, with its addresses or the name that it stands for."""

    addresses: tuple[str, ...] = ()
    alias: str = ""


@dataclass
class Zone:
    """Everything under cluster.local. Keys are `name.namespace`, of Services and of EndpointSlices."""

    services: dict[str, Service] = field(default_factory=dict)
    slices: dict[str, Endpoints] = field(default_factory=dict)

    def put_service(self, key: str, manifest: Object | None) -> None:
        if manifest is None:
            self.services.pop(key, None)
        else:
            self.services[key] = Service.of(manifest)

    def put_slice(self, key: str, manifest: Object | None) -> None:
        if manifest is None:
            self.slices.pop(key, None)
        else:
            self.slices[key] = Endpoints.of(manifest)

    def find(self, name: str) -> Found | None:
        """What there is at that name; None if there is no such name."""
        labels = name.lower().rstrip(".").split(".")
        if labels[-2:] != DOMAIN.split("."):
            return None
        rest = labels[:-2]
        if not rest:
            return Found()
        if rest[-1] == "pod":
            return self._pod(rest[:-1])
        return self._service(rest[:-1]) if rest[-1] == "svc" else None

    def _service(self, labels: list[str]) -> Found | None:
        if len(labels) < 2:
            namespaces = {key.partition(".")[2] for key in self.services}
            return Found() if not labels or labels[0] in namespaces else None
        key = ".".join(labels[-2:])
        service = self.services.get(key)
        if service is None:
            return None
        parts = [part for part in self.slices.values() if part.service == key]
        if len(labels) == 2:
            if service.external_name:
                return Found(alias=service.external_name)
            return Found(
                (service.address,) if service.address else _unique(a for part in parts for a in part.addresses)
            )
        if service.address or len(labels) > 3:
            return None
        named = _unique(address for part in parts for name, address in part.hostnames if name == labels[0])
        return Found(named) if named else None

    @staticmethod
    def _pod(labels: list[str]) -> Found | None:
        """`10-1-2-3.namespace.pod`: the address is in the name."""
        if len(labels) != 2:
            return Found() if len(labels) < 2 else None
        try:
            return Found((str(ipaddress.IPv4Address(labels[0].replace("-", "."))),))
        except ValueError:
            return None


def _unique(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(addresses))


def answer(query: bytes, zone: Zone, *, shuffle: Callable[[list[str]], None] = random.shuffle) -> bytes | None:
    """The reply to one datagram; None for what is no query and deserves none."""
    if len(query) < 12:
        return None
    identity, flags, questions = struct.unpack_from(">HHH", query)
    if flags & RESPONSE:
        return None
    echoed = flags & (RECURSION_DESIRED | 0x7800)
    if flags & 0x7800:
        return struct.pack(">6H", identity, RESPONSE | echoed | NOT_IMPLEMENTED, 0, 0, 0, 0)
    try:
        name, end = read_name(query, 12)
        kind, class_ = struct.unpack_from(">HH", query, end)
        if questions != 1:
            raise ValueError("one question a query")
    except (ValueError, struct.error, IndexError):
        return struct.pack(">6H", identity, RESPONSE | echoed | FORMAT_ERROR, 0, 0, 0, 0)
    found = zone.find(name) if class_ == CLASS_IN else None
    code = NO_SUCH_NAME if found is None else NO_ERROR
    records, cut = _records(found or Found(), kind, shuffle)
    flags = RESPONSE | AUTHORITATIVE | echoed | code | (TRUNCATED if cut else 0)
    header = struct.pack(">6H", identity, flags, 1, len(records), 0, 0)
    return header + query[12 : end + 4] + b"".join(records)


def _records(found: Found, kind: int, shuffle: Callable[[list[str]], None]) -> tuple[list[bytes], bool]:
    if found.alias:
        return [_record(TYPE_CNAME, write_name(found.alias))], False
    if kind != TYPE_A:
        return [], False
    addresses = list(found.addresses)
    shuffle(addresses)
    return [_record(TYPE_A, socket.inet_aton(a)) for a in addresses[:MOST_ADDRESSES]], len(addresses) > MOST_ADDRESSES


def _record(kind: int, data: bytes) -> bytes:
    # 0xC00C: the name is the one at byte 12, the question's.
    return struct.pack(">HHHIH", 0xC00C, kind, CLASS_IN, TIME_TO_LIVE, len(data)) + data


def question(name: str, *, kind: int = TYPE_A, identity: int | None = None) -> bytes:
    """One query, as a resolver sends it."""
    number = secrets.randbelow(1 << 16) if identity is None else identity
    header = struct.pack(">6H", number, RECURSION_DESIRED, 1, 0, 0, 0)
    return header + write_name(name) + struct.pack(">HH", kind, CLASS_IN)


def read_name(message: bytes, at: int) -> tuple[str, int]:
    """The name at that place and the place behind it. A question is never compressed."""
    labels = []
    while length := message[at]:
        if length > 63 or at + 1 + length >= len(message):
            raise ValueError("a label that is too long")
        labels.append(message[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), at + 1


def write_name(name: str) -> bytes:
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


class Watch:
    """One collection, listed and then watched in a thread of its own, for ever."""

    def __init__(self, path: str, put: Callable[[str, Object | None], None]) -> None:
        self._path = path
        self._put = put
        self._known: set[str] = set()
        self.synced = threading.Event()

    def run(self) -> None:
        while True:
            try:
                self._follow(self._list())
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                log.warning("watch of %s: %s: %s", self._path, type(error).__name__, error)
                time.sleep(RETRY_SECONDS)

    def _list(self) -> str:
        with contextlib.closing(_connection()) as connection:
            listed = json.load(_get(connection, self._path))
        present = {_key(item): item for item in listed["items"]}
        for key in self._known - present.keys():
            self._put(key, None)
        for key, item in present.items():
            self._put(key, item)
        self._known = set(present)
        self.synced.set()
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        """Returns when the list has to be read again."""
        while True:
            with contextlib.closing(_connection()) as connection:
                path = f"{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
                for line in _get(connection, path):
                    event = json.loads(line)
                    item = event["object"]
                    if event["type"] == "ERROR":
                        log.info("watch of %s ended: %s", self._path, item.get("message"))
                        return
                    version = item["metadata"]["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        continue
                    gone = event["type"] == "DELETED"
                    (self._known.discard if gone else self._known.add)(_key(item))
                    self._put(_key(item), None if gone else item)


def _key(item: Object) -> str:
    return f"{item['metadata']['name']}.{item['metadata']['namespace']}"


def _connection() -> http.client.HTTPSConnection:
    tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    # Bookmarks come every minute; a connection that is silent for longer is dead.
    return http.client.HTTPSConnection(host, port, context=tls, timeout=150)


def _get(connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
    # Read every time: the kubelet replaces the token before it expires.
    token = (SERVICE_ACCOUNT / "token").read_text()
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise OSError(f"{response.status} {response.read()[:300].decode(errors='replace')}")
    return response


class Server(asyncio.DatagramProtocol):
    """The socket that resolvers ask."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is not declared as one in Python 3.11.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        reply = answer(data, self._zone)
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)


async def serve(*, address: str, port: int, ready_port: int) -> None:
    zone = Zone()
    loop = asyncio.get_running_loop()

    def in_loop(put: Callable[[str, Object | None], None]) -> Callable[[str, Object | None], None]:
        def hand_over(key: str, item: Object | None) -> None:
            loop.call_soon_threadsafe(put, key, item)

        return hand_over

    watches = [Watch(SERVICES, in_loop(zone.put_service)), Watch(SLICES, in_loop(zone.put_slice))]
    for watch in watches:
        threading.Thread(target=watch.run, daemon=True).start()

    async def tell_ready(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        status = "200 OK" if all(watch.synced.is_set() for watch in watches) else "503 Service Unavailable"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    await loop.create_datagram_endpoint(lambda: Server(zone), local_addr=(address, port))
    ready = await asyncio.start_server(tell_ready, address, ready_port)
    log.info("answering for %s on %s:%s", DOMAIN, address, port)
    await ready.serve_forever()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m rig.dns", description="the rig's name server, in its pod")
    parser.add_argument("--address", default="0.0.0.0")  # noqa: S104  the pod's own address
    parser.add_argument("--port", type=int, default=53)
    parser.add_argument("--ready-port", type=int, default=8181)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    asyncio.run(serve(address=options.address, port=options.port, ready_port=options.ready_port))


if __name__ == "__main__":
    main(sys.argv[1:])
