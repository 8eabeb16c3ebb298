"""What Fairway makes, as text and without a cluster."""

import json
from pathlib import Path

import pytest
import yaml

from fairway.cli.generate import What, generate, schema
from fairway.cli.mistake import Mistake
from fairway.controllers import install

QUICKSTART = str(Path(__file__).parents[3] / "examples" / "quickstart" / "hello.yaml")


def test_a_manifest_becomes_the_objects_that_the_operator_would_make(capsys):
    assert generate(What.OBJECTS, files=[QUICKSTART], namespace="tools", image="fairway:1") == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    kinds = {(obj["kind"], obj["metadata"]["name"]) for obj in made}
    assert {("Deployment", "hello"), ("Deployment", "hello-proxy"), ("Service", "hello")} <= kinds
    assert {obj["metadata"]["namespace"] for obj in made} == {"tools"}
    assert not [obj for obj in made if "ownerReferences" in obj["metadata"]]


def test_the_install_manifest_is_what_install_applies(capsys):
    generate(What.INSTALL, image="fairway:1", namespace="here")
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == install.objects(image="fairway:1", namespace="here")


def test_the_schema_underlines_a_typo():
    made = schema("mcps")
    spec = made["properties"]["spec"]
    assert made["properties"]["kind"] == {"const": "MCPServer"}
    assert spec["additionalProperties"] is False
    assert "x-kubernetes" not in json.dumps(made)


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(Mistake, match="objects are those of manifests"):
        generate(What.OBJECTS)
    with pytest.raises(Mistake, match="objects are those of manifests"):
        generate(What.INSTALL, files=[QUICKSTART])
    (tmp_path / "bad.yaml").write_text(Path(QUICKSTART).read_text().replace("inlineTools", "inlineTool"))
    with pytest.raises(Mistake, match=r"bad.yaml:\d+:3  spec.inlineTool: unknown field"):
        generate(What.OBJECTS, files=[str(tmp_path)])
    (tmp_path / "bad.yaml").write_text(Path(QUICKSTART).read_text().replace("def add(", "def add(("))
    with pytest.raises(Mistake, match="MCPServer hello: "):
        generate(What.OBJECTS, files=[str(tmp_path)])
