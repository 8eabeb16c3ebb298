"""A fault proxy before the real API server, fresh for every test, and toys to run through it."""

import time
from collections.abc import Callable, Iterator

import pytest

from rig.api import Api, ApiError, condition_of, wait_for
from rig.pytest_plugin import can_run
from rig.testcluster import RigCluster
from tests.faultproxy import FaultProxy, toy
from tests.faultproxy.scene import Idle, References, Scene


@pytest.fixture
def proxy(rig_api: RigCluster) -> Iterator[FaultProxy]:
    with FaultProxy.start(rig_api.kubeconfig) as started:
        yield started


@pytest.fixture
def through(proxy: FaultProxy) -> Api:
    """A plain client of the proxy."""
    return Api.from_kubeconfig(proxy.kubeconfig)


@pytest.fixture(scope="session")
def toys_served(rig_api: RigCluster) -> None:
    """The API server knows what a Toy is."""
    rig_api.api.apply(toy.CRD)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{toy.CRD['metadata']['name']}"
    wait_for(
        "the CRD of the toys",
        lambda: condition_of(rig_api.api.get(path), "Established") == "True",
        seconds=60,
    )
    wait_for("the toys to be served", lambda: _served(rig_api.api), seconds=60)


@pytest.fixture(scope="session")
def references(rig_api: RigCluster, toys_served: None) -> References:
    """End states of runs without faults."""
    return References(rig_api)


@pytest.fixture(scope="session")
def idle(rig_api: RigCluster, references: References) -> Iterator[Idle]:
    """Toys that have nothing to do."""
    scene = Scene(rig_api, references)
    try:
        scene.started([toy.toy(f"t{number}", pages=1) for number in range(5)])
        yield Idle(scene, time.monotonic(), scene.proxy.mark)
    finally:
        scene.close()


@pytest.fixture(scope="session", autouse=True)
def _idleness_begins_early(request: pytest.FixtureRequest) -> None:
    # Its minute passes while the other tests are at work.
    if can_run(request.config, "rig_api") and any(
        "idle" in getattr(item, "fixturenames", ()) for item in request.session.items
    ):
        request.getfixturevalue("idle")


@pytest.fixture
def new_scene(rig_api: RigCluster, references: References) -> Iterator[Callable[..., Scene]]:
    """Makes scenes: a namespace, proxies, toys. All of it ends with the test."""
    made: list[Scene] = []

    def new(*, replicas: int = 1, options: tuple[str, ...] = ()) -> Scene:
        scene = Scene(rig_api, references, replicas=replicas, options=options)
        made.append(scene)
        return scene

    yield new
    for scene in made:
        scene.close()


@pytest.fixture
def scene(new_scene: Callable[..., Scene]) -> Scene:
    """A namespace with one toy behind one proxy, not yet started."""
    return new_scene()


def _served(api: Api) -> bool:
    try:
        return bool(api.get(f"/apis/{toy.GROUP}/v1/toys"))
    except ApiError:
        return False
