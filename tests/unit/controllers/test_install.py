from pathlib import Path

import yaml

from fairway.controllers import access, generate, install


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
