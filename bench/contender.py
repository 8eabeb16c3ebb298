"""One kind of request put on a port for a while, and what whatever answers there needs for it: for stdio and attach.

    python -m bench.contender PORT ASKED CONNECTIONS SECONDS

is the load generator where wrk is not installed; the last line is JSON.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httptools
import uvloop

from bench.programs import REPOSITORY, free_port
from fairway.mcp import protocol
from fairway.mcp.protocol import Method

__all__ = ["REPOSITORY", "Contender", "Load", "ask", "free_port", "median", "started", "wait_for"]

PROXY_CORE, OTHER_CORE = 1, 0


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
        command = [sys.executable, "-m", "bench.contender", str(port), str(load.asked), str(connections), str(seconds)]
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


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}


def main() -> None:
    port, asked, connections, seconds = sys.argv[1:]
    uvloop.run(_ask(int(port), Load("", int(asked), 0), int(connections), float(seconds)))


if __name__ == "__main__":
    main()
