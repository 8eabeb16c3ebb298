"""Every source of a server and every way to put a proxy before it, in pods: Ready, and a real client calls a tool."""

from typing import Any

import pytest
from mcp import Client

from rig.fairwayimage import REFERENCE
from rig.pyimage import python_image
from tests.installed import InstalledFairway
from tests.packages import SERVER, wheel

pytestmark = pytest.mark.anyio

TOOLS = "def echo(text: str) -> str:\n    return text\n"
STDIO = "localhost/fairway-test-lines:1"
HTTP = """
import os
from fairway.tools.main import run
from pathlib import Path
raise SystemExit(run(file=Path("/etc/mcp/tools.py"), port=int(os.environ["MCP_PORT"])))
"""
OVER_HTTP = (
    "import pathlib, sys\n"
    + "def main():\n    "
    + "\n    ".join(
        [
            "from fairway.tools.main import run",
            "source = pathlib.Path('/tmp/tools.py')",
            f"source.write_text({TOOLS!r})",
            "sys.exit(run(file=source, port=int(sys.argv[1])))",
        ]
    )
)


def server(name: str = "hello", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}


def from_image(**spec: Any) -> dict[str, Any]:
    """Inline tools' own server as somebody's image: it listens where MCP_PORT says."""
    return {"image": REFERENCE, "args": ["tools", "--file", "/etc/mcp/tools.py"], "config": {"tools.py": TOOLS}} | spec


def on_lines(**spec: Any) -> dict[str, Any]:
    return {"image": STDIO, "imagePullPolicy": "Never", "transport": "stdio", "args": [SERVER + "\nmain()\n"]} | spec


SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "source"}, "stringData": {"tools": TOOLS}}
BEHIND = server("behind", inlineTools={"python": TOOLS}, proxy={"mode": "none"})

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "image": (from_image(), []),
    "image in a stateful set": (from_image(workload="StatefulSet", replicas=2), []),
    "inline": ({"inlineTools": {"python": TOOLS}}, []),
    "inline from a secret": ({"inlineTools": {"secretKeyRef": {"name": "source", "key": "tools"}}}, [SECRET]),
    "stdio image by attach": (on_lines(), []),
    "package over stdio": ({"package": {"pypi": "echo-server", "version": "1.0"}}, []),
    "sidecar": (from_image(proxy={"mode": "sidecar"}), []),
    "sidecars": ({"inlineTools": {"python": TOOLS}, "replicas": 2, "proxy": {"mode": "sidecar"}}, []),
    "none": (from_image(proxy={"mode": "none"}), []),
    "serviceRef": ({"serviceRef": {"name": "behind", "port": 8080}}, [BEHIND]),
}


@pytest.fixture(scope="module")
def packages(fairway: InstalledFairway) -> InstalledFairway:
    name, data = wheel("echo-server", "1.0")
    fairway.serve_packages({name: data})
    return fairway


async def answers(url: str, *, text: str = "hi") -> None:
    """A client of each era lists the tool and calls it."""
    for mode in ("auto", "legacy"):
        async with Client(url, mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"], mode
            said = (await client.call_tool("echo", {"text": text})).content[0]
            assert getattr(said, "text", "").startswith(text), mode


@pytest.mark.parametrize("name", CASES)
async def test_every_source_becomes_ready_and_answers_clients_of_both_eras(
    packages: InstalledFairway, rig_node_namespace: str, name: str
) -> None:
    spec, beside = CASES[name]
    packages.rig.load_image(python_image(reference=STDIO, entrypoint=["python", "-c"]))
    packages.apply(rig_node_namespace, *beside, server(**spec))
    status = packages.ready(rig_node_namespace, "hello", seconds=120)
    assert status["tools"]["names"] == ["echo"]
    assert status["phase"] == "Ready"
    await answers(f"http://{packages.address(rig_node_namespace, 'hello')}/mcp")
