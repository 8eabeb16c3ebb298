"""What the way to a stdio server in a pod costs: a bare websocket beside the proxy, in the same run.

    python -m bench.attach [--rounds 5] [--calls 400] [--connections 64] [--seconds 4]

Two pods echo lines as fast as Python can. A call is one small tools/call. `raw` writes it to the attachment itself and
waits for its line; `proxy` sends it as HTTP to `fairway proxy`, which is attached to the other pod. Rounds
alternate, so that what else happens on the machine meets both; medians of the rounds count. Throughput is measured with
many calls on their way at once. Needs the rig's node tier, or RIG_KUBECONFIG with the image loaded. The last line is
JSON; the exit code is 1 past a budget.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.budget import finish
from bench.contender import REPOSITORY, Contender, Load, ask, free_port, wait_for
from fairway.kube.channels import Channel, Exit
from fairway.kube.config import load_access
from fairway.kube.errors import Unreachable
from fairway.kube.pods import Pods
from fairway.kube.streams import Streams
from fairway.kube.transport import Transport
from fairway.proxy.bridge.lines import LineSplitter
from rig.pyimage import python_image
from rig.state import State
from rig.testcluster import RigCluster, run_rig

IMAGE = "localhost/fairway-attach-bench:1"
RAW_POD, PROXY_POD = "bench-raw-0", "bench-proxy-0"
SMALL, LARGE = 64 << 10, 8 << 20
LOAD = Load("small", 40, 0)

SERVER = """
import json, os
greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}}
tools = {"tools": [{"name": "search", "inputSchema": {"type": "object"}}]}
rest = []
while data := os.read(0, 1 << 20):
    if b"\\n" not in data:
        rest.append(data)
        continue
    *lines, last = b"".join((*rest, data)).split(b"\\n")
    rest = [last]
    out = []
    for line in lines:
        asked = json.loads(line) if line else {}
        if "id" not in asked:
            continue
        if asked["method"] == "initialize":
            result = greeting
        elif asked["method"] == "tools/list":
            result = tools
        else:
            said = asked["params"]["arguments"]["query"]
            result = {"content": [{"type": "text", "text": said}]}
        out.append(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
    if out:
        view = memoryview(("\\n".join(out) + "\\n").encode())
        while view:
            view = view[os.write(1, view):]
"""


class Raw:
    """An attachment without a proxy: lines out, lines in."""

    def __init__(self) -> None:
        self.streams = Streams(self)
        self._splitter = LineSplitter()
        self._on_line: Callable[[bytes], None] = lambda _: None

    def output(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.STDOUT:
            for line in self._splitter.feed(data):
                self._on_line(line)

    def writable(self, writable: bool) -> None: ...

    def ended(self, end: Exit | Unreachable) -> None:
        raise SystemExit(f"the attachment ended: {end}")

    async def call(self, line: bytes) -> float:
        """Seconds until the answer."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_line = lambda _: answered.set_result(None)
        began = time.perf_counter()
        self.streams.write(line)
        await answered
        return time.perf_counter() - began

    async def flood(self, line: bytes, *, at_once: int, seconds: float) -> float:
        """Answers a second while there are always so many calls on their way."""
        count = 0

        def answered(_: bytes) -> None:
            nonlocal count
            count += 1
            self.streams.write(line)

        self._on_line = answered
        for _ in range(at_once):
            self.streams.write(line)
        await asyncio.sleep(seconds)
        found = count / seconds
        self._on_line = lambda _: None
        await asyncio.sleep(0.5)
        return found


def line_of(query: str) -> bytes:
    params = {"name": "search", "arguments": {"query": query}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + b"\n"


class Http:
    """One client of the proxy on one connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Http":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=64 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def call(self, load: Load) -> float:
        body = load.body()
        lines = "".join(f"{name}: {value}\r\n" for name, value in load.headers().items())
        request = f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        began = time.perf_counter()
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await self._reader.readexactly(size)
        took = time.perf_counter() - began
        if not head.startswith(b"HTTP/1.1 200") or b'"result"' not in answer[:200]:
            raise SystemExit(f"the proxy answered {head[:40]!r} {answer[:200]!r}")
        return took


def median_ms(times: list[float]) -> float:
    return statistics.median(times) * 1000


async def measure(options: argparse.Namespace, kubeconfig: Path, contender: Contender) -> dict[str, Any]:
    transport = Transport(load_access(kubeconfig=kubeconfig), user_agent="bench")
    raw = Raw()
    await Pods(transport).attach_to(raw.streams, "default", RAW_POD, container="server", stdin=True)
    small = line_of("x" * LOAD.asked)
    rows: list[dict[str, float]] = []
    async with Http(contender.port) as http:
        for number in range(options.rounds + 1):
            row = {
                "raw_ms": median_ms([await raw.call(small) for _ in range(options.calls)]),
                "proxy_ms": median_ms([await http.call(LOAD) for _ in range(options.calls)]),
            }
            row["added_ms"] = row["proxy_ms"] - row["raw_ms"]
            if number:  # the first is to warm up
                rows.append(row)
        found: dict[str, Any] = {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}
        found["rounds_added_ms"] = [round(row["added_ms"], 3) for row in rows]
        for name, size, times in (("64 KiB", SMALL, 40), ("8 MiB", LARGE, 4)):
            load = Load(name, size, 0)
            spent = contender.cpu()
            took = [await http.call(load) for _ in range(times)]
            spent = contender.cpu() - spent
            found[name] = {
                "ms_per_mib": round(median_ms(took) / (size / (1 << 20)), 2),
                "proxy_cpu_ms_per_mib": round(spent * 1000 / (times * size / (1 << 20)), 2),
            }
    found["raw_per_second"] = round(await raw.flood(small, at_once=options.connections, seconds=options.seconds))
    raw.streams.close()
    await transport.close()
    return found


@contextmanager
def node() -> Iterator[RigCluster]:
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as directory:
        given = os.environ.get("RIG_KUBECONFIG")
        if given:
            yield RigCluster.at(Path(given), directory=Path(directory), owned=False)
            return
        state = State(root=Path(directory) / "rig")
        try:
            run_rig("up", "--node", "--quiet", "--owner", str(os.getpid()), state=state)
            yield RigCluster.at(state.kubeconfig, directory=Path(directory) / "session", owned=True)
        finally:
            run_rig("down", "--wipe", state=state)


@contextmanager
def echoing(cluster: RigCluster, pod: str) -> Iterator[None]:
    container = {"name": "server", "image": IMAGE, "imagePullPolicy": "Never", "stdin": True, "args": [SERVER]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}
    cluster.api.apply(manifest, namespace="default")
    try:
        cluster.wait_for_pod("default", pod)
        yield
    finally:
        cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod}")


@contextmanager
def proxy(kubeconfig: Path, scratch: Path) -> Iterator[Contender]:
    port, admin = free_port(), free_port()
    route = {
        "name": "bench/server",
        "listen": {"host": "127.0.0.1", "port": port},
        "upstream": {"transport": "stdio", "attach": {"namespace": "default", "pod": PROXY_POD}},
        "limits": {"maxBody": 16 << 20},
    }
    config = scratch / "runconfig.json"
    config.write_bytes(msgspec.json.encode({"version": 1, "routes": [route]}))
    command = (sys.executable, "-m", "fairway", "proxy", "--config", str(config), "--admin", f"127.0.0.1:{admin}")
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "KUBECONFIG": str(kubeconfig)},
    )
    try:
        wait_for(admin, path="/readyz", seconds=60)
        yield Contender("fairway", port, [process.pid])
    finally:
        process.terminate()
        process.wait(30)


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(node())
        cluster.load_image(python_image(reference=IMAGE, entrypoint=["python", "-u", "-c"]))
        for pod in (RAW_POD, PROXY_POD):
            stack.enter_context(echoing(cluster, pod))
        contender = stack.enter_context(proxy(cluster.kubeconfig, scratch))
        found = uvloop.run(measure(options, cluster.kubeconfig, contender))
        before = contender.cpu()
        said = ask(contender.port, LOAD, options.connections, options.seconds, scratch)
        if said["errors"] or not said["requests"]:
            raise SystemExit(f"under load: {said}")
        found["per_second"] = round(said["requests"] / options.seconds)
        found["proxy_cpu_us"] = round((contender.cpu() - before) / said["requests"] * 1e6, 1)
        found["loadavg"] = os.getloadavg()[0]
        return found


def budgeted(found: dict[str, Any]) -> dict[str, float | None]:
    # of the proxy alone: what the way through API server and kubelet takes is theirs, and varies
    growth = found["8 MiB"]["proxy_cpu_ms_per_mib"] / found["64 KiB"]["proxy_cpu_ms_per_mib"]
    return {"added_ms": found["added_ms"], "per_second": found["per_second"], "growth": round(growth, 2)}


def table(found: dict[str, Any]) -> None:
    print(f"load average {found['loadavg']:.1f}")
    rows = (
        ("round trip, p50 ms", "raw_ms", "proxy_ms", f"added {found['added_ms']:.2f}"),
        ("calls a second", "raw_per_second", "per_second", f"{found['proxy_cpu_us']} us of the proxy's CPU each"),
    )
    print(f"{'':22}{'raw':>10}{'proxy':>10}")
    for title, raw, through, remark in rows:
        print(f"{title:22}{found[raw]:10}{found[through]:10}   {remark}")
    for name in ("64 KiB", "8 MiB"):
        row = found[name]
        print(
            f"messages of {name:10}{row['ms_per_mib']:20.2f} ms a MiB, {row['proxy_cpu_ms_per_mib']} of the proxy's CPU"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=4)
    found = run(parser.parse_args())
    table(found)
    return finish("attach", budgeted(found), found)


if __name__ == "__main__":
    sys.exit(main())
