"""The policy contract: what cannot be meant is refused, with the field that is wrong."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fairway.api import policy

FULL: dict[str, Any] = {
    "authentication": {
        "resources": ["https://gw.example.org/mcp"],
        "issuers": [
            {"issuer": "https://a.example.org", "prefix": "a:", "jwksFile": "/etc/keys/a.json"},
            {"issuer": "https://b.example.org", "prefix": "b:", "secretFile": "/etc/keys/b", "algorithms": ["HS256"]},
        ],
        "tokenReview": {"audiences": ["fairway"], "prefix": "k8s:"},
        "requiredScopes": ["mcp:tools"],
    },
    "authorization": {"policies": ["permit(principal, action, resource);"], "policyFiles": ["/etc/policies/a.cedar"]},
    "rateLimit": {"shared": {"tokens": 10}, "tools": [{"tool": "x", "principal": {"tokens": 1, "per": 2}}]},
    "cors": {"allowedOrigins": ["https://app.example.org", "http://localhost:6274"], "allowedHosts": ["*.example.org"]},
    "audit": {"file": "/var/log/audit.log", "arguments": True, "redact": ["pin"]},
    "headers": {
        "set": [{"name": "Authorization", "valueFile": "/etc/token", "prefix": "Bearer "}],
        "forward": ["X-Team"],
    },
    "sessions": {"keyFiles": ["/etc/keys/1", "/etc/keys/2"]},
}


def read(value: Any) -> policy.Policy:
    return msgspec.json.decode(json.dumps(value), type=policy.Policy)


def test_a_policy_is_read_and_written_back():
    assert json.loads(msgspec.json.encode(read(FULL))) == FULL


def test_a_policy_satisfies_the_schema_that_is_published():
    schema = msgspec.json.schema(policy.Policy)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(FULL)


def test_nothing_is_a_policy_that_asks_for_nothing():
    assert read({}) == policy.Policy()


REVIEW = {"audiences": ["x"]}
ISSUER = {"issuer": "https://a.example.org", "audiences": ["x"]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"authentification": {}}, "unknown field `authentification`"),
        ({"authentication": {}}, "set issuers or tokenReview, or say anonymous: true"),
        ({"authentication": {"anonymous": False}}, "anonymous"),
        ({"authentication": {"issuers": [{"issuer": "https://a.example.org"}]}}, "set resources, or audiences"),
        ({"authentication": {"tokenReview": {}}}, "set resources, or audiences"),
        ({"authentication": {"issuers": [{**ISSUER, "prefix": "a"}, {**ISSUER, "prefix": "b"}]}}, "same issuer"),
        ({"authentication": {"issuers": [ISSUER, {**ISSUER, "issuer": "https://b"}]}}, "prefixes '' and ''"),
        (
            {"authentication": {"issuers": [{**ISSUER, "prefix": "a"}], "tokenReview": {**REVIEW, "prefix": "ab"}}},
            "none may begin with another's",
        ),
        ({"authentication": {"issuers": [{**ISSUER, "jwksFile": "/a", "jwksUrl": "https://b"}]}}, "at most one of"),
        ({"authentication": {"issuers": [{**ISSUER, "jwksFile": "a"}]}}, "jwksFile"),
        ({"authentication": {"issuers": [{**ISSUER, "secret": "x"}]}}, "unknown field `secret`"),
        ({"authentication": {"issuers": [{**ISSUER, "algorithms": ["none"]}]}}, "none"),
        ({"authentication": {"issuers": [{**ISSUER, "algorithms": ["HS256"]}]}}, "needs a secretFile"),
        ({"authentication": {"issuers": [{**ISSUER, "secretFile": "/a", "algorithms": ["RS256"]}]}}, "HS256, HS384"),
        ({"authentication": {"issuers": [{**ISSUER, "issuer": "http://a"}]}}, "use https, or set fetch.allowHttp"),
        ({"authentication": {"issuers": [{**ISSUER, "jwksUrl": "http://a"}]}}, "use https, or set fetch.allowHttp"),
        ({"authentication": {"issuers": [{**ISSUER, "issuer": "https://a\n"}]}}, "issuer"),
        ({"authentication": {"issuers": [{**ISSUER, "issuer": "ftp://a"}]}}, "issuer"),
        ({"authentication": {"anonymous": True, "requiredScopes": ["a b"]}}, "requiredScopes"),
        ({"authentication": {"anonymous": True, "requiredScopes": ['a"']}}, "requiredScopes"),
        ({"authentication": {"anonymous": True, "leeway": 3600}}, "leeway"),
        ({"authorization": {"policies": "permit"}}, "policies"),
        ({"rateLimit": {"shared": {"tokens": 0}}}, "tokens"),
        ({"rateLimit": {"shared": {"tokens": 1, "per": 0}}}, "per"),
        ({"rateLimit": {"tools": [{"tool": "x"}, {"tool": "x"}]}}, "same tool"),
        ({"cors": {"allowedOrigins": ["https://App.example.org"]}}, "lower case"),
        ({"cors": {"allowedOrigins": ["https://app.example.org/"]}}, "is not scheme"),
        ({"cors": {"allowedOrigins": ["app.example.org"]}}, "is not scheme"),
        ({"cors": {"allowedHosts": ["a b"]}}, "allowedHosts"),
        ({"headers": {"set": [{"name": "A"}]}}, "exactly one of value and valueFile"),
        ({"headers": {"set": [{"name": "A", "value": "x", "valueFile": "/x"}]}}, "exactly one of"),
        ({"headers": {"set": [{"name": "A", "value": "x\r\nB: y"}]}}, "value"),
        ({"headers": {"set": [{"name": "A", "value": "x\n"}]}}, "value"),
        ({"headers": {"set": [{"name": "A\n", "value": "x"}]}}, "name"),
        ({"headers": {"set": [{"name": "A:", "value": "x"}]}}, "name"),
        ({"headers": {"set": [{"name": "", "value": "x"}]}}, "name"),
        ({"headers": {"set": [{"name": "Host", "value": "x"}]}}, "belongs to the connection"),
        ({"headers": {"set": [{"name": "transfer-encoding", "value": "x"}]}}, "belongs to the connection"),
        ({"headers": {"set": [{"name": "A", "value": "x"}, {"name": "a", "value": "y"}]}}, "there twice"),
        ({"headers": {"forward": ["Authorization"]}}, "Authorization never passes"),
        ({"headers": {"forward": ["COOKIE"]}}, "COOKIE never passes"),
        ({"headers": {"forward": ["Connection"]}}, "Connection never passes"),
        ({"sessions": {"keyFiles": ["key"]}}, "keyFiles"),
        ({"sessions": {"lifetime": 0}}, "lifetime"),
        ({"audit": {"queue": 1}}, "queue"),
        ({"audit": {"file": "audit.log"}}, "file"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_and_says_why(value, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        read(value)


def test_http_is_allowed_where_it_is_said_or_where_nothing_is_fetched():
    read({"authentication": {"issuers": [{**ISSUER, "issuer": "http://a", "fetch": {"allowHttp": True}}]}})
    read({"authentication": {"issuers": [{**ISSUER, "issuer": "http://a", "jwksFile": "/a"}]}})


@given(st.lists(st.text("ab", max_size=3), min_size=2, max_size=4))
def test_no_two_sources_of_identities_can_name_the_same_client(prefixes):
    issuers = [{"issuer": f"https://{n}", "audiences": ["x"], "prefix": prefix} for n, prefix in enumerate(prefixes)]
    try:
        read({"authentication": {"issuers": issuers}})
    except msgspec.ValidationError:
        return
    for one, first in enumerate(prefixes):
        for two, second in enumerate(prefixes):
            assert one == two or not second.startswith(first)
