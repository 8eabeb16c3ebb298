"""The API tier: a real API server with the project's CRDs, real garbage collection and real RBAC."""

import json
import os
import secrets
import time
from pathlib import Path

import pytest

from rig.api import Api, ApiError, wait_for
from rig.crds import apply_crds
from rig.errors import RigError
from rig.process import ProcessTable, end_processes
from rig.state import State
from rig.testcluster import RigCluster, run_rig


def config_map(name: str, **metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def test_the_api_server_says_which_version_it_is(rig_api: RigCluster) -> None:
    version = rig_api.api.get("/version")
    assert version["gitVersion"].startswith("v1.")
    assert version["gitVersion"] != "v0.0.0-master"


def test_the_kubeconfig_is_readable_by_the_owner_alone(rig_api: RigCluster) -> None:
    assert rig_api.kubeconfig.stat().st_mode & 0o077 == 0


def test_namespaces_are_fresh_and_have_their_service_account(rig_api: RigCluster) -> None:
    first, second = rig_api.namespace(), rig_api.namespace()
    assert first != second
    for name in (first, second):
        assert rig_api.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")
        assert rig_api.api.items(f"/api/v1/namespaces/{name}/pods") == []


def test_the_projects_own_kinds_are_served(rig_api: RigCluster) -> None:
    groups = [group["name"] for group in rig_api.api.get("/apis")["groups"]]
    assert "fairway.dev" in groups


def test_an_object_whose_owner_goes_is_collected(rig_api: RigCluster, rig_namespace: str) -> None:
    path = f"/api/v1/namespaces/{rig_namespace}/configmaps"
    owner = rig_api.api.post(path, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    rig_api.api.post(path, config_map("owned", ownerReferences=[reference]))
    rig_api.api.delete(f"{path}/owner")
    wait_for("the owned object to be collected", lambda: rig_api.api.find(f"{path}/owned") is None, seconds=30)


def test_an_object_owned_by_one_of_our_kinds_is_collected_at_once(rig_api: RigCluster, rig_namespace: str) -> None:
    # The collector learns of kinds that appear after its start only every 30 s.
    kind = f"/apis/fairway.dev/v1alpha1/namespaces/{rig_namespace}/mcpservers"
    server = {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": "owner"},
        "spec": {"image": "example.invalid/server:1"},
    }
    owner = rig_api.api.post(kind, server)
    reference = {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    maps = f"/api/v1/namespaces/{rig_namespace}/configmaps"
    rig_api.api.post(maps, config_map("owned", ownerReferences=[reference]))
    rig_api.api.delete(f"{kind}/owner")
    began = time.monotonic()
    wait_for("the owned object to be collected", lambda: rig_api.api.find(f"{maps}/owned") is None, seconds=40)
    assert time.monotonic() - began < 10


def test_a_service_account_has_its_own_rights_and_no_more(rig_api: RigCluster, rig_namespace: str) -> None:
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": rig_namespace}
    for manifest in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [account],
        },
    ):
        rig_api.api.apply(manifest, namespace=rig_namespace)
    reader = Api.from_kubeconfig(rig_api.service_account_kubeconfig(rig_namespace, "reader"))
    # RBAC reads its rules from a cache that may be a moment behind.
    path = f"/api/v1/namespaces/{rig_namespace}/configmaps"
    wait_for("the right to list", lambda: allowed(reader, path), seconds=10)
    with pytest.raises(ApiError) as refused:
        reader.get(f"/api/v1/namespaces/{rig_namespace}/secrets")
    assert refused.value.status == 403


def allowed(api: Api, path: str) -> bool:
    try:
        return bool(api.get(path))
    except ApiError as error:
        assert error.status == 403
        return False


@pytest.mark.skipif(bool(os.environ.get("RIG_KUBECONFIG")), reason="a cluster that was given may not keep an audit log")
def test_the_audit_log_names_who_did_what(rig_api: RigCluster, rig_namespace: str) -> None:
    name = f"audited-{secrets.token_hex(4)}"
    rig_api.api.apply(config_map(name), namespace=rig_namespace)
    log = rig_api.audit_log
    assert log is not None
    wait_for("the event in the audit log", lambda: name in log.read_text(), seconds=10)
    events = [json.loads(line) for line in log.read_text().splitlines() if name in line]
    assert [event["verb"] for event in events] == ["patch"]
    assert events[0]["user"]["username"] == "admin"
    assert "requestObject" not in events[0]


def test_the_same_object_applied_twice_is_written_once(rig_api: RigCluster, rig_namespace: str) -> None:
    first = rig_api.api.apply(config_map("same"), namespace=rig_namespace)
    second = rig_api.api.apply(config_map("same"), namespace=rig_namespace)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_a_quiet_resource_can_be_listed_at_a_recent_version(rig_api: RigCluster, rig_namespace: str) -> None:
    # An etcd without progress notification answers this with 504 after seconds; clients then relist for ever.
    written = rig_api.api.apply(config_map("recent"), namespace=rig_namespace)
    version = written["metadata"]["resourceVersion"]
    began = time.monotonic()
    rig_api.api.get(f"/apis/policy/v1/poddisruptionbudgets?resourceVersion={version}")
    assert time.monotonic() - began < 2


def crd(name: str, plural: str, **schema: object) -> dict[str, object]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": "rig.test",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural.title()},
            "versions": [version],
        },
    }


def test_new_kinds_are_served_when_applying_returns(rig_api: RigCluster, tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(json.dumps(crd("boats.rig.test", "boats", type="object")))
    (tmp_path / "other.yaml").write_text(json.dumps(config_map("not-a-crd")))
    try:
        assert apply_crds(rig_api.api, tmp_path) == ["boats.rig.test"]
        assert rig_api.api.items("/apis/rig.test/v1/boats") == []
        assert apply_crds(rig_api.api, tmp_path) == []
    finally:
        rig_api.api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.rig.test")


def test_a_crd_that_the_server_refuses_is_named(rig_api: RigCluster, tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(json.dumps(crd("cars.rig.test", "cars", type="nonsense")))
    with pytest.raises(RigError, match=r"refuses the CRD cars\.rig\.test"):
        apply_crds(rig_api.api, tmp_path)


@pytest.mark.skipif(bool(os.environ.get("RIG_KUBECONFIG")), reason="starts a cluster of its own")
def test_up_starts_what_is_missing_and_keeps_what_was_stored(rig_api: RigCluster, tmp_path: Path) -> None:
    state = State(root=tmp_path / "rig")
    table = ProcessTable(run=state.run, logs=state.logs)
    owner = ["--quiet", "--owner", str(os.getpid())]
    try:
        run_rig("up", *owner, state=state)
        api = Api.from_kubeconfig(state.kubeconfig)
        api.apply(config_map("kept"))
        before = {name: table.pid(name) for name in table.names()}
        run_rig("up", *owner, state=state)
        assert {name: table.pid(name) for name in table.names()} == before

        killed = before["kube-controller-manager"]
        assert killed is not None
        end_processes([killed])
        run_rig("up", *owner, "--apiserver-option=--min-request-timeout=60", state=state)
        after = {name: table.pid(name) for name in table.names()}
        changed = {name for name in after if after[name] != before[name]}
        assert changed == {"kube-controller-manager", "kube-apiserver"}

        run_rig("down", state=state)
        assert not any(table.pid(name) for name in before)
        run_rig("up", *owner, state=state)
        # The same address and the same certificates: the kubeconfig that somebody holds stays good.
        assert api.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"a": "1"}
    finally:
        run_rig("down", "--wipe", state=state)
    assert not state.root.exists()
    assert rig_api.api.is_ready(), "the other rig on this machine goes on"
