"""What a call costs in the bridge to a server on standard input and output, and whether large messages stay linear.

    python -m bench.stdio [--seconds 3] [--rounds 3] [--connections 32]

CPU is that of the proxy process alone, from the scheduler's accounts, divided by the calls that the load generator
counted; the server, which answers by heart, and the generator have the other core. A call of the large loads is as long
as its answer; their CPU is given for each MiB that passes, both ways together. The last line is JSON; the exit code is
1 past a budget.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.budget import finish
from bench.contender import (
    OTHER_CORE,
    REPOSITORY,
    Asking,
    Contender,
    Load,
    free_port,
    median,
    started,
    wait_for,
)
from fairway.mcp import protocol
from fairway.mcp.protocol import Method

SMALL = Load("small", 40, 300)
LARGE = (Load("64 KiB", 64 << 10, 64 << 10), Load("1 MiB", 1 << 20, 1 << 20), Load("8 MiB", 8 << 20, 8 << 20))
LOADS = (SMALL, *LARGE)
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1"},
}


def serve() -> None:
    """The server: answers each call with as much as it was sent, but at least 300 bytes."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {OTHER_CORE})
    number = re.compile(rb'"id":(\d+)')
    rest: list[bytes] = []
    while data := os.read(0, 1 << 20):
        *lines, last = data.split(b"\n")
        if lines and rest:
            lines[0] = b"".join((*rest, lines[0]))
            rest.clear()
        if last:
            rest.append(last)
        out = []
        for line in lines:
            found = number.search(line, 0, 200)
            if found is None:
                continue
            if b'"tools/call"' in line[:200]:
                text = b"y" * max(SMALL.answered, len(line) - 300)
                result = b'{"content":[{"type":"text","text":"%b"}]}' % text
            else:
                result = msgspec.json.encode(GREETING if b'"initialize"' in line[:200] else {"tools": []})
            out.append(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (found[1], result))
        answer = memoryview(b"".join(out))
        while answer:
            answer = answer[os.write(1, answer) :]


async def _ask(port: int, load: Load, session: str, connections: int, seconds: float) -> None:
    headers = load.headers()
    body = load.body()
    if session:
        params = {"name": "search", "arguments": {"query": "x" * load.asked}}
        headers = {key: value for key, value in headers.items() if not key.lower().startswith("mcp-")}
        headers |= {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session}
        body = protocol.request_body(7, Method.TOOLS_CALL, params)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
    counts = [0, 0]
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Asking(request, counts), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    print(json.dumps({"requests": counts[0], "errors": counts[1]}))


def _session(port: int) -> str:
    import urllib.request

    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    headers = {"Content-Type": protocol.JSON, "Accept": protocol.ACCEPT_BOTH}
    body = protocol.request_body(1, Method.INITIALIZE, params)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, headers)
    with urllib.request.urlopen(request) as answer:
        return str(answer.headers["Mcp-Session-Id"])


@contextmanager
def bridge(scratch: Path) -> Iterator[Contender]:
    port, admin = free_port(), free_port()
    command = {
        "argv": [sys.executable, "-m", "bench.stdio", "serve"],
        "cwd": str(REPOSITORY),
        "inherit": ["PYTHONPATH"],
    }
    route = {
        "name": "bench/server",
        "listen": {"host": "127.0.0.1", "port": port},
        "upstream": {"transport": "stdio", "command": command},
        "limits": {"maxBody": 64 << 20},
    }
    config = scratch / "stdio.json"
    config.write_bytes(msgspec.json.encode({"version": 1, "routes": [route]}))
    proxy = (sys.executable, "-m", "fairway", "proxy", "--config", str(config), "--admin", f"127.0.0.1:{admin}")
    with started(*proxy, own_core=True) as process:
        wait_for(admin, path="/readyz")
        yield Contender("bridge", port, [process.pid])


def measure(contender: Contender, load: Load, session: str, connections: int, seconds: float) -> dict[str, float]:
    def ask(duration: float) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.stdio", "ask", str(contender.port), load.name, session or "-"]
        command += [str(connections), str(duration)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
        said: dict[str, float] = json.loads(done.stdout)
        return said

    ask(0.5)
    before, began = contender.cpu(), time.monotonic()
    said = ask(seconds)
    spent, took = contender.cpu() - before, time.monotonic() - began
    if said["errors"] or not said["requests"]:
        raise SystemExit(f"{load.name}: {said}")
    cost = spent / said["requests"] * 1e6
    moved = (load.asked + max(load.asked, load.answered)) / (1 << 20)
    return {"cpu_us": cost, "cpu_us_per_mib": cost / moved, "per_second": said["requests"] / took}


def run(options: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch, bridge(Path(scratch)) as contender:
        session = _session(contender.port)
        start = contender.memory()
        for _ in range(options.rounds):
            for name, load, held in (
                ("small, modern", SMALL, ""),
                ("small, session", SMALL, session),
                *((load.name, load, session) for load in LARGE),
            ):
                connections = options.connections if load is SMALL else 2
                rows.setdefault(name, []).append(measure(contender, load, held, connections, options.seconds))
        found: dict[str, Any] = {name: median(row) for name, row in rows.items()}
        growth = found["8 MiB"]["cpu_us_per_mib"] / found["64 KiB"]["cpu_us_per_mib"]
        return {
            "loadavg": round(os.getloadavg()[0], 1),
            "loads": found,
            "growth": round(growth, 2),
            "memory_mb": {"start": round(start, 1), "end": round(contender.memory(), 1)},
        }


def table(found: dict[str, Any]) -> None:
    print(f"load average {found['loadavg']}")
    print(f"{'':18}{'CPU us/call':>12}{'CPU us/MiB':>12}{'calls/s':>10}")
    for name, row in found["loads"].items():
        print(f"{name:18}{row['cpu_us']:12.1f}{row['cpu_us_per_mib']:12.0f}{row['per_second']:10.0f}")
    print(f"a MiB in messages of 8 MiB costs {found['growth']:.2f} times one in messages of 64 KiB")


def main() -> int:
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["ask", port, name, session, connections, seconds]:
            load = next(load for load in LOADS if load.name == name)
            uvloop.run(_ask(int(port), load, "" if session == "-" else session, int(connections), float(seconds)))
        case _:
            parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
            parser.add_argument("--seconds", type=float, default=3)
            parser.add_argument("--rounds", type=int, default=3)
            parser.add_argument("--connections", type=int, default=32)
            found = run(parser.parse_args())
            table(found)
            small = max(row["cpu_us"] for name, row in found["loads"].items() if name.startswith("small"))
            return finish("stdio", {"small_cpu_us": small, "growth": found["growth"]}, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
