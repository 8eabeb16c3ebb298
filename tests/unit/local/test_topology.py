"""Which pods are behind a Service."""

from fairway.local.topology import endpoints_of


def service(name, selector, port="mcp", namespace="default"):
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": port}]},
    }


def pod(name, labels, *, ready=True, namespace="default", gone=False, host_port=20001):
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": labels,
            **({"deletionTimestamp": "now"} if gone else {}),
        },
        "spec": {"containers": [{"ports": [{"name": "mcp", "containerPort": 8080, "hostPort": host_port}]}]},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def test_ready_pods_with_the_labels_are_listed_by_name():
    pods = [pod("b", {"app": "x", "more": "y"}, host_port=20002), pod("a", {"app": "x"}), pod("c", {"app": "z"})]
    assert endpoints_of([service("s", {"app": "x"})], pods) == {
        "default/s": [
            {"address": "127.0.0.1:20001", "pod": "a", "uid": "uid-a"},
            {"address": "127.0.0.1:20002", "pod": "b", "uid": "uid-b"},
        ]
    }


def test_pods_that_are_not_ready_are_left_out():
    pods = [pod("a", {"app": "x"}, ready=False), pod("b", {"app": "x"}, ready=False, gone=True)]
    assert endpoints_of([service("s", {"app": "x"})], pods) == {"default/s": []}


def test_a_pod_on_its_way_out_serves_until_it_is_released():
    leaving = pod("a", {"app": "x"}, gone=True)
    assert len(endpoints_of([service("s", {"app": "x"})], [leaving])["default/s"]) == 1
    assert endpoints_of([service("s", {"app": "x"})], [leaving], released={"uid-a"}) == {"default/s": []}


def test_a_service_does_not_reach_into_another_namespace():
    assert endpoints_of([service("s", {"app": "x"})], [pod("a", {"app": "x"}, namespace="other")]) == {"default/s": []}


def test_a_target_port_may_be_a_number_and_one_that_no_pod_has_leads_nowhere():
    found = endpoints_of([service("s", {"app": "x"}, 8080), service("t", {"app": "x"}, "no")], [pod("a", {"app": "x"})])
    assert len(found["default/s"]) == 1
    assert found["default/t"] == []


def test_a_service_without_selector_is_not_ours_to_fill():
    assert endpoints_of([service("s", None)], [pod("a", {})]) == {}
