from dataclasses import replace

import pytest

from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.mcpserver.image import Unresolvable, server_image
from fairway.controllers.settings import Settings

PLAIN = Settings(image="fairway:test")
PROVISIONED = replace(PLAIN, provisioned_registry="reg.local:5000", provisioned_pull_secret="reg")
HOSTED = replace(PLAIN, pull_host="mirror.example.com")

MATRIX = [
    # spec, settings, reference
    ({"image": "w"}, PLAIN, "w"),
    ({"image": "w", "imageTag": "1"}, PLAIN, "w:1"),
    ({"image": "localhost:5000/w", "imageTag": "1"}, PLAIN, "localhost:5000/w:1"),
    ({"image": "a/w:1", "registryOverride": "r.example.com"}, PLAIN, "r.example.com/a/w:1"),
    ({"image": "ghcr.io/a/w:1", "registryOverride": "r.example.com"}, PLAIN, "r.example.com/a/w:1"),
    ({"image": "localhost/w:1", "registryOverride": "r.example.com/p"}, PLAIN, "r.example.com/p/w:1"),
    ({"image": "host:5000/w:1", "registryOverride": "r:5000"}, PLAIN, "r:5000/w:1"),
    ({"image": "ghcr.io/a/w@sha256:0", "registryOverride": "r"}, PLAIN, "r/a/w@sha256:0"),
    ({"image": "a/w", "useProvisionedRegistry": True}, PROVISIONED, "reg.local:5000/a/w"),
    ({"image": "a/w", "useProvisionedRegistry": True, "registryOverride": "r"}, PROVISIONED, "reg.local:5000/a/w"),
    ({"image": "a/w"}, PROVISIONED, "a/w"),
    ({"image": "ghcr.io/a/w:1"}, HOSTED, "mirror.example.com/a/w:1"),
    ({"image": "ghcr.io/a/w:1", "registryOverride": "r"}, HOSTED, "r/a/w:1"),
    ({"inlineTools": {"python": "x"}}, HOSTED, "fairway:test"),
]


def resolved(spec, settings=PLAIN):
    return server_image(MCPServerSpec.model_validate(spec), settings)


@pytest.mark.parametrize(("spec", "settings", "reference"), MATRIX)
def test_the_image_is_resolved_by_the_first_rule_that_applies(spec, settings, reference):
    assert resolved(spec, settings).reference == reference


def test_a_registry_that_the_operator_does_not_have_is_named_with_the_way_out():
    with pytest.raises(Unresolvable, match=r"spec\.useProvisionedRegistry.*--provisioned-registry"):
        resolved({"image": "w", "useProvisionedRegistry": True})


@pytest.mark.parametrize(
    ("spec", "settings", "secrets"),
    [
        ({}, PLAIN, ()),
        ({}, replace(PLAIN, pull_secrets=("a", "b")), ("a", "b")),
        ({"imagePullSecrets": ["mine"]}, replace(PLAIN, pull_secrets=("a",)), ("mine",)),
        ({"imagePullSecrets": []}, replace(PLAIN, pull_secrets=("a",)), ()),
        ({"useProvisionedRegistry": True}, PROVISIONED, ("reg",)),
        ({"useProvisionedRegistry": True, "imagePullSecrets": ["mine"]}, PROVISIONED, ("mine",)),
        ({}, PROVISIONED, ()),
    ],
)
def test_pull_secrets_of_the_server_go_before_those_of_the_operator(spec, settings, secrets):
    assert resolved({"image": "w", **spec}, settings).pull_secrets == secrets


def test_a_failed_pull_can_be_explained():
    image = resolved({"image": "w", "registryOverride": "r", "imagePullSecrets": ["a"]})
    assert image.explained == "registry from spec.registryOverride; pull secret a"
    assert resolved({"image": "w"}).explained == "no pull secret"


@pytest.mark.parametrize("image", ["w:1", "w@sha256:0", "localhost:5000/w:1"])
def test_a_tag_beside_a_tag_or_digest_is_refused(image):
    with pytest.raises(ValueError, match="imageTag goes with an image that has neither"):
        MCPServerSpec.model_validate({"image": image, "imageTag": "2"})
