"""`fairway install` against a real API server."""

import subprocess
import sys


def install(rig, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "fairway", "install", "--kubeconfig", str(rig.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def removed(rig, namespace):
    rig.api.delete(f"/api/v1/namespaces/{namespace}")
    for plural in ("clusterroles", "clusterrolebindings"):
        rig.api.delete(f"/apis/rbac.authorization.k8s.io/v1/{plural}/fairway-operator-{namespace}")


def test_everything_is_installed_once_and_left_alone_the_second_time(rig_api):
    namespace = "install-test"
    first = install(rig_api, "--image", "fairway:test", "--timeout", "0", "-n", namespace)
    assert first.returncode == 0, first.stderr
    assert "created    Deployment/fairway-operator" in first.stdout
    again = install(rig_api, "--image", "fairway:test", "--timeout", "0", "-n", namespace)
    assert again.returncode == 0, again.stderr
    assert {line.split()[0] for line in again.stdout.splitlines()} == {"unchanged"}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/fairway-operator"
    assert rig_api.api.get(path)["spec"]["template"]["spec"]["containers"][0]["image"] == "fairway:test"
    removed(rig_api, namespace)


def test_only_the_kinds_are_installed_when_only_they_are_asked_for(rig_api):
    done = install(rig_api, "--crds-only")
    assert done.returncode == 0, done.stderr
    assert {line.split()[1].split("/")[0] for line in done.stdout.splitlines()} == {"CustomResourceDefinition"}


def test_an_operator_that_does_not_become_ready_is_named(rig_api):
    namespace = "install-slow"
    done = install(rig_api, "--image", "fairway:test", "--timeout", "1", "-n", namespace)
    assert done.returncode == 1
    assert done.stderr == "not ready after 1 s: Deployment/fairway-operator\n"
    removed(rig_api, namespace)


def test_a_kubeconfig_that_does_not_exist_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fairway", "install", "--kubeconfig", str(tmp_path / "none")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "none") in done.stderr
