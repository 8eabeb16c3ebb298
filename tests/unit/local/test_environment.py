"""Environments from values, Secrets, ConfigMaps and fields."""

import base64

import pytest

from fairway.local.environment import ConfigMissing, data_of, environment_of, expand, names_used

POD = {
    "metadata": {"name": "p-1", "namespace": "tools", "uid": "u", "labels": {"tier": "x"}},
    "spec": {"nodeName": "n"},
    "status": {"podIP": "127.0.0.1"},
}


def secret(name, **data):
    return {
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()},
    }


def config_map(name, **data):
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def lookup(*objects):
    def find(kind, namespace, name):
        assert namespace == "tools"
        return next((o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name), None)

    return find


def environment(container, *objects):
    return environment_of(POD, container, lookup(*objects))


def from_key(kind, name, key, **more):
    return {"name": "TOKEN", "valueFrom": {kind: {"name": name, "key": key, **more}}}


def test_literal_values_and_empty_ones():
    assert environment({"env": [{"name": "A", "value": "1"}, {"name": "B"}]}) == {"A": "1", "B": ""}


def test_a_value_comes_from_a_secret_or_a_config_map():
    found = environment(
        {
            "env": [
                from_key("secretKeyRef", "s", "k"),
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            ]
        },
        secret("s", k="hush"),
        config_map("c", k="open"),
    )
    assert found == {"TOKEN": "hush", "C": "open"}


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([], "env TOKEN asks for key k of Secret s, but there is no Secret s"),
        ([secret("s", other="x")], "env TOKEN asks for key k of Secret s, but Secret s has no key k"),
    ],
)
def test_what_is_missing_is_named_with_object_and_key(objects, words):
    with pytest.raises(ConfigMissing) as missing:
        environment({"env": [from_key("secretKeyRef", "s", "k")]}, *objects)
    assert str(missing.value) == words


def test_an_optional_key_that_is_missing_is_left_out():
    assert environment({"env": [from_key("secretKeyRef", "s", "k", optional=True)]}) == {}


def test_env_wins_over_env_from_and_prefixes_are_put_in_front():
    container = {
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "s"}}],
        "env": [{"name": "k", "value": "mine"}],
    }
    assert environment(container, config_map("c", k="1"), secret("s", k="theirs", z="2")) == {
        "P_k": "1",
        "k": "mine",
        "z": "2",
    }


def test_a_missing_env_from_object_is_named_unless_it_is_optional():
    with pytest.raises(ConfigMissing, match="envFrom asks for Secret gone"):
        environment({"envFrom": [{"secretRef": {"name": "gone"}}]})
    assert environment({"envFrom": [{"configMapRef": {"name": "gone", "optional": True}}]}) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p-1"),
        ("metadata.namespace", "tools"),
        ("metadata.labels['tier']", "x"),
        ("metadata.annotations['none']", ""),
        ("status.podIP", "127.0.0.1"),
        ("spec.nodeName", "n"),
    ],
)
def test_fields_of_the_pod(path, value):
    assert environment({"env": [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}) == {"F": value}


@pytest.mark.parametrize("source", [{"fieldRef": {"fieldPath": "spec.secret"}}, {"resourceFieldRef": {}}])
def test_a_source_that_is_unknown_here_is_refused(source):
    with pytest.raises(ConfigMissing, match="local mode does not know"):
        environment({"env": [{"name": "F", "valueFrom": source}]})


def test_a_secret_that_is_not_base64_is_named():
    broken = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "***"}}
    with pytest.raises(ConfigMissing, match="Secret s: key k is not valid base64"):
        data_of(broken)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)/$(B)", "1/$(B)"),
        ("$$(A)", "$(A)"),
        ("$A ${A} $(", "$A ${A} $("),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_references_expand_as_in_kubernetes(text, expanded):
    assert expand(text, {"A": "1"}) == expanded


def test_a_variable_sees_only_those_before_it():
    container = {"env": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "2"}, {"name": "C", "value": "$(B)3"}]}
    assert environment(container) == {"A": "$(B)", "B": "2", "C": "23"}


def test_every_object_that_a_container_depends_on_is_known():
    container = {
        "envFrom": [{"secretRef": {"name": "a"}}],
        "env": [from_key("configMapKeyRef", "b", "k"), {"name": "X", "value": "1"}],
    }
    volumes = [
        {"name": "v", "configMap": {"name": "c"}},
        {"name": "w", "secret": {"secretName": "d"}},
        {"name": "t", "emptyDir": {}},
    ]
    assert names_used(container, volumes) == {("Secret", "a"), ("ConfigMap", "b"), ("ConfigMap", "c"), ("Secret", "d")}
