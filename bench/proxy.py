"""What a request costs in the proxy: CPU time and throughput on one core, beside nginx that only passes through.

    python -m bench.proxy [--seconds 3] [--rounds 3] [--connections 32]

CPU is that of the proxy process (all threads, from the scheduler's own accounts), divided by the requests that the
load generator counted. The proxy has a core to itself where there are two; server and load generator share the other.
Rounds alternate between the contenders, so that what else happens on the machine meets all of them; the median counts.
The last line is JSON; the exit code is 1 past a budget.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools
import msgspec
import uvloop

from bench.budget import finish, tool
from fairway.mcp import protocol
from fairway.mcp.protocol import Method

REPOSITORY = Path(__file__).resolve().parent.parent
PROXY_CORE, OTHER_CORE = 1, 0
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
TOOLS = {"tools": [{"name": "search", "inputSchema": {"type": "object"}}], "resultType": "complete"}


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of request, with the size of what is asked and of what is answered."""

    name: str
    asked: int
    answered: int

    def body(self) -> bytes:
        params = {
            "name": "search",
            "arguments": {"query": "x" * self.asked},
            "_meta": protocol.request_meta("2026-07-28", client={"name": "bench", "version": "1"}),
        }
        return protocol.request_body(7, Method.TOOLS_CALL, params)

    def headers(self) -> dict[str, str]:
        return {
            "Host": "127.0.0.1",
            "Content-Type": protocol.JSON,
            "Accept": protocol.ACCEPT_BOTH,
            "User-Agent": "bench",
            "Authorization": "Bearer " + "t" * 800,
            **protocol.request_headers("2026-07-28", Method.TOOLS_CALL, {"name": "search"}),
        }


LOADS = (Load("small", 40, 300), Load("33 KB", 33_000, 32_000))


class AnsweringServer(asyncio.Protocol):
    """An MCP server that knows its answers by heart."""

    def __init__(self, answers: dict[str, bytes], large: bytes) -> None:
        self._answers = answers
        self._large = large
        self._parser = httptools.HttpRequestParser(self)
        self._method = ""
        self._size = 0
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._out:
            out, self._out = self._out, []
            self._transport.writelines(out)  # type: ignore[attr-defined]

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mcp-method":
            self._method = value.decode()
        elif name.lower() == b"content-length":
            self._size = int(value)

    def on_message_complete(self) -> None:
        self._out.append(self._large if self._size > 10_000 else self._answers[self._method])


def http_answer(request_id: int, result: Any) -> bytes:
    body = protocol.result_body(request_id, result)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def text(size: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "y" * size}], "resultType": "complete"}


async def _serve(port: int) -> None:
    answers = {
        "server/discover": http_answer(1, DISCOVERED),
        "tools/list": http_answer(1000, TOOLS),
        "tools/call": http_answer(7, text(LOADS[0].answered)),
    }
    large = http_answer(7, text(LOADS[1].answered))
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: AnsweringServer(answers, large), "127.0.0.1", port)
    await asyncio.Event().wait()


# the load generator, where wrk is not installed


class Asking(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, request: bytes, counts: list[int]) -> None:
        self._request = request
        self._counts = counts
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._counts[0 if self._parser.get_status_code() == 200 else 1] += 1
        self._transport.write(self._request)  # type: ignore[attr-defined]


async def _ask(port: int, load: Load, connections: int, seconds: float) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in load.headers().items())
    body = load.body()
    request = f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
    counts = [0, 0]
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Asking(request, counts), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    print(json.dumps({"requests": counts[0], "errors": counts[1]}))


WRK = """
local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
{headers}
done = function(summary, latency, requests)
  io.write(string.format('{{"requests": %d, "errors": %d, "p50": %f, "p99": %f}}\\n', summary.requests,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    + summary.errors.timeout, latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def ask(port: int, load: Load, connections: int, seconds: int, scratch: Path) -> dict[str, float]:
    """Puts load on a port for a while; returns requests, errors and, from wrk, milliseconds."""
    wrk = shutil.which("wrk")
    if wrk is None:
        command = [sys.executable, "-m", "bench.proxy", "ask", str(port), load.name, str(connections), str(seconds)]
    else:
        body, script = scratch / "body", scratch / "load.lua"
        body.write_bytes(load.body())
        headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in load.headers().items())
        script.write_text(WRK.format(body=body, headers=headers))
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(script), f"http://127.0.0.1:{port}/mcp"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=REPOSITORY, preexec_fn=_on_other_core
    )
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


# contenders


@dataclass(slots=True)
class Contender:
    """Something that stands between load and server."""

    name: str
    port: int
    pids: list[int]
    results: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def cpu(self) -> float:
        """Seconds so far, of all threads."""
        total = 0
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def memory(self) -> float:
        """Megabytes now."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGESIZE") / 1e6


def _on_core(core: int) -> None:
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


def _on_proxy_core() -> None:
    _on_core(PROXY_CORE)


def _on_other_core() -> None:
    _on_core(OTHER_CORE)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def started(*command: str, own_core: bool) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        preexec_fn=_on_proxy_core if own_core else _on_other_core,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, *, path: str = "", seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if path:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).read()
            else:
                socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nothing came up on port {port}")


@contextmanager
def fairway(name: str, server: int, scratch: Path, tools: dict[str, Any]) -> Iterator[Contender]:
    port, admin = free_port(), free_port()
    route = {
        "name": "bench/server",
        "listen": {"host": "127.0.0.1", "port": port},
        "upstream": {"addresses": [f"127.0.0.1:{server}"]},
        "tools": tools,
    }
    config = scratch / f"{name.replace(' ', '-')}.json"
    config.write_bytes(msgspec.json.encode({"version": 1, "routes": [route]}))
    command = (sys.executable, "-m", "fairway", "proxy", "--config", str(config), "--admin", f"127.0.0.1:{admin}")
    with started(*command, own_core=True) as process:
        wait_for(admin, path="/readyz")
        yield Contender(name, port, [process.pid])


NGINX = """
daemon off; master_process off; pid {scratch}/nginx.pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_buffer_size 128k; client_max_body_size 8m;
  client_body_temp_path {scratch}/a; proxy_temp_path {scratch}/b; fastcgi_temp_path {scratch}/c;
  uwsgi_temp_path {scratch}/d; scgi_temp_path {scratch}/e;
  keepalive_requests 1000000000;
  upstream server {{ server 127.0.0.1:{server}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


@contextmanager
def nginx(program: str, server: int, scratch: Path) -> Iterator[Contender]:
    port = free_port()
    config = scratch / "nginx.conf"
    config.write_text(NGINX.format(scratch=scratch, server=server, port=port))
    with started(program, "-c", str(config), "-p", str(scratch), own_core=True) as process:
        wait_for(port)
        yield Contender("nginx proxy_pass", port, [process.pid])


def measure(contender: Contender, load: Load, connections: int, seconds: int, scratch: Path) -> dict[str, float]:
    ask(contender.port, load, connections, 1, scratch)
    before, began = contender.cpu(), time.monotonic()
    said = ask(contender.port, load, connections, seconds, scratch)
    spent, took = contender.cpu() - before, time.monotonic() - began
    if said["errors"] or not said["requests"]:
        raise SystemExit(f"{contender.name}, {load.name}: {said}")
    return {
        "cpu_us": spent / said["requests"] * 1e6,
        "per_second": said["requests"] / took,
        "busy": spent / took,
        **{key: said[key] for key in ("p50", "p99") if key in said},
    }


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = free_port()
        stack.enter_context(started(sys.executable, "-m", "bench.proxy", "serve", str(server), own_core=False))
        wait_for(server)
        renamed = {"override": [{"tool": "other", "name": "another"}]}
        contenders = [
            stack.enter_context(fairway("fairway, all tools", server, scratch, {})),
            stack.enter_context(fairway("fairway, tools filtered", server, scratch, renamed)),
        ]
        program = tool("nginx", package="nginx", why="there is nothing to compare with")
        if program is not None:
            contenders.append(stack.enter_context(nginx(program, server, scratch)))
        start_memory = {contender.name: contender.memory() for contender in contenders}
        for _ in range(options.rounds):
            for load in LOADS:
                for contender in contenders:
                    row = measure(contender, load, options.connections, options.seconds, scratch)
                    contender.results.setdefault(load.name, []).append(row)
        return {
            "loadavg": os.getloadavg()[0],
            "generator": "wrk" if shutil.which("wrk") else "own",
            "connections": options.connections,
            "contenders": {
                contender.name: {
                    "memory_mb": {"start": round(start_memory[contender.name], 1), "end": round(contender.memory(), 1)},
                    **{name: median(rows) for name, rows in contender.results.items()},
                }
                for contender in contenders
            },
        }


def table(found: dict[str, Any]) -> None:
    print(f"load average {found['loadavg']:.1f}, {found['connections']} connections, load from {found['generator']}")
    print(f"{'':26}{'load':8}{'CPU us':>8}{'x nginx':>9}{'req/s':>9}{'busy':>6}{'p50 ms':>8}{'p99 ms':>8}{'MB':>7}")
    base = found["contenders"].get("nginx proxy_pass", {})
    for name, results in found["contenders"].items():
        for load in LOADS:
            row = results[load.name]
            ratio = f"{row['cpu_us'] / base[load.name]['cpu_us']:.2f}" if base else "-"
            times = "".join(f"{row[key]:8.2f}" if key in row else f"{'-':>8}" for key in ("p50", "p99"))
            print(
                f"{name:26}{load.name:8}{row['cpu_us']:8.1f}{ratio:>9}{row['per_second']:9.0f}{row['busy']:6.2f}{times}"
                f"{results['memory_mb']['end']:7.1f}"
            )


def main() -> int:
    match sys.argv[1:]:
        case ["serve", port]:
            uvloop.run(_serve(int(port)))
        case ["ask", port, name, connections, seconds]:
            load = next(load for load in LOADS if load.name == name)
            uvloop.run(_ask(int(port), load, int(connections), float(seconds)))
        case _:
            parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
            parser.add_argument("--seconds", type=int, default=3)
            parser.add_argument("--rounds", type=int, default=3)
            parser.add_argument("--connections", type=int, default=32)
            found = run(parser.parse_args())
            table(found)
            start = max(
                c["memory_mb"]["start"] for name, c in found["contenders"].items() if name.startswith("fairway")
            )
            return finish("proxy", {"memory_at_start_mb": start}, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
