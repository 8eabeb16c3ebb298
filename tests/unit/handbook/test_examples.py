"""The examples: each is understood, becomes what it says, and together they leave no source and no feature out."""

from pathlib import Path

import pytest

from fairway.api.mcpserver import MCPServerSpec
from fairway.api.source import SOURCES
from fairway.controllers.contents import ContentReader
from fairway.controllers.rehearsal import Verdict, rehearse
from fairway.controllers.resources import CATALOGUE
from fairway.controllers.settings import ClusterIssuer, Settings
from fairway.kube.resource import CONFIG_MAP, SECRET, SERVICE_ACCOUNT
from fairway.local import manifests
from handbook.examples import EXAMPLE_CALL, Example, examples

FOLDER = Path(__file__).parents[3] / "examples"
ALL = examples(FOLDER)
SETTINGS = Settings(
    image="fairway:test",
    node_image="node:test",
    provisioned_registry="registry.example.com:5000",
    cluster_issuer=ClusterIssuer("https://kubernetes.default.svc", jwks_url="https://10.0.0.1/openid/v1/jwks"),
)
NOT_AN_EXAMPLE = {"registryRef": "this version has no registries"}
MISSING = {
    # what a user has to make, and an example cannot: a certificate, and the issuer that only a laptop has
    "vault": "ConfigMap fairway-local-issuer",
    "encrypted": "Secret encrypted-tls",
}


async def verdicts(example: Example) -> dict[str, Verdict]:
    """What the operator would make of it in an empty cluster, by server."""
    catalogue = CATALOGUE.plus((SECRET, SERVICE_ACCOUNT))
    loaded = manifests.load([str(FOLDER / example.path)])
    given = {
        catalogue.ref(obj): {**obj, "metadata": {**obj["metadata"], "uid": "u", "generation": 1}}
        for obj in loaded.objects.values()
    }

    async def fetch(resource, namespace, name):
        return given.get(resource.ref(namespace, name))

    made = await rehearse(
        given.values(),
        settings=SETTINGS,
        contents=ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=fetch),
        catalogue=catalogue,
        hash_annotation=None,
    )
    return {v.owner["metadata"]["name"]: v for v in made if v.owner["kind"] == "MCPServer"}


@pytest.mark.anyio
@pytest.mark.parametrize("example", ALL, ids=lambda e: str(e.path))
async def test_the_operator_can_act_on_it_and_nothing_of_it_is_wrong(example: Example):
    decided = await verdicts(example)
    assert decided.keys() == {server["metadata"]["name"] for server in example.servers}
    for name, verdict in decided.items():
        assert verdict.acts
        made = {(c.wanted["kind"], c.ref.name) for c in verdict.changes if c.wanted is not None}
        assert ("Service", name) in made
        said = {c["reason"]: c.get("message", "") for c in verdict.status["conditions"]}
        wrong = {
            "InvalidSpec",
            "RuntimeInvalid",
            "RuntimeNotFound",
            "NotGranted",
            "ToolConfigInvalid",
            "PolicyRejected",
        }
        assert not wrong & said.keys(), said
        if name in MISSING:
            assert any(MISSING[name] in message for message in said.values())
        else:
            assert not {"SecretMissing", "ConfigMapMissing"} & said.keys(), said
            told = any(kind == "ConfigMap" and child.startswith(f"{name}-runconfig") for kind, child in made)
            assert told or verdict.owner["spec"].get("proxy") == {"mode": "none"}


@pytest.mark.parametrize("example", ALL, ids=lambda e: str(e.path))
def test_it_says_what_it_shows_and_where_it_runs(example: Example):
    assert example.about.endswith(".")
    calls = [EXAMPLE_CALL in (server["metadata"].get("annotations") or {}) for server in example.servers]
    if example.cluster_only:
        assert not any(calls), "what only a cluster can run has no call for `fairway up --check`"
    else:
        assert all(calls), f"every server needs {EXAMPLE_CALL}, or the comment says `Cluster only:` and why"


def test_every_name_is_there_once_so_that_all_can_run_together():
    names = [(o["kind"], o["metadata"]["name"]) for e in ALL if e.path.parts[0] != "quickstart" for o in e.objects]
    doubles = {name for name in names if names.count(name) > 1}
    assert not doubles


def test_every_source_and_every_field_of_a_server_is_shown():
    used = {field for e in ALL for server in e.servers for field in server["spec"]}
    fields = {f.alias or name for name, f in MCPServerSpec.model_fields.items()}
    assert SOURCES.keys() <= fields
    assert fields - used == NOT_AN_EXAMPLE.keys()


@pytest.mark.parametrize(
    "part", ["auth", "authz", "rateLimit", "audit", "cors", "headers", "proxy", "ingress", "gatewayRoute"]
)
def test_every_part_of_a_feature_is_shown(part: str):
    """Fields of fields: what a reader searches the examples for."""
    from fairway.api.manifest import _model_in

    used = {inner for e in ALL for server in e.servers for inner in server["spec"].get(part) or ()}
    field = next(f for name, f in MCPServerSpec.model_fields.items() if (f.alias or name) == part)
    model = _model_in(field.annotation)
    fields = {f.alias or name for name, f in model.model_fields.items()}
    assert fields - used <= LEFT_TO_THE_REFERENCE.get(part, set())


LEFT_TO_THE_REFERENCE = {
    "auth": {"anonymous", "scopesSupported", "authorizationServers"},
    "audit": {"enabled"},
    "ingress": {"publicPathPrefix", "annotations"},
}


def test_a_file_that_does_not_say_what_it_shows_is_refused(tmp_path: Path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.yaml").write_text("kind: MCPServer\n")
    with pytest.raises(ValueError, match="begin with a comment"):
        examples(tmp_path)


def test_the_index_lists_every_file():
    index = (FOLDER / "README.md").read_text()
    there = [str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")]
    assert [name for name in there if f"[{name}]({name})" not in index] == []
