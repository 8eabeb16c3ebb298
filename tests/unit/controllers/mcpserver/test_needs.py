import pytest

from fairway.api.conditions import Reason
from fairway.controllers.mcpserver.desired import desired, kept
from fairway.controllers.mcpserver.needs import mentioned
from tests.unit.controllers.mcpserver.samples import SETTINGS, config_map, inputs, secret, server

TOKEN = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}


def template(*held, **spec):
    objects = desired(inputs(server(image="w", **spec), None, *held), SETTINGS)
    (workload,) = [o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "hello"]
    return workload["spec"]["template"]


def digest(*held, **spec):
    return template(*held, **spec)["metadata"].get("annotations", {}).get("fairway.dev/inputs-digest")


def test_a_rotated_value_that_a_container_cannot_re_read_replaces_the_pods():
    assert digest(secret(token="a"), env=[TOKEN]) != digest(secret(token="b"), env=[TOKEN])
    assert digest(secret(token="a"), secretName="s") != digest(secret(token="b"), secretName="s")
    by_path = {
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "token"}],
    }
    assert digest(secret(token="a"), **by_path) != digest(secret(token="b"), **by_path)


def test_a_key_that_nobody_uses_changes_nothing():
    assert digest(secret(token="a", other="1"), env=[TOKEN]) == digest(secret(token="a", other="2"), env=[TOKEN])


def test_mounted_files_follow_by_themselves_and_replace_no_pod():
    mounted = {
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    assert digest(secret(token="a"), **mounted) is None


def test_an_object_made_anew_with_the_same_values_is_another_one():
    assert digest(secret(token="a"), env=[TOKEN]) != digest(secret(token="a", uid="x-2"), env=[TOKEN])


def test_the_value_itself_is_nowhere():
    assert "hunter2" not in str(template(secret(token="hunter2"), env=[TOKEN]))


@pytest.mark.parametrize(
    ("spec", "held", "reason", "said"),
    [
        (
            {"env": [TOKEN]},
            [],
            Reason.SECRET_MISSING,
            "env TOKEN asks for key token of Secret s, and there is no such Secret in namespace team",
        ),
        (
            {"env": [TOKEN]},
            [secret(tokn="a")],
            Reason.SECRET_MISSING,
            "env TOKEN asks for key token of Secret s, which has no such key",
        ),
        (
            {"secretName": "s"},
            [],
            Reason.SECRET_MISSING,
            "envFrom asks for Secret s, and there is no such Secret in namespace team",
        ),
        (
            {"volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]},
            [config_map(other="1")],
            Reason.CONFIG_MAP_MISSING,
            "volume v asks for key k of ConfigMap c, which has no such key",
        ),
    ],
)
def test_what_is_missing_is_named_and_only_the_workload_waits_for_it(spec, held, reason, said):
    gathered = inputs(server(image="w", **spec), None, *held)
    assert gathered.unmet is not None
    assert (gathered.unmet.reason, gathered.unmet.message) == (reason, said)
    kinds = [(o["kind"], o["metadata"]["name"]) for o in desired(gathered, SETTINGS)]
    assert ("Deployment", "hello") not in kinds
    assert ("Deployment", "hello-proxy") in kinds
    assert {str(ref) for ref in kept(gathered)} == {"Deployment/hello", "StatefulSet/hello", "Secret/hello-seal"}


def test_what_is_optional_may_be_missing():
    optional = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token", "optional": True}}}
    assert inputs(server(image="w", env=[optional])).unmet is None
    assert digest(env=[optional]) is None
    assert digest(secret(token="a"), env=[optional]) is not None


def test_our_own_config_maps_are_no_need():
    assert inputs(server(image="w", config={"A": "1"})).needs == ()


def test_a_variable_that_comes_by_env_from_is_not_hidden_by_our_default():
    env = template(secret(MCP_HOST="::"), secretName="s")["spec"]["containers"][0]["env"]
    assert "MCP_HOST" not in {variable["name"] for variable in env}
    prefixed = template(config_map(HOST="::"), envFrom=[{"prefix": "MCP_", "configMapRef": {"name": "c"}}])
    assert "MCP_HOST" not in {variable["name"] for variable in prefixed["spec"]["containers"][0]["env"]}


def test_a_change_of_config_replaces_the_pods():
    assert digest(config={"A": "1"}) != digest(config={"A": "2"})


def test_every_object_that_a_spec_might_be_about_is_looked_at():
    spec = {
        "secretName": "a",
        "env": [TOKEN, {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}}],
        "envFrom": [{"secretRef": {"name": "c"}}, {"configMapRef": {"name": "d"}}],
        "volumes": [{"name": "v", "secret": {"secretName": "e"}}, {"name": "w", "configMap": {"name": "f"}}],
        "permissionProfile": {"type": "configMap", "name": "g", "key": "profile.json"},
    }
    assert mentioned(spec) == {
        ("Secret", "a"),
        ("Secret", "s"),
        ("ConfigMap", "b"),
        ("Secret", "c"),
        ("ConfigMap", "d"),
        ("Secret", "e"),
        ("ConfigMap", "f"),
        ("ConfigMap", "g"),
    }


@pytest.mark.parametrize("broken", [None, [], "x", {"secretName": 3}, {"env": {"secretRef": {"name": []}}}])
def test_a_spec_that_makes_no_sense_mentions_nothing(broken):
    assert mentioned(broken) == frozenset()
