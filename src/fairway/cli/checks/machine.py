"""Checks of the machine that the program runs on. Pure."""

import re
from collections.abc import Iterator

from fairway.cli.checks import Ailment, Check
from fairway.cli.checks.facts import Facts, Obj, title_of
from fairway.local.launch import ANNOTATION

FILES_NEEDED = 1024
DISK_NEEDED = 256 << 20
NODE_NEEDED = 18


def _open_files(facts: Facts) -> Iterator[Ailment]:
    if facts.machine.open_files < FILES_NEEDED:
        what = f"a process may open {facts.machine.open_files} files; a proxy with many clients needs more"
        yield what, f"ulimit -n {FILES_NEEDED * 4}, in the shell that starts fairway"


def _disk(facts: Facts) -> Iterator[Ailment]:
    if facts.machine.free_bytes < DISK_NEEDED:
        what = f"{facts.machine.free_bytes >> 20} MiB are free on this disk; logs and packages need room"
        yield what, f"free at least {DISK_NEEDED >> 20} MiB, or keep the state elsewhere: fairway up --state-dir DIR"


def _localhost(facts: Facts) -> Iterator[Ailment]:
    if "127.0.0.1" not in facts.machine.localhost:
        means = ", ".join(facts.machine.localhost) or "nothing"
        yield f"localhost means {means} on this machine, and not 127.0.0.1", "put `127.0.0.1 localhost` into /etc/hosts"


def _http_proxy(facts: Facts) -> Iterator[Ailment]:
    told = facts.machine.environment
    if facts.laptop is None or not told.get("http_proxy"):
        return
    spared = {host.strip().lstrip(".") for host in told.get("no_proxy", "").split(",")}
    if not spared & {"127.0.0.1", "localhost", "*", "127.0.0.0/8"}:
        yield (
            "HTTP_PROXY is set, and NO_PROXY does not spare this machine: clients would ask the proxy for 127.0.0.1",
            "export NO_PROXY=localhost,127.0.0.1",
        )


def _package_program(index: str, program: str, install: str) -> Check:
    def look(facts: Facts) -> Iterator[Ailment]:
        if facts.laptop is None or program in facts.machine.programs:
            return
        users = [title_of(s) for s in facts.servers if index in (s["spec"].get("package") or {})]
        if users:
            yield f"{', '.join(users)}: a package of {index} needs {program}, which is not there", install

    return Check(f"{program}-missing", f"packages of {index} have {program}", look)


def _old_node(facts: Facts) -> Iterator[Ailment]:
    said = facts.machine.programs.get("node", "")
    found = re.search(r"(\d+)\.", said)
    if facts.laptop is not None and found and int(found[1]) < NODE_NEEDED:
        users = [title_of(s) for s in facts.servers if "npm" in (s["spec"].get("package") or {})]
        if users:
            yield f"{', '.join(users)}: Node {said} is too old", f"install Node {NODE_NEEDED} or newer"


def _container_runtime(facts: Facts) -> Iterator[Ailment]:
    if facts.laptop is None or facts.machine.containers or not facts.machine.containers_said:
        return
    users = [title_of(s) for s in facts.servers if "image" in s["spec"] and ANNOTATION not in _annotations(s)]
    if users:
        yield (
            f"{', '.join(users)}: images need docker or podman: {facts.machine.containers_said}",
            "start it, and then fairway up again",
        )


def _annotations(server: Obj) -> Obj:
    return server["metadata"].get("annotations") or {}


CHECKS = (
    Check("open-files", "a process may open enough files", _open_files),
    Check("disk-full", "there is room on the disk", _disk),
    Check("localhost", "localhost is this machine", _localhost),
    Check("http-proxy", "clients reach this machine without a proxy", _http_proxy),
    _package_program("pypi", "uv", "install fairway again: uv comes with it"),
    _package_program("npm", "npx", "install Node.js, which brings npx, and then fairway up again"),
    Check("node-old", "Node is new enough for packages of npm", _old_node),
    Check("container-runtime", "a container runtime that is installed works", _container_runtime),
)
