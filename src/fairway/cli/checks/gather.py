"""Gathers the facts: everything that `fairway doctor` asks of the machine, of `fairway up` and of a cluster."""

import asyncio
import json
import os
import platform
import resource
import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fairway
from fairway.cli.checks.facts import EPOCH, Cluster, Facts, Laptop, Machine, Obj, condition, key_of

if TYPE_CHECKING:
    from fairway.cli.places import Place
    from fairway.cli.places.cluster import Cluster as ClusterPlace

_RUNTIMES = ("docker", "podman")
_PATIENCE = 10.0
_LINES = 40


async def machine(state: Path) -> Machine:
    """Of this machine."""
    programs = {"uv": _own_uv(), "npx": "npx", "node": "node"}
    versions = await asyncio.gather(*(_says(program, "--version") for program in programs.values()))
    containers, said = await _containers()
    return Machine(
        now=datetime.now(UTC),
        open_files=_open_files(),
        free_bytes=await asyncio.to_thread(lambda: shutil.disk_usage(_nearest(state)).free),
        programs={name: text for name, (code, text) in zip(programs, versions, strict=True) if code == 0},
        containers=containers,
        containers_said=said,
        environment={k.lower(): v for k, v in os.environ.items() if k.lower() in ("http_proxy", "no_proxy")},
        localhost=await asyncio.to_thread(_localhost),
    )


def _own_uv() -> str:
    """The one that packages are fetched with, whatever stands in PATH."""
    from fairway.packages.python import uv

    try:
        return str(uv())
    except FileNotFoundError:
        return "uv"


def _nearest(path: Path) -> Path:
    """The directory itself, or the first above it that exists."""
    return next(p for p in (path, *path.absolute().parents) if p.exists())


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def _localhost() -> tuple[str, ...]:
    with suppress(OSError):
        found = socket.getaddrinfo("localhost", None, socket.AF_INET, socket.SOCK_STREAM)
        return tuple(sorted({str(address[0]) for *_, address in found}))
    return ()


async def _says(program: str, *arguments: str) -> tuple[int, str]:
    """Exit code and first line; 127 where there is no such program."""
    path = shutil.which(program)
    if path is None:
        return 127, ""
    try:
        process = await asyncio.create_subprocess_exec(
            path, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        return 126, error.strerror or str(error)
    try:
        async with asyncio.timeout(_PATIENCE):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"{program} did not answer within {_PATIENCE:g} s"
    lines = [line.strip() for line in out.decode(errors="replace").splitlines() if line.strip()]
    return process.returncode or 0, lines[-1] if process.returncode and lines else lines[0] if lines else ""


async def _containers() -> tuple[str, str]:
    """The runtime that works, or why the one that is installed does not."""
    said = ""
    for runtime in _RUNTIMES:
        code, text = await _says(runtime, "version")
        if code == 0:
            return runtime, ""
        if code != 127:
            said = said or f"{runtime} is installed, and does not work: {text}"
    return "", said


# local mode


async def laptop(state: Path) -> Laptop | None:
    """Of a state directory, and of the `fairway up` in it; None where there is no such directory."""
    from fairway.local import control

    if not await asyncio.to_thread(state.is_dir):
        return None
    running, version = True, ""
    try:
        version = (await asyncio.to_thread(control.ask, state, {"do": "version"}))["version"]
    except control.Refused:
        pass  # one that does not know the question yet
    except (control.NotRunning, OSError):
        running = False
    return await asyncio.to_thread(_laptop, state, running, version)


def _laptop(state: Path, running: bool, version: str) -> Laptop:
    files = [p for p in state.rglob("*") if p.is_file()]
    return Laptop(
        directory=str(state),
        writable=os.access(state, os.W_OK),
        running=running,
        version=version,
        own_version=fairway.__version__,
        holder="" if running else _holder(state),
        leftovers=() if running else _leftovers(state),
        ports_problem=_ports_problem(state / "ports.json"),
        newest_file=max((_changed(p) for p in files), default=EPOCH),
        token_problem=_token_problem(state / "token") if running else "",
        errors=_errors(state / "logs" / "fairway.log"),
        listening_elsewhere=_listening_elsewhere(state) if running else (),
    )


def _token_problem(path: Path) -> str:
    """Only its times are looked at, and told."""
    import base64

    try:
        claims = path.read_text().strip().split(".")[1]
        told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        starts, ends = float(told.get("iat", 0)), float(told["exp"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return "is no token"
    now = time.time()
    return "has expired" if ends < now else "is from the future: the clock was set back" if starts > now + 60 else ""


def _changed(path: Path) -> datetime:
    with suppress(OSError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return EPOCH


def _holder(state: Path) -> str:
    """The process that has the lock and does not answer."""
    import fcntl

    try:
        with (state / "lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return file.read().strip() or "of somebody"
    except OSError:
        return ""
    return ""


def _leftovers(state: Path) -> tuple[int, ...]:
    from fairway.local.statedir import identity_of

    found = []
    with suppress(OSError):
        for note in (state / "pids").iterdir():
            if note.name.isdecimal() and (identity := note.read_text()) and identity_of(int(note.name)) == identity:
                found.append(int(note.name))
    return tuple(sorted(found))


def _ports_problem(path: Path) -> str:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"
    good = isinstance(content, dict) and all(isinstance(p, int) and 0 < p < 65536 for p in content.values())
    return "" if good else "holds something other than ports"


def _errors(path: Path) -> tuple[str, ...]:
    with suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
        return tuple(line for line in lines if "[error" in line or '"level":"error"' in line or "[critical" in line)
    return ()


def _listening_elsewhere(state: Path) -> tuple[str, ...]:
    """Linux tells which sockets a process has; elsewhere nobody looks."""
    sockets: set[str] = set()
    with suppress(OSError):
        for note in (state / "pids").iterdir():
            with suppress(OSError):
                for link in Path(f"/proc/{note.name}/fd").iterdir():
                    with suppress(OSError):
                        sockets.add(str(link.readlink()))
    found = set()
    for table, mine in (("tcp", ("0100007F",)), ("tcp6", ("00000000000000000000000001000000",))):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                address, _, port = fields[1].partition(":")
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets and address not in mine:
                    found.add(
                        f"port {int(port, 16)} of all addresses" if not int(address, 16) else f"port {int(port, 16)}"
                    )
    return tuple(sorted(found))


# a cluster


async def cluster(place: "ClusterPlace") -> Cluster:
    """Of a cluster, as far as it lets itself be asked."""
    from fairway.api.crd import crds
    from fairway.api.names import LABEL_NAME
    from fairway.controllers import access, install
    from fairway.kube.errors import Forbidden, KubeError, Unauthorized
    from fairway.kube.resource import CLUSTER_ROLE, CRD, DEPLOYMENT, LEASE, NODE, POD

    try:
        before = time.time()
        answer = await place.client.fetch("/version", accept="application/json", timeout=_PATIENCE)
        if answer.status == 401:
            return Cluster(place.title, problem=("login", f"{place.title} does not accept your credentials"))
        from fairway.cli.kinds import DEFAULT, resource_of

        try:
            await place.list(resource_of(DEFAULT), place.namespace)
        except Forbidden as error:
            return Cluster(place.title, problem=("forbidden", error.message))
        except Unauthorized as error:
            return Cluster(place.title, problem=("login", error.message))
        except KubeError as error:
            if error.status != 404:
                raise
    except KubeError as error:
        return Cluster(place.title, problem=("unreachable", str(error)))
    skew = parsedate_to_datetime(answer.headers["date"]).timestamp() - before if "date" in answer.headers else 0.0
    wanted = {crd["metadata"]["name"]: crd for crd in crds().values()}
    seen: dict[str, Obj | None] = {}
    for name in wanted:
        with suppress(KubeError):
            seen[name] = await place.get(CRD, "", name)
    operators = await _listed(place, DEPLOYMENT, labels={LABEL_NAME: install.NAME})
    home = operators[0]["metadata"]["namespace"] if operators else install.NAMESPACE
    in_cluster = install.NAME if home == install.NAMESPACE else f"{install.NAME}-{home}"
    role = await _got(place, CLUSTER_ROLE, "", in_cluster)
    return Cluster(
        title=place.title,
        version=_version(answer.body),
        skew=skew,
        client_certificate_until=await _client_certificate(place),
        crds=seen,
        wanted_crds=wanted,
        operators=operators,
        operator_pods=await _listed(place, POD, namespace=home, labels={LABEL_NAME: install.NAME}) or (),
        lease=await _got(place, LEASE, home, install.NAME),
        rules=None if role is None else tuple(role.get("rules") or ()),
        wanted_rules=tuple(access.cluster_rules()),
        nodes=await _listed(place, NODE),
        resource_metrics=await _serves(place, "/apis/metrics.k8s.io/v1beta1"),
        ingress_classes=await _ingress_classes(place),
    )


async def _listed(
    place: "ClusterPlace", resource_: Any, *, namespace: str | None = None, labels: Mapping[str, str] = {}
) -> tuple[Obj, ...] | None:
    from fairway.kube.errors import KubeError

    try:
        return tuple(await place.list(resource_, namespace, labels=labels))
    except KubeError:
        return None


async def _got(place: "ClusterPlace", resource_: Any, namespace: str, name: str) -> Obj | None:
    from fairway.kube.errors import KubeError

    try:
        return await place.get(resource_, namespace, name)
    except KubeError:
        return None


async def _serves(place: "ClusterPlace", path: str) -> bool | None:
    from fairway.kube.errors import KubeError

    try:
        status = (await place.client.fetch(path, accept="application/json")).status
    except KubeError:
        return None
    return True if status == 200 else False if status in (404, 503) else None


async def _ingress_classes(place: "ClusterPlace") -> frozenset[str] | None:
    from fairway.kube.resource import Resource

    resource_ = Resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", namespaced=False)
    found = await _listed(place, resource_)
    return None if found is None else frozenset(obj["metadata"]["name"] for obj in found)


def _version(body: bytes) -> tuple[int, int] | None:
    with suppress(ValueError, KeyError, TypeError):
        told = json.loads(body)
        return int(told["major"]), int("".join(c for c in told["minor"] if c.isdigit()))
    return None


async def _client_certificate(place: "ClusterPlace") -> datetime | None:
    certificate = await place.client_certificate()
    return None if certificate is None else end_of_certificate(certificate)


def end_of_certificate(pem: bytes) -> datetime | None:
    """When the first certificate in the PEM ends; None where there is none."""
    from cryptography import x509

    with suppress(ValueError):
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    return None


async def certificates(place: "ClusterPlace", servers: Iterable[Obj]) -> dict[str, datetime | str]:
    """Of the TLS Secrets that servers name; those that we may not read are left out."""
    import base64

    from fairway.kube.errors import KubeError
    from fairway.kube.resource import SECRET

    found: dict[str, datetime | str] = {}
    for server in servers:
        for name in _tls_secrets(server["spec"]):
            namespace = server["metadata"]["namespace"]
            with suppress(KubeError, ValueError):
                secret = await place.get(SECRET, namespace, name)
                if secret is None:
                    found[f"{namespace}/{name}"] = "is not there"
                    continue
                until = end_of_certificate(base64.b64decode((secret.get("data") or {}).get("tls.crt") or ""))
                found[f"{namespace}/{name}"] = until or "has no certificate in tls.crt"
    return found


def _tls_secrets(spec: Obj) -> set[str]:
    held = [((spec.get("proxy") or {}).get("tls") or {}), ((spec.get("ingress") or {}).get("tls") or {})]
    return {str(tls["secretName"]) for tls in held if tls.get("secretName")}


# servers


async def with_servers(facts: Facts, place: "Place", *, everywhere: bool) -> Facts:
    """With servers, tool configurations and pods, and the last words of what is not well."""
    from dataclasses import replace

    from fairway.api.crd import KINDS
    from fairway.cli.kinds import resource_of
    from fairway.kube.errors import KubeError
    from fairway.kube.resource import POD

    namespace = None if everywhere else place.namespace
    by_kind: dict[str, tuple[Obj, ...]] = {}
    for kind in KINDS:
        try:
            by_kind[kind.kind] = tuple(await place.list(resource_of(kind), namespace))
        except KubeError:
            by_kind[kind.kind] = ()  # the checks of the cluster say why
    servers = by_kind.get("MCPServer", ())
    pods: tuple[Obj, ...] = ()
    with suppress(KubeError):
        pods = tuple(p for p in await place.list(POD, namespace) if "fairway.dev/server" in _labels(p))
    words = {}
    for server in servers:
        if condition(server, "Ready").get("status") != "True":
            words[key_of(server)] = await _words(place, server)
    return replace(facts, servers=servers, tool_configs=by_kind.get("MCPToolConfig", ()), pods=pods, words=words)


def _labels(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


async def _words(place: "Place", server: Obj) -> tuple[str, ...]:
    from fairway.api.names import COMPONENT_PROXY
    from fairway.cli.found import component_of, containers_of, pods_of
    from fairway.cli.kinds import DEFAULT
    from fairway.kube.errors import KubeError

    lines: list[str] = []
    with suppress(KubeError):
        for pod in await pods_of(place, DEFAULT, dict(server)):
            if component_of(pod) != COMPONENT_PROXY:
                for source in containers_of(pod):
                    with suppress(KubeError):
                        lines += [line async for line in place.log(source, tail=_LINES) if line.strip()]
    return tuple(line for line in lines if not line.startswith("--- fairway:"))


def system() -> str:
    return (
        f"fairway {fairway.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
