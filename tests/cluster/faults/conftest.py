"""A fault proxy before the real API server, fresh for every test."""

from collections.abc import Iterator

import pytest

from rig.api import Api
from rig.testcluster import RigCluster
from tests.faultproxy import FaultProxy


@pytest.fixture
def proxy(rig_api: RigCluster) -> Iterator[FaultProxy]:
    with FaultProxy.start(rig_api.kubeconfig) as started:
        yield started


@pytest.fixture
def through(proxy: FaultProxy) -> Api:
    """A plain client of the proxy."""
    return Api.from_kubeconfig(proxy.kubeconfig)
