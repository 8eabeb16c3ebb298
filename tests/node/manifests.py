"""MCPServers for tests with real pods, and the images that some of them run from."""

from typing import Any

from rig.fairwayimage import REFERENCE
from rig.image import Entry
from rig.pyimage import python_image
from rig.testcluster import RigCluster
from tests.packages import SERVER

Object = dict[str, Any]

TOOLS = "def echo(text: str) -> str:\n    return text\n"
PYTHON = "localhost/fairway-test-python:1"
"""Runs the code that its first argument is."""


def load_python(rig: RigCluster) -> None:
    rig.load_image(python_image(reference=PYTHON, entrypoint=["python", "-c"]))


def server(name: str = "hello", **spec: Any) -> Object:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}


def tool_config(*tools: str, name: str = "few", **override: Any) -> Object:
    spec = {"filter": list(tools), **({"override": override} if override else {})}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "MCPToolConfig", "metadata": {"name": name}, "spec": spec}


def inline(name: str = "hello", *, code: str = TOOLS, **spec: Any) -> Object:
    return server(name, inlineTools={"python": code}, **spec)


def from_image(name: str = "hello", *, listen: str = "0.0.0.0", **spec: Any) -> Object:
    """Inline tools' own server as somebody's image."""
    args = ["tools", "--file", "/etc/mcp/tools.py", "--host", listen]
    return server(name, **{"image": REFERENCE, "args": args, "config": {"tools.py": TOOLS}, **spec})


def from_code(name: str, code: str, **spec: Any) -> Object:
    """A server that is this program."""
    return server(name, image=PYTHON, imagePullPolicy="Never", args=[code], **spec)


def on_lines(name: str = "hello", **spec: Any) -> Object:
    return from_code(name, SERVER + "\nmain()\n", transport="stdio", **spec)


def fairway_code(name: str, code: str, **spec: Any) -> Object:
    """A server that is this program, with what our own image has to import."""
    return server(name, image=REFERENCE, command=["python", "-c", code], **spec)


def rooted_image(rig: RigCluster) -> str:
    """An image whose program only root may start."""
    reference = "localhost/fairway-test-rooted:1"
    entry = Entry(source=b"#!/usr/local/bin/python3\n", mode=0o700)
    rig.load_image(python_image(reference=reference, entrypoint=["/opt/run"], files={"/opt/run": entry}))
    return reference
