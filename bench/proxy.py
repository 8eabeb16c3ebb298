"""What a request costs in the proxy with everything switched on, beside nginx that only passes it through.

    python -m bench.proxy [--seconds 3] [--rounds 5] [--connections 32]

Everything is authentication, Cedar, a tool filter, a rate limit, an audit log and metrics; each must have counted every
request. CPU is that of the proxy process (all threads, from the scheduler's own accounts), divided by the requests that
were answered. The proxy has a core to itself where there are two; servers and clients share the other. Rounds alternate
between the contenders, so that what else happens on the machine meets all of them; the median counts. The last line is
JSON; the exit code is 1 past a budget.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop

from bench import programs
from bench.answering import TOOLS
from bench.budget import finish, tool
from bench.crowd import COLD_EACH, HOT, LOADS
from bench.load import HOST, Client, connect, http_post
from bench.policy import ISSUER, RESOURCE, Issuer
from fairway.mcp import protocol

PROXY_CORE, OTHER_CORE = 1, 0
RATE: Final = 1_000.0
"""Requests a second at which latencies are compared."""
STREAMS: Final = 2_000
COLD_PER_SECOND: Final = 400
"""New tokens that are made for each second under load: one in a hundred of all that the fastest could answer."""
FULL, EACH_CALL, NGINX = "fairway, everything", "fairway, Cedar on each call", "nginx proxy_pass"
COUNTED: Final = ("origin", "authentication", "envelope", "limit", "authorization", "tools", "headers", "audit")
"""What must have seen every request."""

PERMIT = 'permit(principal, action == Action::"call_tool", resource);'
"""Of all policies, the answers of this one can be remembered."""


def policies_by_arguments() -> str:
    """A hundred policies of which ten are about any one tool, and these want to see the arguments of each call."""
    about = [f'resource == Tool::"other-{number}"' for number in range(90)]
    scoped = [f'permit(principal, action == Action::"call_tool", {which});' for which in about]
    condition = 'when { context.arguments.query like "%s*" }'
    reading = [f'permit(principal, action == Action::"call_tool", resource) {condition % c};' for c in "abcdefghix"]
    return "\n".join([*scoped, *reading])


def policy(directory: Path, name: str, cedar: str) -> dict[str, Any]:
    issuer = {"issuer": ISSUER, "jwksFile": str(directory / "keys.json")}
    return {
        "authentication": {"resources": [RESOURCE], "issuers": [issuer]},
        "authorization": {"policies": [cedar]},
        "rateLimit": {"principal": {"tokens": 1_000_000, "per": 1}},
        "audit": {"file": str(directory / f"{name}.audit"), "queue": 1_000_000},
    }


@dataclass(slots=True)
class Contender:
    """Something that stands between clients and server, and what it was measured to need."""

    name: str
    program: programs.Program
    rows: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    answered: int = 0

    def medians(self, what: str) -> dict[str, float]:
        rows = self.rows[what]
        return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        issuer = Issuer()
        (directory / "keys.json").write_bytes(issuer.jwks())
        (directory / "hot").write_bytes(b"\n".join(_token(issuer, f"client-{n}") for n in range(HOT)))
        self._issuer = issuer
        self._batch = 0

    def _new_tokens(self, seconds: float) -> Path:
        """Tokens that nobody has seen: signed anew before each measurement, while nothing is measured."""
        self._batch += 1
        path = self.directory / "cold"
        count = int(COLD_PER_SECOND * seconds)
        path.write_bytes(b"\n".join(_token(self._issuer, f"new-{self._batch}-{n}") for n in range(count)))
        return path

    def ask(
        self, contender: Contender, load: str, seconds: float, *, rate: float = 0.0, cold: bool = True
    ) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.crowd", str(contender.program.port), load, str(seconds)]
        command += ["--tokens", str(self.directory / "hot"), "--connections", str(self.options.connections)]
        if cold:
            command += [
                "--cold",
                str(self._new_tokens(seconds if not rate else seconds * rate / COLD_EACH / COLD_PER_SECOND + 1)),
            ]
        if rate:
            command += ["--rate", str(rate)]
        crowd = programs.start("crowd", command, core=OTHER_CORE, says=True, log=self.directory / "crowd.log")
        said, _ = crowd.process.communicate(timeout=seconds * 10 + 120)
        if crowd.process.returncode:
            raise SystemExit((self.directory / "crowd.log").read_text())
        found: dict[str, float] = json.loads(said)
        contender.answered += int(found["requests"])
        if found["errors"] or not found["requests"]:
            raise SystemExit(f"{contender.name}, {load}: {found}")
        return found

    def measure(self, contender: Contender, what: str, load: str, *, rate: float = 0.0, cold: bool = True) -> None:
        before = contender.program.cpu()
        found = self.ask(contender, load, self.options.seconds, rate=rate, cold=cold)
        spent = contender.program.cpu() - before
        row = {**found, "cpu_us": spent / found["requests"] * 1e6, "per_second": found["requests"] / found["seconds"]}
        contender.rows.setdefault(what, []).append(row)


def _token(issuer: Issuer, subject: str) -> bytes:
    return issuer.token(sub=subject).removeprefix(b"Bearer ")


# contenders


def fairway(directory: Path, name: str, server: int, cedar: str) -> Contender:
    port = programs.free_port()
    config = directory / f"{name}.json"
    shown = {"filter": [*TOOLS, "search", "large", "stream"]}
    programs.write_config(config, programs.route(port, [server], tools=shown, policy=policy(directory, name, cedar)))
    program = programs.proxy(config, port=port, name=name, core=PROXY_CORE)
    return Contender(FULL if name == "full" else EACH_CALL, program)


def nginx(program: str, directory: Path, server: int) -> Contender:
    port = programs.free_port()
    text = Path(__file__).with_name("nginx.conf").read_text()
    for name, value in (("port", port), ("server", server), ("scratch", directory)):
        text = text.replace(f"{{{name}}}", str(value))
    config = directory / "nginx.conf"
    config.write_text(text)
    started = programs.start(
        NGINX,
        [program, "-c", str(config), "-p", str(directory)],
        core=PROXY_CORE,
        log=directory / "nginx.log",
        port=port,
    )
    programs.wait_for(started)
    return Contender(NGINX, started)


def find_nginx(cache: Path) -> str | None:
    """The installed one, or one from the system's packages, unpacked in our cache and not installed."""
    if tool_path := _installed_nginx():
        return tool_path
    unpacked = cache / "usr/sbin/nginx"
    if not unpacked.exists() and os.environ.get("FAIRWAY_NO_APT") != "1":
        cache.mkdir(parents=True, exist_ok=True)
        print("fetching nginx with apt-get, only to compare with (FAIRWAY_NO_APT=1 forbids it)", flush=True)
        quiet = {"cwd": cache, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
        subprocess.run(["sh", "-c", "apt-get download nginx || (apt-get update && apt-get download nginx)"], **quiet)  # type: ignore[call-overload]
        subprocess.run(["sh", "-c", "dpkg -x nginx_*.deb ."], **quiet)  # type: ignore[call-overload]
    if unpacked.exists() and subprocess.run([unpacked, "-v"], capture_output=True, check=False).returncode == 0:
        return str(unpacked)
    return tool("nginx", package="nginx", why="there is nothing to compare with")


def _installed_nginx() -> str | None:
    from shutil import which

    return which("nginx") or which("nginx", path="/usr/local/sbin:/usr/sbin:/sbin")


# counters


def check_counters(contender: Contender) -> None:
    """Every part of the policy has seen every request."""
    time.sleep(0.5)  # audit lines are written ten times a second
    text = contender.program.get("/metrics").decode()
    found = {name: int(count) for name, count in re.findall(r'middleware_total\{[^}]*middleware="(\w+)"\} (\d+)', text)}
    wrong = {name: found.get(name) for name in COUNTED if found.get(name) != contender.answered}
    lines = re.search(r'audit_lines_total\{[^}]*outcome="written"\} (\d+)', text)
    if lines is None or int(lines[1]) != contender.answered:
        wrong["audit lines"] = None if lines is None else int(lines[1])
    if wrong:
        raise SystemExit(f"{contender.name}: {contender.answered} requests were answered, but counters say {wrong}")


# memory


async def _hold_streams(port: int, count: int, token: str) -> list[Client]:
    """Clients of the session era that listen to their server, which says nothing."""
    headers = {"Authorization": f"Bearer {token}"}
    opened = asyncio.get_running_loop().create_future()
    first = await connect((HOST, port), opened.set_result)
    body = protocol.request_body(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    first.ask(http_post(body, headers))
    await opened
    first.close()
    headers |= {"Mcp-Session-Id": first.headers[b"mcp-session-id"].decode(), "MCP-Protocol-Version": "2025-11-25"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET /mcp HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n{lines}\r\n".encode()
    heard = 0

    def on_piece(_: Client) -> None:
        nonlocal heard
        heard += 1

    def on_answer(client: Client) -> None:
        raise SystemExit(f"a stream has ended: {client.status}")

    clients = []
    for _ in range(count):
        client = await connect((HOST, port), on_answer, on_piece)
        client.ask(request)
        clients.append(client)
    async with asyncio.timeout(60):
        while heard < count:  # noqa: ASYNC110  they are many
            await asyncio.sleep(0.01)
    return clients


async def _memory_per_thousand(program: programs.Program, token: str) -> float:
    for client in await _hold_streams(program.port, 100, token):  # what the first streams bring with them stays
        client.close()
    await asyncio.sleep(1)
    before = program.memory()
    clients = await _hold_streams(program.port, STREAMS, token)
    await asyncio.sleep(0.5)
    grown = program.memory() - before
    for client in clients:
        client.close()
    return grown / STREAMS * 1_000


def measure_streams(directory: Path, server: int) -> float:
    """In a proxy that has done nothing else, as what a load leaves behind would be used again and hide it."""
    contender = fairway(directory, "streams", server, PERMIT)
    with programs.running(contender.program):
        token = (directory / "hot").read_bytes().split()[0].decode()
        return uvloop.run(_memory_per_thousand(contender.program, token))


# the whole


@contextmanager
def contenders(directory: Path, server: int) -> Iterator[list[Contender]]:
    with ExitStack() as stack:
        made = [fairway(directory, "full", server, PERMIT), fairway(directory, "each", server, policies_by_arguments())]
        found = find_nginx(Path.home() / ".cache" / "fairway" / "nginx")
        if found is not None:
            made.append(nginx(found, directory, server))
        stack.enter_context(programs.running(*(contender.program for contender in made)))
        yield made


def run(options: argparse.Namespace) -> tuple[dict[str, float | None], dict[str, Any]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = programs.answering_server(core=OTHER_CORE)
        stack.enter_context(programs.running(server))
        bench = Bench(options, directory)
        streams = measure_streams(directory, server.port)
        made = stack.enter_context(contenders(directory, server.port))
        start = {contender.name: contender.program.memory() for contender in made}
        full = made[0]
        for contender in made:
            for load in LOADS:
                bench.ask(contender, load, 1, cold=False)  # everybody is known from here on
        for _ in range(options.rounds):
            for load in LOADS:
                for contender in made:
                    if contender.name != EACH_CALL or load == "small":
                        bench.measure(contender, load, load)
                if load != "SSE":
                    bench.measure(full, f"{load}, warm", load, cold=False)
            for contender in made:
                if contender.name != EACH_CALL:
                    bench.measure(contender, f"{RATE:g}/s", "small", rate=RATE)
        for contender in made:
            if contender.name != NGINX:
                check_counters(contender)
        found = {contender.name: contender for contender in made}
        figures = _figures(found, start[FULL], streams)
        details = {
            "loadavg": os.getloadavg()[0],
            "contenders": {
                name: {"start_mb": start[name], **{what: contender.medians(what) for what in contender.rows}}
                for name, contender in found.items()
            },
        }
        return figures, details


def _figures(found: dict[str, Contender], start: float, streams: float) -> dict[str, float | None]:
    base, full = found.get(NGINX), found[FULL]

    def ratio(contender: Contender, what: str, to: str) -> float | None:
        return None if base is None else contender.medians(what)["cpu_us"] / base.medians(to)["cpu_us"]

    def added(which: str) -> float | None:
        what = f"{RATE:g}/s"
        return None if base is None else full.medians(what)[which] - base.medians(what)[which]

    return {
        "small_cpu_ratio": ratio(full, "small", "small"),
        "small_warm_cpu_ratio": ratio(full, "small, warm", "small"),
        "large_cpu_ratio": ratio(full, "33 KB", "33 KB"),
        "large_warm_cpu_ratio": ratio(full, "33 KB, warm", "33 KB"),
        "sse_cpu_ratio": ratio(full, "SSE", "SSE"),
        "cedar_each_call_cpu_ratio": ratio(found[EACH_CALL], "small", "small"),
        "added_p50_ms": added("p50"),
        "added_p99_ms": added("p99"),
        "memory_at_start_mb": start,
        "memory_per_1000_streams_mb": streams,
    }


def table(figures: dict[str, float | None], details: dict[str, Any]) -> None:
    print(f"load average {details['loadavg']:.1f}")
    print(f"{'':30}{'load':14}{'CPU us':>8}{'req/s':>9}{'p50 ms':>8}{'p99 ms':>8}")
    for name, rows in details["contenders"].items():
        for what, row in rows.items():
            if what != "start_mb":
                numbers = f"{row['cpu_us']:8.1f}{row['per_second']:9.0f}{row['p50']:8.2f}{row['p99']:8.2f}"
                print(f"{name:30}{what:14}{numbers}")
    for figure, value in figures.items():
        print(f"{figure:30}{'-' if value is None else f'{value:.2f}':>8}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    figures, details = run(parser.parse_args())
    table(figures, details)
    return finish("proxy", figures, details)


if __name__ == "__main__":
    sys.exit(main())
