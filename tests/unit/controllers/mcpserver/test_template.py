import pytest

from fairway.controllers.mcpserver.podsecurity import violations
from fairway.controllers.mcpserver.template import TemplateRefused
from fairway.controllers.mcpserver.workload import pod_of
from tests.unit.controllers.mcpserver.samples import SETTINGS, inputs, server


def pod(template, **spec):
    return pod_of(inputs(server(image="w", podTemplate=template, **spec)), SETTINGS)


def spec_of(**template_spec):
    return pod({"spec": template_spec})[1]


def test_objects_are_merged_field_by_field_and_lists_of_named_things_by_name():
    made = spec_of(
        terminationGracePeriodSeconds=60,
        nodeSelector={"disk": "fast"},
        tolerations=[{"key": "a", "operator": "Exists"}],
        securityContext={"fsGroup": 7},
        containers=[
            {"name": "server", "env": [{"name": "MCP_HOST", "value": "::"}], "resources": {"limits": {"cpu": "0.5"}}},
            {"name": "helper", "image": "h:1"},
        ],
        volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": "1024Mi"}}, {"name": "more", "emptyDir": {}}],
    )
    server_, helper = made["containers"]
    env = {v["name"]: v.get("value") for v in server_["env"]}
    assert env["MCP_HOST"] == "::"
    assert env["HOME"] == "/tmp"
    assert server_["image"] == "w"
    assert server_["resources"] == {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"cpu": "500m"}}
    assert helper["image"] == "h:1"
    assert made["terminationGracePeriodSeconds"] == 60
    assert made["nodeSelector"] == {"disk": "fast"}
    assert made["tolerations"] == [{"key": "a", "operator": "Exists"}]
    assert made["securityContext"]["fsGroup"] == 7
    assert made["securityContext"]["runAsNonRoot"] is True
    assert [v["name"] for v in made["volumes"]] == ["tmp", "more"]
    assert made["volumes"][0] == {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}


def test_null_takes_a_default_out():
    made = spec_of(securityContext={"runAsUser": None, "runAsGroup": None, "fsGroup": None})
    assert made["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_one_of_several_ways_takes_the_place_of_another():
    made = spec_of(
        containers=[
            {
                "name": "server",
                "env": [{"name": "MCP_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            }
        ],
        volumes=[{"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}],
    )
    (variable,) = [v for v in made["containers"][0]["env"] if v["name"] == "MCP_HOST"]
    assert "value" not in variable
    assert made["volumes"][0] == {"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}


def test_labels_and_annotations_are_added_to_ours():
    metadata, _ = pod({"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}})
    assert metadata["labels"]["team"] == "a"
    assert metadata["labels"]["fairway.dev/server"] == "hello"
    assert metadata["annotations"] == {"b": "c"}


def test_an_empty_template_changes_nothing():
    plain = pod_of(inputs(server(image="w")), SETTINGS)
    for template in ({}, {"metadata": {}}, {"spec": {}}, {"spec": {"containers": [{"name": "server"}]}}):
        assert pod(template) == plain
    assert pod({"spec": {"tolerations": [], "nodeSelector": {}, "volumes": [], "schedulerName": ""}}) == plain


def test_what_a_template_needs_is_waited_for_like_everything_else():
    container = {"name": "h", "image": "h", "envFrom": [{"secretRef": {"name": "later"}}]}
    gathered = inputs(server(image="w", podTemplate={"spec": {"containers": [container]}}))
    assert gathered.unmet is not None
    assert "Secret later" in gathered.unmet.message


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            {"spec": {"serviceAccountName": "x"}},
            "spec.podTemplate.spec.serviceAccountName: set spec.serviceAccountName",
        ),
        ({"spec": {"containers": [{"name": "server", "image": "x"}]}}, "containers[server].image: set spec.image"),
        ({"spec": {"containers": [{"name": "server", "ports": []}]}}, "containers[server].ports: set spec.port"),
        ({"spec": {"containers": [{"name": "proxy"}]}}, "belongs to Fairway"),
        ({"spec": {"containers": [{"image": "x"}]}}, "a list of objects, each with name"),
        ({"spec": {"containers": "x"}}, "a list of objects, each with name"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "a is there twice"),
        ({"spec": {"containers": [{"name": "a", "env": {"A": "b"}}]}}, "env: a list of objects"),
        ({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "mcp"}]}]}}, "port name mcp"),
        ({"spec": {"volumes": [{"name": "tools", "emptyDir": {}}]}}, "a volume of Fairway's own"),
        ({"spec": {"$patch": "replace"}}, "patch directives are not supported"),
        ({"spec": {"affinity": {"$retainKeys": []}}}, "patch directives are not supported"),
        ({"metadata": {"labels": {"fairway.dev/server": "x"}}}, "is set by Fairway"),
        ({"metadata": {"annotations": {"fairway.dev/inputs-digest": "x"}}}, "is set by Fairway"),
    ],
)
def test_what_a_template_may_not_change_is_named_by_its_path(template, said):
    with pytest.raises(TemplateRefused) as refused:
        pod(template)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"securityContext": "x"}},
        {"spec": {"containers": [{"name": "a", "env": [{"name": "A", "valueFrom": "x"}], "envFrom": [{}]}]}},
        {"spec": {"volumes": [{"name": "v", "secret": "x"}, {"name": "w", "configMap": {"items": ["x"]}}]}},
        {"spec": {"containers": [{"name": "server", "securityContext": [], "resources": {"limits": "x"}}]}},
        {"spec": {"hostNetwork": "maybe", "tolerations": {"a": 1}}},
    ],
)
def test_a_template_of_the_wrong_shape_breaks_nothing_here_and_is_for_the_api_server_to_refuse(template):
    _, made = pod(template)
    violations(made)


def test_a_template_without_end_is_refused():
    deep = {}
    for _ in range(60):
        deep = {"a": deep}
    with pytest.raises(TemplateRefused, match="nested too deeply"):
        pod({"spec": deep})


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_beside_a_sidecar_no_other_container_has_a_port_of_its_name_which_the_network_policy_opens(kind):
    template = {"spec": {kind: [{"name": "helper", "image": "h", "ports": [{"name": "proxy", "containerPort": 8080}]}]}}
    with pytest.raises(TemplateRefused, match="the port name proxy belongs to Fairway"):
        pod(template, proxy={"mode": "sidecar"})
    assert pod(template)  # elsewhere it means nothing
