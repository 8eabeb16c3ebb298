from rig.addons import DNS_LABELS, dns_manifests, dns_reference
from rig.state import Network

MANIFESTS = {manifest["kind"]: manifest for manifest in dns_manifests(Network(block=200), image=dns_reference())}


def test_the_name_server_may_only_look() -> None:
    rules = MANIFESTS["ClusterRole"]["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}
    assert {resource for rule in rules for resource in rule["resources"]} == {"services", "endpointslices"}


def test_the_name_server_has_the_labels_that_policies_and_people_look_for() -> None:
    pod = MANIFESTS["Deployment"]["spec"]["template"]
    assert pod["metadata"]["labels"] == DNS_LABELS == {"k8s-app": "kube-dns"}
    assert MANIFESTS["Service"]["spec"]["selector"] == DNS_LABELS
    assert MANIFESTS["Service"]["spec"]["clusterIP"] == Network(block=200).dns_service
    # Policies that admit port 53 look at the pod's port.
    assert pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 53


def test_the_name_server_is_not_root() -> None:
    pod = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
