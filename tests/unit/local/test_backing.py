"""The files of the shared proxy: a contract with the proxy itself."""

from pathlib import Path

import msgspec
import pytest

from fairway.api import names
from fairway.kube.resource import CONFIG_MAP, POD
from fairway.local.backing import Front, SharedProxy
from fairway.mcp.http import HttpClient
from fairway.process.pace import RestartPace
from fairway.proxy.topology import FileTopology, TopologyFile
from tests.unit.local.objects import deployment, new_world, put_pod, set_ready

CONFIG = '{\n  "version": 1,\n  "routes": []\n}\n'


class Place:
    def __init__(self, path: Path) -> None:
        self.proxy = path / "proxy"

    def log_of(self, name):
        raise AssertionError("nothing is started here")

    remember = forget = watch = release = log_of


@pytest.fixture
def world():
    return new_world()


@pytest.fixture
def shared(world, tmp_path):
    place = Place(tmp_path)
    ports = {"default/a": 7001, "tools/a": 7002}
    front = Front(
        place=place,
        keeper=place,
        http=HttpClient(),
        admin_port=1,
        port_of=ports.__getitem__,
        inherited={},
        pace=RestartPace(),
    )
    return SharedProxy(world, front)


def runconfig(namespace, *, component=names.COMPONENT_PROXY, key=names.RUNCONFIG_KEY):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a-runconfig", "namespace": namespace, "labels": names.labels("a", component)},
        "data": {key: CONFIG},
    }


def service(selector):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a-endpoints", "namespace": "default"},
        "spec": {"selector": selector, "ports": [{"port": 8080, "targetPort": "mcp"}]},
    }


def files(tmp_path):
    return {path.name: path.read_text() for path in (tmp_path / "proxy/config").iterdir()}


def test_run_configs_are_written_byte_for_byte_and_nothing_else_is(world, shared, tmp_path):
    world.put(runconfig("default"))
    world.put(runconfig("tools"))
    world.put({**runconfig("other", component=names.COMPONENT_SERVER)})
    world.put({**runconfig("more", key="tools.py")})
    shared.write_files()
    assert files(tmp_path) == {"default.a-runconfig.json": CONFIG, "tools.a-runconfig.json": CONFIG}


def test_a_run_config_that_went_takes_its_file_along(world, shared, tmp_path):
    world.put(runconfig("default"))
    shared.write_files()
    world.delete(CONFIG_MAP.ref("default", "a-runconfig"))
    shared.write_files()
    assert files(tmp_path) == {}


def test_the_topology_is_one_that_the_proxy_reads(world, shared, tmp_path):
    world.put(runconfig("default"))
    world.put(service({"app": "hello"}))
    pod = put_pod(world, deployment(), host_port=20001)
    set_ready(world, pod)
    shared.write_files()
    read = msgspec.json.decode(shared.topology_file.read_bytes(), type=TopologyFile)
    assert read.listen == {"default/a": "127.0.0.1:7001"}
    (place,) = read.endpoints["default/a-endpoints"]
    assert (place.address, place.pod, place.uid) == ("127.0.0.1:20001", pod["metadata"]["name"], pod["metadata"]["uid"])
    followed = FileTopology(shared.topology_file)
    assert followed.refresh()
    assert followed.error == ""


@pytest.mark.anyio
async def test_a_pod_is_drained_at_once_where_no_proxy_runs(world, shared):
    pod = put_pod(world, deployment(), host_port=20001)
    await shared.drained(pod)
    world.delete(POD.ref("default", pod["metadata"]["name"]))
