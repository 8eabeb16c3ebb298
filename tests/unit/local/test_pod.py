"""Pod objects and their status."""

import copy

from fairway.controllers.mcpserver import pods as controller_view
from fairway.local import pod as pods
from fairway.local.pod import Container, from_template, status_of, template_hash, terminated

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "hello", "namespace": "tools", "uid": "d-1"},
    "spec": {
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"app": "hello"}, "annotations": {"digest": "x"}},
            "spec": {
                "containers": [
                    {"name": "server", "image": "i", "ports": [{"name": "mcp", "containerPort": 8080}]},
                ]
            },
        },
    },
}


def made():
    return from_template(DEPLOYMENT, suffix="abcde", host_ports={8080: 20001})


def test_a_pod_has_the_name_labels_and_owner_that_kubernetes_would_give_it():
    pod = made()
    revision = template_hash(DEPLOYMENT)
    assert pod["metadata"]["name"] == f"hello-{revision}-abcde"
    assert pod["metadata"]["labels"] == {"app": "hello", "pod-template-hash": revision}
    assert pod["metadata"]["annotations"] == {"digest": "x"}
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "d-1"


def test_host_ports_are_recorded_in_the_pod_and_not_in_the_deployment():
    before = copy.deepcopy(DEPLOYMENT)
    pod = made()
    assert pods.host_ports(pod) == {8080: 20001}
    assert before == DEPLOYMENT


def test_the_hash_is_of_the_template_alone():
    scaled = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}}
    assert template_hash(scaled) == template_hash(DEPLOYMENT)
    changed = copy.deepcopy(DEPLOYMENT)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "j"
    assert template_hash(changed) != template_hash(DEPLOYMENT)


def test_ports_are_found_by_name_and_by_number():
    spec = made()["spec"]
    assert pods.named_port(spec, "mcp") == 8080
    assert pods.named_port(spec, 9000) == 9000
    assert pods.named_port(spec, "none") is None


def test_a_status_is_read_by_the_controllers_as_it_is_meant():
    starting = Container("server", "i")
    running = starting.running(since="2026-01-01T00:00:00Z")
    ready = Container("server", "i", state=running.state, ready=True)
    exit_ = terminated(exit_code=3, signal=0, started="a", finished="b", message="tools.py:1: no")
    crashed = running.crashed(exit_, wait=2.0)
    refused = starting.waits("NeedsContainerRuntime", "image x needs a container runtime")

    def seen(container):
        return {**made(), "status": status_of(made(), [container], now="2026-01-01T00:00:00Z")}

    assert controller_view.is_ready(seen(ready))
    assert controller_view.is_running(seen(running))
    assert not controller_view.is_ready(seen(running))
    assert not controller_view.is_running(seen(starting))
    problem = controller_view.problem([seen(crashed)])
    assert problem.reason == "CrashLoopBackOff"
    assert problem.message == "the container exited with code 3: tools.py:1: no"
    assert controller_view.problem([seen(refused)]).reason == "NeedsContainerRuntime"
    assert seen(starting)["status"]["phase"] == "Pending"
    assert seen(crashed)["status"]["phase"] == "Running"


def test_a_signal_shows_as_a_container_runtime_would_show_it():
    ended = terminated(exit_code=0, signal=9, started="a", finished="b", message="")
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")
    assert terminated(exit_code=0, signal=0, started="a", finished="b", message="")["reason"] == "Completed"


def test_a_transition_time_is_kept_until_the_condition_flips():
    pod = made()
    pod["status"] = status_of(pod, [Container("server", "i")], now="t1")
    pod["status"] = status_of(pod, [Container("server", "i").running(since="t2")], now="t2")
    times = {c["type"]: c["lastTransitionTime"] for c in pod["status"]["conditions"]}
    assert set(times.values()) == {"t1"}
    pod["status"] = status_of(pod, [Container("server", "i", state={"running": {}}, ready=True)], now="t3")
    times = {c["type"]: c["lastTransitionTime"] for c in pod["status"]["conditions"]}
    assert times == {"PodScheduled": "t1", "Initialized": "t1", "ContainersReady": "t3", "Ready": "t3"}
    assert pod["status"]["startTime"] == "t1"
