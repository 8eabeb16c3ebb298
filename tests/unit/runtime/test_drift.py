"""Drift: what counts as a difference and what does not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime.drift import differences, has_drifted


def paths(desired: dict[str, Any], live: dict[str, Any]) -> list[str]:
    return [str(place) for place in differences(desired, live)]


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def test_equal_objects_do_not_differ() -> None:
    assert paths({"a": {"b": [1, {"c": None}]}}, {"a": {"b": [1, {"c": None}]}}) == []


def test_what_the_server_adds_is_no_difference() -> None:
    desired = pod({"name": "a", "image": "x"})
    live = pod({"name": "a", "image": "x", "imagePullPolicy": "Always"}, restartPolicy="Always")
    assert paths(desired, {**live, "status": {"phase": "Running"}}) == []


@pytest.mark.parametrize(
    ("desired", "live", "expected"),
    [
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {}, ["a"]),
        ({"a": {"b": 1}}, {"a": 3}, ["a"]),
        ({"a": {}}, {}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a[0]", "a[1]"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": "80"}, {"a": 80}, ["a"]),
        ({"a": None}, {"a": 1}, ["a"]),
    ],
)
def test_a_desired_value_that_is_not_live_is_named(
    desired: dict[str, Any], live: dict[str, Any], expected: list[str]
) -> None:
    assert paths(desired, live) == expected


def test_whole_numbers_compare_by_value() -> None:
    assert paths({"a": 1.0}, {"a": 1}) == []


def test_containers_are_found_by_name_wherever_they_stand() -> None:
    desired = pod({"name": "b", "image": "new"}, {"name": "a", "image": "x"})
    live = pod({"name": "sidecar", "image": "theirs"}, {"name": "a", "image": "x"}, {"name": "b", "image": "old"})
    assert paths(desired, live) == ["spec.containers[b].image"]


def test_a_missing_container_is_a_difference() -> None:
    assert paths(pod({"name": "a"}), pod({"name": "b"})) == ["spec.containers[a]"]


def test_env_by_name_ports_by_number_and_protocol_mounts_by_path() -> None:
    desired = pod(
        {
            "name": "a",
            "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
            "ports": [{"containerPort": 80}],
            "volumeMounts": [{"mountPath": "/y", "name": "v"}, {"mountPath": "/x", "name": "v"}],
        }
    )
    live = pod(
        {
            "name": "a",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [
                {"containerPort": 80, "protocol": "UDP", "name": "u"},
                {"containerPort": 80, "protocol": "TCP"},
            ],
            "volumeMounts": [{"mountPath": "/x", "name": "v"}, {"mountPath": "/y", "name": "v", "readOnly": True}],
        }
    )
    assert paths(desired, live) == []


def test_ports_of_a_service_go_by_number_but_those_of_a_network_policy_by_position() -> None:
    service = {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
    tcp = {"port": 80, "targetPort": 8080, "protocol": "TCP"}
    assert paths(service, {"spec": {"ports": [{"port": 443, "protocol": "TCP"}, tcp]}}) == []
    assert paths(service, {"spec": {"ports": [{**tcp, "protocol": "UDP"}]}}) == ["spec.ports[80,TCP]"]
    policy = {"spec": {"ingress": [{"ports": [{"port": 80}]}]}}
    wider = {"spec": {"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]}]}}
    assert paths(policy, wider) == ["spec.ingress[0].ports"], "one more port is a hole, not somebody's addition"


def test_keyed_lists_that_are_none_compare_by_position() -> None:
    twice = pod({"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})
    assert paths(twice, twice | {"x": 1}) == []
    assert paths(pod({"image": "x"}), pod({"image": "y"})) == ["spec.containers[0].image"]
    assert paths({"containers": ["a"]}, {"containers": ["b"]}) == ["containers[0]"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "env", "a", "spec"]), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "env", "a", "containers"]), JSON, max_size=3)


@given(OBJECTS)
def test_nothing_differs_from_itself(obj: dict[str, Any]) -> None:
    assert not has_drifted(obj, obj)


@given(OBJECTS, st.dictionaries(st.sampled_from(["x", "y"]), JSON, max_size=2))
def test_additions_are_never_differences(obj: dict[str, Any], more: dict[str, Any]) -> None:
    assert not has_drifted(obj, {**obj, **more})


@given(OBJECTS, OBJECTS)
def test_it_never_fails_and_is_stable(desired: dict[str, Any], live: dict[str, Any]) -> None:
    assert paths(desired, live) == paths(desired, live)


def test_a_list_whose_keys_are_no_words_is_compared_by_position():
    items = [{"name": ["a"], "value": 1}]
    assert list(differences({"env": items}, {"env": items})) == []
    assert list(differences({"env": items}, {"env": [{"name": ["a"], "value": 2}]}))
