"""Every reviewed set of objects on a real API server: stored as meant, and a second look finds nothing to do."""

import pytest

import fairway
from fairway.api import names
from fairway.controllers.mcpserver.desired import desired
from fairway.controllers.mcpserver.workload import pod_of
from fairway.controllers.resources import CATALOGUE, CHILDREN, MCP_SERVER, OPTIONAL
from fairway.kube.client import Client
from fairway.kube.config import load_access
from fairway.kube.transport import Transport
from fairway.runtime.apply import ClusterWorld
from fairway.runtime.store import Store
from rig.api import ApiError
from tests.cluster.controllers.conftest import HANDS_OFF
from tests.unit.controllers.mcpserver.samples import SETTINGS, inputs, server
from tests.unit.controllers.mcpserver.test_desired import FIXTURES
from tests.unit.controllers.mcpserver.test_podsecurity import CASES

pytestmark = pytest.mark.anyio
KINDS = [kind for kind in CHILDREN if kind not in OPTIONAL]
"""Those that the rig has."""


@pytest.mark.parametrize("name", FIXTURES)
async def test_applied_twice_the_second_time_writes_nothing(rig_api, rig_namespace, name):
    obj, config, *held = FIXTURES[name]
    metadata = {"name": obj["metadata"]["name"], "labels": {HANDS_OFF: "true"}}
    owner = rig_api.api.apply({**obj, "metadata": metadata}, namespace=rig_namespace)
    owner = {**owner, "apiVersion": MCP_SERVER.api_version, "kind": MCP_SERVER.kind}
    gathered = inputs(owner, config, *held)
    transport = Transport(load_access(kubeconfig=rig_api.kubeconfig), user_agent=f"fairway-test/{fairway.__version__}")
    async with Client(transport, field_manager=names.FIELD_MANAGER) as client:
        store = Store()
        for resource in KINDS:
            store.register(resource, scopes=(rig_namespace,))
            await listed(client, store, resource, rig_namespace)
        world = ClusterWorld(
            client=client, store=store, catalogue=CATALOGUE, hash_annotation=names.ANNOTATION_APPLIED_HASH
        )
        objects = desired(gathered, SETTINGS)
        first = await world.apply(owner=owner, objects=objects)
        assert first.complete, first
        assert len(first.changed) == len(objects)
        for resource in KINDS:  # as after a restart: nothing is remembered, all is read anew
            await listed(client, store, resource, rig_namespace)
        again = ClusterWorld(
            client=client, store=store, catalogue=CATALOGUE, hash_annotation=names.ANNOTATION_APPLIED_HASH
        )
        second = await again.apply(owner=owner, objects=objects)
        assert second.complete
        assert second.changed == ()
        assert again.counts.writes == 0


@pytest.mark.parametrize("name", CASES)
def test_pod_security_admission_agrees_on_what_is_restricted(rig_api, rig_namespace, name):
    namespace = f"/api/v1/namespaces/{rig_namespace}"
    rig_api.api.merge(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hello"}}
    rig_api.api.apply(account, namespace=rig_namespace)
    spec, said = CASES[name]
    _, pod = pod_of(inputs(server(image="w", **spec)), SETTINGS)
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod}
    try:
        rig_api.api.post(f"{namespace}/pods?dryRun=All", made)
    except ApiError as error:
        assert error.status == 403, error
        assert said is not None, error
    else:
        assert said is None


async def listed(client, store, resource, namespace):
    page = await client.list_page(resource, namespace=namespace)
    store.begin(resource, namespace)
    for obj in page.items:
        store.stage(resource, obj, namespace)
    store.commit(resource, page.resource_version, namespace)
