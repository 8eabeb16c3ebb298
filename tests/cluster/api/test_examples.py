"""Every example as a real API server takes it."""

from handbook.examples import examples
from rig.state import REPOSITORY
from rig.testcluster import RigCluster

NAMESPACED = {
    "MCPServer": "/apis/fairway.dev/v1alpha1/namespaces/{}/mcpservers",
    "MCPToolConfig": "/apis/fairway.dev/v1alpha1/namespaces/{}/mcptoolconfigs",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}


def test_the_api_server_takes_every_object_and_drops_no_field_of_it(rig_api: RigCluster, rig_namespace: str):
    count = 0
    for example in examples(REPOSITORY / "examples"):
        for obj in example.objects:
            body = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "namespace"}}
            # strict: a field that the schema does not know is an error, and not a field that silently goes
            rig_api.api.post(NAMESPACED[obj["kind"]].format(rig_namespace) + "?dryRun=All&fieldValidation=Strict", body)
            count += 1
    assert count > 60
