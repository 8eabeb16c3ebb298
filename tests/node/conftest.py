import pytest

from rig.testcluster import RigCluster
from tests.installed import InstalledFairway


@pytest.fixture(scope="session")
def fairway(rig_node: RigCluster) -> InstalledFairway:
    return InstalledFairway.on(rig_node)
