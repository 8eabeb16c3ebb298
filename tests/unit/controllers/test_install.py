from pathlib import Path

import pytest
import yaml

from fairway.controllers import access, generate, install
from fairway.controllers.mcpserver import upstream
from tests.unit.controllers.mcpserver.samples import inputs, server


def test_the_manifest_is_what_is_installed():
    committed = Path(generate.PATH).read_text()
    assert committed == generate.generated(), "run `make generate`"
    objects = [obj for obj in yaml.safe_load_all(committed) if obj]
    assert objects == install.objects(image=generate.DEFAULT_IMAGE)
    kinds = [obj["kind"] for obj in objects]
    assert kinds.index("CustomResourceDefinition") < kinds.index("Namespace") < kinds.index("Deployment")


def test_two_operators_elect_a_leader():
    deployment = install.objects(image="x")[-1]
    assert deployment["spec"]["replicas"] == 2
    assert "--leader-elect" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_no_right_is_a_wildcard_or_given_twice():
    given = [
        (group, resource, verb)
        for rule in (*access.cluster_rules(), *access.leader_rules())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert not [entry for entry in given if "*" in "".join(entry)]
    assert ("", "secrets", "patch") not in given
    assert ("", "secrets", "delete") not in given


@pytest.mark.parametrize(
    "spec",
    [{"image": "w:1"}, {"image": "w:1", "transport": "stdio"}, {"remote": {"url": "https://a"}}],
    ids=["http", "stdio", "remote"],
)
def test_the_operator_has_every_right_that_it_gives_to_a_proxy(spec):
    held = rights(access.cluster_rules())
    assert rights(upstream.rights(inputs(server(**spec)))) <= held


def rights(rules):
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
