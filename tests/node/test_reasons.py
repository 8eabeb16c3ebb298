"""What keeps a server from being Ready, told from pods that really are in trouble: the word, and what to change."""

from collections.abc import Iterator

import pytest

from tests.installed import InstalledFairway, condition
from tests.node.manifests import Object, fairway_code, from_code, from_image, inline, load_python, rooted_image, server

GREEDY = "x = bytearray(400 << 20)\n\n\ndef f() -> int:\n    return len(x)\n"
OLD_TRANSPORT = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/sse":
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\\ndata: /messages?s=1\\n\\n")
    def do_POST(self):
        self.send_error(404)
    def log_message(self, *_): ...
ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
PICKY = """
import asyncio
from fairway.mcp.endpoint import McpEndpoint
from fairway.mcp.http_server import HttpServer
from fairway.mcp.server import McpServer
async def main():
    server = McpServer(name="picky", version="1", tools=[])
    await HttpServer(McpEndpoint(server, path="/mcp", hosts=["127.0.0.1"])).listen(host="0.0.0.0", port=8080)
    await asyncio.Event().wait()
asyncio.run(main())
"""
DIALS = "import socket; socket.create_connection(('127.0.0.1', 8080), timeout=5).close()"
NONE = {"mode": "none"}

SICK: dict[str, Object] = {
    "ImagePullBackOff": server(
        "unpulled", image="made/never:1", registryOverride="registry.invalid", imagePullSecrets=["mine"], proxy=NONE
    ),
    "CrashLoopBackOff": inline("crashing", code="import nowhere\n\n\ndef add() -> int: ...\n", proxy=NONE),
    "OOMKilled": inline("greedy", code=GREEDY, resources={"limits": {"memory": "128Mi"}}, proxy=NONE),
    "Unschedulable": inline("huge", resources={"requests": {"cpu": "500"}}, proxy=NONE),
    "NotListening": from_image("elsewhere", port=9999, proxy=NONE, env=[{"name": "MCP_PORT", "value": "8080"}]),
    "ScaledToZero": inline("none", replicas=0, proxy=NONE),
    "ListensOnLoopback": from_image(
        "loopback",
        listen="127.0.0.1",
        probes={"readiness": {"exec": {"command": ["python", "-c", DIALS]}, "timeoutSeconds": 10}},
    ),
    "HandshakeFailed": from_code("old", OLD_TRANSPORT),
    "HostRefused": fairway_code("picky", PICKY),
}
SAYS = {
    "ImagePullBackOff": [
        "image registry.invalid/made/never:1",
        "registry from spec.registryOverride; pull secret mine",
    ],
    "CrashLoopBackOff": ["exited with code 1", "No module named 'nowhere'"],
    "OOMKilled": ["used more memory than its limit"],
    "Unschedulable": ["Insufficient cpu"],
    "ImageNeedsRoot": ["localhost/fairway-test-rooted:1", "permission denied"],
    "NotListening": ["nothing answers on port 9999 (spec.port)"],
    "ListensOnLoopback": ["nothing listens on :8080", "it seems to listen on 127.0.0.1"],
    "ScaledToZero": ["spec.replicas is 0"],
    "HandshakeFailed": ["POST /mcp answered 404", "GET /sse an event stream", "try sse"],
    "HostRefused": ["set spec.upstreamHost: 127.0.0.1:8080"],
}
NOT_FAILED = {"ScaledToZero": "Pending", "Unschedulable": "Pending", "NotListening": "Pending"}


@pytest.fixture(scope="module")
def sick(fairway: InstalledFairway) -> Iterator[tuple[InstalledFairway, str]]:
    """All of them at once, so that waiting for them costs no more than waiting for the slowest."""
    load_python(fairway.rig)
    rooted = server("rooted", image=rooted_image(fairway.rig), imagePullPolicy="Never", proxy=NONE)
    namespace = fairway.rig.namespace("sick")
    fairway.apply(namespace, *SICK.values(), rooted)
    yield fairway, namespace
    fairway.rig.delete_namespace(namespace)


@pytest.mark.parametrize("reason", SAYS)
def test_the_reason_is_the_very_one_and_says_what_to_change(sick: tuple[InstalledFairway, str], reason: str) -> None:
    fairway, namespace = sick
    name = SICK[reason]["metadata"]["name"] if reason in SICK else "rooted"

    def told(status: Object) -> bool:
        is_so = condition(status, "Ready") == ("False", reason)
        return is_so and all(words in status.get("message", "") for words in SAYS[reason])

    status = fairway.until(namespace, name, reason, told, seconds=90)
    assert condition(status, "Available")[0] == "False"
    assert status["phase"] == NOT_FAILED.get(reason, "Failed")


def test_following_the_advice_makes_the_server_ready(sick: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = sick
    for name, change in {
        "picky": {"upstreamHost": "127.0.0.1:8080"},
        "greedy": {"resources": {"limits": {"memory": "640Mi"}}},
        "elsewhere": {"port": 8080},
        "none": {"replicas": 1},
        "loopback": {"proxy": {"mode": "sidecar"}},
    }.items():
        fairway.rig.api.merge(fairway.path(namespace, name), {"spec": change})
    for name in ("picky", "greedy", "elsewhere", "none", "loopback"):
        fairway.ready(namespace, name, seconds=90)
