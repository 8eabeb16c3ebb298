"""get, describe, logs, wait and tools on a cluster."""

import json

import pytest

from tests.cluster.controllers.conftest import until

TOOLS = {"inlineTools": {"python": "def add(a: int, b: int) -> int:\n    return a + b\n"}}


def server(name="hello", **spec):
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": name},
        "spec": spec or TOOLS,
    }


@pytest.fixture
def hello(operator, rig_api, rig_namespace, fairway):
    """A server whose objects are made; its pods wait for a node that this tier does not have."""
    rig_api.api.apply(server(), namespace=rig_namespace)
    done = fairway("wait", "hello", "--for", "WorkloadReady=False", "--timeout", "20")
    assert done.returncode == 0, done.stderr
    until("Unschedulable", lambda: "Unschedulable" in fairway("describe", "hello").stdout)


def test_get_shows_what_kubectl_shows(hello, rig_api, rig_namespace, fairway):
    ours = fairway("get").stdout.splitlines()
    theirs = rig_api.kubectl("get", "mcps", "-n", rig_namespace).splitlines()
    assert ours[0].split() == theirs[0].split()
    assert ours[1].split()[:-1] == theirs[1].split()[:-1]  # the age may have moved on
    assert fairway("get", "-o", "name").stdout == rig_api.kubectl("get", "mcps", "-n", rig_namespace, "-o", "name")
    assert json.loads(fairway("get", "hello", "-o", "json").stdout)["metadata"]["namespace"] == rig_namespace
    everywhere = fairway("get", "mcps", "-A").stdout
    assert everywhere.split()[0] == "NAMESPACE"
    assert rig_namespace in everywhere


def test_describe_says_why_the_pods_do_not_run(hello, fairway):
    said = fairway("describe", "hello")
    assert said.returncode == 0, said.stderr
    assert "hello  Pending" in said.stdout
    assert "Ready=False" in said.stdout
    assert "do: no node takes the pod" in said.stdout
    assert "no nodes available" in said.stdout.partition("pods:")[2]


def test_logs_of_pods_that_never_ran_are_an_explanation_and_no_traceback(hello, fairway):
    said = fairway("logs", "hello")
    assert said.returncode == 0
    assert "Traceback" not in said.stderr


def test_wait_times_out_with_what_is_instead(hello, fairway):
    said = fairway("wait", "hello", "--timeout", "0")
    assert said.returncode == 1
    assert "Unschedulable" in said.stderr


def test_tools_that_nobody_knows_yet_are_said_to_be_unknown(hello, fairway):
    said = fairway("tools", "hello")
    assert said.returncode == 1
    assert "not known yet" in said.stderr


def test_what_is_not_there_is_named_with_the_nearest(hello, fairway):
    said = fairway("describe", "helo")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "did you mean hello?" in said.stderr


def test_without_the_right_to_see_pods_the_rest_is_shown(hello, rig_api, rig_namespace, fairway):
    rig_api.api.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}, namespace=rig_namespace
    )
    rig_api.kubectl("create", "role", "reader", "--verb=get,list", "--resource=mcpservers", "-n", rig_namespace)
    rig_api.kubectl(
        *("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={rig_namespace}:reader"),
        *("-n", rig_namespace),
    )
    kubeconfig = rig_api.service_account_kubeconfig(rig_namespace, "reader")
    said = fairway("describe", "hello", kubeconfig=kubeconfig)
    assert said.returncode == 0, said.stderr
    assert "Ready=False" in said.stdout
    assert "not shown: pods is forbidden" in said.stdout
    refused = fairway("get", "mtc", kubeconfig=kubeconfig)
    assert refused.returncode == 2
    assert "ask for that right" in refused.stderr
