import pytest

from rig.testcluster import RigCluster
from tests.installed import InstalledFairway

CLUSTER = "cluster"


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test in a place that is a cluster needs the rig's node tier; the rig prepares it for those that name it."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None and callspec.params.get("place") == CLUSTER:
        # a list of its own: pytest shares one among all cases of a test
        item.fixturenames = [*item.fixturenames, "rig_node"]  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def fairway(rig_node: RigCluster) -> InstalledFairway:
    return InstalledFairway.on(rig_node)
