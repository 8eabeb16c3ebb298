"""Every source of a server and every way to put a proxy before it, in pods: Ready, and a real client calls a tool.

All stand side by side in a namespace that admits restricted pods alone, and stay while the operator is upgraded.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

import fairway as product
from rig.api import ApiError, wait_for
from rig.elf import libraries_of
from rig.fairwayimage import fairway_image
from rig.image import Entry, tree
from rig.pyimage import SITE_PACKAGES, python_image
from rig.testcluster import RigCluster
from tests.installed import INDEX, NODE_IMAGE, InstalledFairway, condition
from tests.node.manifests import TOOLS, Object, from_image, inline, load_python, on_lines, server
from tests.packages import Index

pytestmark = pytest.mark.anyio

NODE_SERVER = """#!/usr/bin/env node
const tools = [{ name: "echo", inputSchema: { type: "object", properties: { text: { type: "string" } } } }];
const serverInfo = { name: "packaged", version: "1.0.0" };
const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo }),
  "tools/list": () => ({ tools }),
  "tools/call": (params) => ({ content: [{ type: "text", text: params.arguments.text }] }),
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = (answers[method] || (() => ({})))(params);
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"""
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "source"}, "stringData": {"tools": TOOLS}}
URL = "http://behind.{}.svc.cluster.local:8080/mcp"
SIDECAR, NONE = {"mode": "sidecar"}, {"mode": "none"}
NPM = "package-npm"

CASES: dict[str, Object] = {
    "image": from_image(),
    "stateful": from_image(workload="StatefulSet", replicas=2),
    "inline": inline(),
    "inline-secret": server(inlineTools={"secretKeyRef": {"name": "source", "key": "tools"}}),
    "stdio": on_lines(),
    "package": server(package={"pypi": "echo-server", "version": "1.0"}),
    NPM: server(package={"npm": "echo-node", "version": "1.0.0"}),
    "sidecar": from_image(proxy=SIDECAR),
    "sidecar-loopback": from_image(proxy=SIDECAR, listen="127.0.0.1"),
    "sidecar-inline": inline(replicas=2, proxy=SIDECAR),
    "behind": inline(proxy=NONE),
    "none": from_image(proxy=NONE),
    "service": server(serviceRef={"name": "behind", "port": 8080}),
    "remote": server(remote={"url": URL, "allowPrivate": True}),
}


@pytest.fixture(scope="module")
def packages(fairway: InstalledFairway) -> InstalledFairway:
    """An index in the cluster, where the operator of the tests looks for packages."""
    index = Index(origin=INDEX)
    index.add_wheel("echo-server", "1.0")
    index.add_node({"name": "echo-node", "version": "1.0.0", "bin": "it.js"}, {"it.js": NODE_SERVER})
    pages = {"npm/echo-node/index.html": "/npm/echo-node", "npm/echo-node/-/it.tgz": "/npm/echo-node/-/it.tgz"}
    others = {file: found[1] for file, path in pages.items() if (found := index.answer(path))}
    fairway.serve_packages(index.wheels, others)
    return fairway


def load_node(rig: RigCluster) -> None:
    """Node and npm of this machine as an image."""
    node, npm, env = (Path(found).resolve() for name in ("node", "npm", "env") if (found := shutil.which(name)))
    home = npm.parents[1]
    files = tree(home, at=str(home))
    files |= {"/usr/local/bin/node": Entry(source=node, mode=0o755), "/usr/bin/env": Entry(source=env, mode=0o755)}
    files |= {"/usr/local/bin/npm": Entry(link=str(npm))}
    files |= {str(path): Entry(source=path.resolve(), mode=0o755) for path in libraries_of([node, env]).values()}
    rig.load_image(python_image(reference=NODE_IMAGE, entrypoint=["node"], files=files))


def cases() -> dict[str, Object]:
    return {name: case for name, case in CASES.items() if name != NPM or shutil.which("npm")}


@pytest.fixture(scope="module")
def standing(packages: InstalledFairway) -> Iterator[tuple[InstalledFairway, str]]:
    rig = packages.rig
    load_python(rig)
    if NPM in cases():
        load_node(rig)
    namespace = rig.namespace("sources")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    rig.api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    packages.apply(namespace, SECRET)
    for name, case in cases().items():
        spec = dict(case["spec"])
        if "remote" in spec:
            spec["remote"] = {**spec["remote"], "url": URL.format(namespace)}
        packages.apply(namespace, server(name, **spec))
    yield packages, namespace
    rig.delete_namespace(namespace)


async def answers(url: str, *, text: str = "hi") -> None:
    """A client of each era lists the tool and calls it."""
    for mode in ("auto", "legacy"):
        async with Client(url, mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"], mode
            said = (await client.call_tool("echo", {"text": text})).content[0]
            assert getattr(said, "text", "").startswith(text), mode


def test_the_namespace_refuses_a_pod_that_is_not_restricted(standing: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = standing
    pod = {"containers": [{"name": "c", "image": "x:1"}]}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        fairway.rig.api.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lax"}, "spec": pod}, namespace=namespace
        )


@pytest.mark.parametrize("name", CASES)
async def test_every_source_becomes_ready_and_answers_clients_of_both_eras(
    standing: tuple[InstalledFairway, str], name: str
) -> None:
    if name not in cases():
        pytest.skip("UNTESTED without node and npm on the PATH")
    fairway, namespace = standing
    status = fairway.ready(namespace, name, seconds=180)
    assert status["tools"]["names"] == ["echo"]
    assert status["phase"] == "Ready"
    assert condition(status, "PodSecurity") == ("True", "Restricted")
    await answers(f"http://{fairway.address(namespace, name)}/mcp")


def test_an_upgrade_of_the_operator_restarts_no_pod_of_a_server(standing: tuple[InstalledFairway, str]) -> None:
    fairway, namespace = standing
    next_image = "fairway:next"
    init = Path(product.__file__).read_text().replace(product.__version__, "9.9.9")
    files = {f"{SITE_PACKAGES}/fairway/__init__.py": Entry(source=init.encode())}
    fairway.rig.load_image(fairway_image(next_image, files=files))

    def pods(component: str) -> dict[str, int]:
        return {
            pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
            for pod in fairway.pods(namespace, component=component)
        }

    def proxies_are_new() -> bool:
        images = [
            container["image"]
            for pod in fairway.pods(namespace, component="proxy")
            for container in pod["spec"]["containers"]
        ]
        return set(images) == {next_image}

    servers = pods("server")
    assert len(servers) >= len(CASES)
    InstalledFairway.on(fairway.rig, image=next_image)
    wait_for("the proxies to be replaced", proxies_are_new, seconds=180)
    for name in cases():
        fairway.ready(namespace, name, seconds=60)
    assert pods("server") == servers
    for name in ("image", "sidecar-inline", "none", "stdio"):
        anyio.run(answers, f"http://{fairway.address(namespace, name)}/mcp")
    # what a server's owner changes takes the new image along
    fairway.rig.api.merge(fairway.path(namespace, "inline"), {"spec": {"env": [{"name": "A", "value": "b"}]}})

    def image_of_inline() -> set[str]:
        found = fairway.pods(namespace, "inline", component="server")
        return {container["image"] for pod in found for container in pod["spec"]["containers"]}

    wait_for("the server to be replaced", lambda: image_of_inline() == {next_image}, seconds=60)
