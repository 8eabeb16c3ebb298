"""What the inline-tools server costs, beside a server of the `mcp` SDK with the same function, in one run.

    python -m bench.tools [--rounds 3] [--calls 4000] [--connections 8]

Cold start is the CPU time and the memory of a new process when it has answered its first handshake; a call is a small
`tools/call` on a kept connection, in CPU time of the server's process (all threads, from the scheduler's own accounts).
Rounds alternate between the servers; the median counts. The last line is JSON; the exit code is 1 past a budget.
"""

import argparse
import asyncio
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import uvloop

from bench.budget import finish
from fairway.mcp import protocol
from fairway.mcp.protocol import LATEST_MODERN_VERSION, LATEST_SESSION_VERSION, Header, Method

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = '''
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def aadd(a: int, b: int) -> int:
    """Adds, on the loop."""
    return a + b
'''
WITH_SDK = f"""
import sys
import uvicorn
from mcp.server.mcpserver import MCPServer
{FUNCTIONS}
server = MCPServer("bench")
server.tool()(add)
server.tool()(aadd)
app = server.streamable_http_app(stateless_http=True, json_response=True, host="0.0.0.0")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
"""
"""As its documentation shows it, with what makes it fastest: no sessions, JSON answers, no access log."""


def post(method: str, params: dict[str, object], *, modern: bool) -> bytes:
    """A whole HTTP request."""
    headers = {"Host": "localhost", "Content-Type": protocol.JSON, "Accept": protocol.ACCEPT_BOTH}
    if modern:
        params = params | {"_meta": protocol.request_meta(LATEST_MODERN_VERSION)}
        headers |= protocol.request_headers(LATEST_MODERN_VERSION, method, params)
    else:
        headers[Header.PROTOCOL_VERSION] = LATEST_SESSION_VERSION
    body = protocol.request_body(1, method, params)
    headers["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


DISCOVER = post(Method.DISCOVER, {}, modern=True)
CALLS = {
    "plain function, modern": post(Method.TOOLS_CALL, {"name": "add", "arguments": {"a": 1, "b": 2}}, modern=True),
    "plain function, session": post(Method.TOOLS_CALL, {"name": "add", "arguments": {"a": 1, "b": 2}}, modern=False),
    "async function, modern": post(Method.TOOLS_CALL, {"name": "aadd", "arguments": {"a": 1, "b": 2}}, modern=True),
}


class Caller(asyncio.Protocol):
    """Sends one request after the other on one connection."""

    def __init__(self, request: bytes, number: int, done: asyncio.Future[None]) -> None:
        self._request, self._left, self._done = request, number, done
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if not blank or length is None or len(body) < int(length[1]):
            return
        if b" 200 " not in head or b'"3"' not in body:
            self._done.set_exception(RuntimeError(self._received.decode(errors="replace")))
            return
        self._received = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)  # type: ignore[attr-defined]
        else:
            self._transport.close()
            self._done.set_result(None)


async def load(port: int, request: bytes, calls: int, connections: int) -> None:
    loop = asyncio.get_running_loop()
    done = [loop.create_future() for _ in range(connections)]
    for one in done:
        await loop.create_connection(partial(Caller, request, calls // connections, one), "127.0.0.1", port)
    await asyncio.gather(*done)


def cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """A server that has just answered its first handshake: process, port, seconds on the clock."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began = time.perf_counter()
    silent = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(port)], cwd=ROOT, stdout=silent, stderr=silent)
    try:
        while process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(DISCOVER)
                    answer = connection.recv(65536)
            except OSError:
                time.sleep(0.002)
                continue
            if b" 200 " not in answer[:20]:
                raise RuntimeError(answer.decode(errors="replace"))
            yield process, port, time.perf_counter() - began
            return
        raise RuntimeError(f"{command} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()


def measure(command: list[str], calls: int, connections: int) -> dict[str, float]:
    with started(command) as (process, port, seconds):
        found = {"start, CPU s": cpu_seconds(process.pid), "start, s": seconds, "memory, MB": resident_mb(process.pid)}
        for name, request in CALLS.items():
            uvloop.run(load(port, request, max(connections, calls // 10), connections))
            before = cpu_seconds(process.pid)
            uvloop.run(load(port, request, calls, connections))
            used = cpu_seconds(process.pid) - before
            found[f"{name}, CPU us"] = used / (calls // connections * connections) * 1e6
        found["memory after the calls, MB"] = resident_mb(process.pid)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tools", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, sdk = Path(scratch) / "functions.py", Path(scratch) / "with_sdk.py"
        source.write_text(FUNCTIONS)
        sdk.write_text(WITH_SDK)
        servers = {
            "fairway tools": [sys.executable, "-m", "fairway", "tools", "--file", str(source), "--port"],
            "mcp SDK": [sys.executable, str(sdk)],
        }
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for _ in range(given.rounds):
            for name, command in servers.items():
                rounds[name].append(measure(command, given.calls, given.connections))
    medians = {
        name: {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
        for name, found in rounds.items()
    }
    print(f"{'':32}" + "".join(f"{name:>16}" for name in medians))
    for key in medians["mcp SDK"]:
        print(f"{key:32}" + "".join(f"{found[key]:>16.3g}" for found in medians.values()))
    ours, theirs = medians["fairway tools"], medians["mcp SDK"]
    call = "plain function, modern, CPU us"
    figures = {
        "start_cpu_ratio": round(ours["start, CPU s"] / theirs["start, CPU s"], 2),
        "call_cpu_ratio": round(ours[call] / theirs[call], 2),
        "memory_ratio": round(ours["memory, MB"] / theirs["memory, MB"], 2),
    }
    return finish("tools", figures, {"medians": medians})


if __name__ == "__main__":
    sys.exit(main())
