"""The issuer of this machine: a key that lasts, a token that servers believe, and nothing where nobody asks."""

import json
import time

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from fairway.local.issuer import AUDIENCE, CONFIG_MAP, ISSUER, LocalIssuer, asks_for_it, bearer_of


def server(name="vault", *, config_map=CONFIG_MAP, namespace="default"):
    oidc = {"type": "configMap", "configMap": {"name": config_map}}
    return {
        "kind": "MCPServer",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"auth": {"oidc": oidc}} if config_map else {},
    }


def by_key(*objects):
    return {(o["kind"], o["metadata"]["namespace"], o["metadata"]["name"]): o for o in objects}


def document_of(added):
    (config_map,) = added.values()
    return json.loads(config_map["data"]["oidc.json"])


def test_a_token_is_believed_by_the_keys_that_servers_get(tmp_path):
    document = document_of(LocalIssuer(tmp_path).added(by_key(server())))
    header = bearer_of(tmp_path / "token")["Authorization"]
    assert header.startswith("Bearer ey")
    keys = KeySet.import_key_set(json.loads(document["jwks"]))
    claims = jwt.decode(header.removeprefix("Bearer "), keys, algorithms=["ES256"]).claims
    assert (claims["iss"], claims["aud"], document["issuer"], document["audiences"]) == (
        ISSUER,
        AUDIENCE,
        ISSUER,
        [AUDIENCE],
    )
    assert claims["iat"] <= time.time() < claims["exp"]


def test_the_key_outlives_a_start_and_neither_it_nor_the_token_is_for_others_to_read(tmp_path):
    first = document_of(LocalIssuer(tmp_path).added(by_key(server())))
    again = document_of(LocalIssuer(tmp_path).added(by_key(server())))
    assert first == again
    for name in ("issuer.pem", "token"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert '"d"' not in first["jwks"], "the private part stays here"


def test_another_key_is_not_believed(tmp_path):
    (tmp_path / "other").mkdir()
    LocalIssuer(tmp_path).added(by_key(server()))
    other = document_of(LocalIssuer(tmp_path / "other").added(by_key(server())))
    token = bearer_of(tmp_path / "token")["Authorization"].removeprefix("Bearer ")
    with pytest.raises(JoseError):
        jwt.decode(token, KeySet.import_key_set(json.loads(other["jwks"])), algorithms=["ES256"])


def test_a_spoilt_key_is_replaced(tmp_path):
    (tmp_path / "issuer.pem").write_text("spoilt")
    assert document_of(LocalIssuer(tmp_path).added(by_key(server())))["jwks"]


def test_nothing_is_made_where_nobody_asks_or_somebody_brings_it(tmp_path):
    issuer = LocalIssuer(tmp_path)
    assert issuer.added(by_key(server(config_map=None), server("b", config_map="mine"))) == {}
    brought = {"kind": "ConfigMap", "metadata": {"name": CONFIG_MAP, "namespace": "default"}, "data": {}}
    assert issuer.added(by_key(server(), brought)) == {}
    assert list(tmp_path.iterdir()) == []
    assert bearer_of(tmp_path / "token") == {}
    assert not asks_for_it(server(config_map=None))


def test_each_namespace_gets_its_own(tmp_path):
    added = LocalIssuer(tmp_path).added(by_key(server(), server(namespace="other")))
    assert [key[1] for key in added] == ["default", "other"]
