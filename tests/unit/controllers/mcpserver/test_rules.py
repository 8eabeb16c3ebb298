import json

import msgspec
import pytest

from fairway.api import runconfig
from fairway.api.conditions import ConditionType, Reason
from fairway.api.policy import Authorization, Policy, Sessions
from fairway.controllers.mcpserver.desired import desired, kept
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.proxy import route
from fairway.controllers.mcpserver.status import status_of
from fairway.controllers.settings import ClusterIssuer, Settings
from tests.unit.controllers.mcpserver.samples import NOW, SETTINGS, config_map, inputs, secret, server

ISSUER = "https://idp.example.com"
KEY = {"secretKeyRef": {"name": "s", "key": "k"}}
PERMIT = 'permit(principal in Group::"ops", action, resource);'
CLUSTER_NAME = "https://kubernetes.default.svc.cluster.local"
CLUSTER = Settings(
    image="fairway:test",
    cluster_issuer=ClusterIssuer(CLUSTER_NAME, jwks_url="https://kubernetes.default.svc/openid/v1/jwks"),
)


def guarded(*held, settings=SETTINGS, **spec):
    return inputs(server(image="w:1", **spec), None, *held, settings=settings)


def inline(**issuer):
    return {"oidc": {"type": "inline", "inline": {"issuer": ISSUER, **issuer}}}


def policy(of):
    """As a proxy reads it: what could not be read would be no policy."""
    config = runconfig.RunConfig(version=1, routes=(route(of),))
    return runconfig.parse(runconfig.encode(config))[0].routes[0]


def files(of, settings=SETTINGS):
    return next(o for o in desired(of, settings) if o["metadata"]["name"] == "hello-runconfig")["data"]


def proxy_pod(of, settings=SETTINGS):
    made = next(
        o for o in desired(of, settings) if o["kind"] == "Deployment" and o["metadata"]["name"] == "hello-proxy"
    )
    return made["spec"]["template"]["spec"]


def secrets(of):
    volume = next(v for v in proxy_pod(of)["volumes"] if v["name"] == "secrets")
    return {s["secret"]["name"]: s["secret"] for s in volume["projected"]["sources"]}


def applied(of):
    conditions = status_of(of, Live(), now=NOW)["conditions"]
    found = next(c for c in conditions if c["type"] == ConditionType.POLICY_APPLIED)
    return found["status"], found["reason"], found["message"]


def test_a_server_without_rules_has_sealed_sessions_and_no_more():
    sessions = Sessions(key_files=("/etc/fairway/secrets/hello-seal/key",))
    assert policy(guarded()).policy == Policy(sessions=sessions)
    assert secrets(guarded()) == {
        "hello-seal": {"name": "hello-seal", "items": [{"key": "key", "path": "hello-seal/key"}]}
    }


def test_tokens_are_for_the_url_of_the_server_unless_the_spec_says_otherwise():
    authentication = policy(guarded(auth=inline())).policy.authentication
    assert authentication.resources == ("http://hello.team.svc.cluster.local:8080/mcp",)
    assert authentication.issuers[0].audiences == ()
    given = policy(guarded(auth={**inline(audiences=["a"]), "resourceUrl": "https://mcp.example.com/mcp"}))
    assert given.policy.authentication.resources == ("https://mcp.example.com/mcp",)
    assert given.policy.authentication.issuers[0].audiences == ("a",)


def test_on_a_laptop_the_url_here_comes_first():
    here = Settings(
        image="f", publishes=False, url_here=lambda namespace, name: f"http://127.0.0.1:7001/{namespace}-{name}"
    )
    resources = policy(guarded(settings=here, auth=inline())).policy.authentication.resources
    assert resources == ("http://127.0.0.1:7001/team-hello", "http://hello.team.svc.cluster.local:8080/mcp")


def test_keys_given_in_the_spec_travel_beside_the_runconfig_under_a_name_of_their_content():
    one, other = guarded(auth=inline(jwks='{"keys": []}')), guarded(auth=inline(jwks='{"keys": [1]}'))
    path = policy(one).policy.authentication.issuers[0].jwks_file
    assert files(one)[path.rpartition("/")[2]] == '{"keys": []}'
    assert path.startswith("/etc/fairway/runconfig/jwks-")
    assert not path.endswith(".json"), "every *.json there is a RunConfig"
    assert path != policy(other).policy.authentication.issuers[0].jwks_file


def test_a_ca_bundle_and_a_shared_secret_are_found_where_they_are():
    ca = guarded(config_map("ca", **{"ca.crt": "PEM"}), auth=inline(caBundleRef={"name": "ca"}))
    path = policy(ca).policy.authentication.issuers[0].fetch.ca_file
    assert files(ca)[path.rpartition("/")[2]] == "PEM"
    shared = guarded(secret("hs", key="x" * 32), auth=inline(sharedSecretRef={"name": "hs", "key": "key"}))
    assert policy(shared).policy.authentication.issuers[0].secret_file == "/etc/fairway/secrets/hs/key"
    assert secrets(shared)["hs"] == {"name": "hs", "items": [{"key": "key", "path": "hs/key"}], "optional": True}
    assert "x" * 32 not in str(desired(shared, SETTINGS))


def test_an_issuer_may_be_described_in_a_config_map():
    document = json.dumps({"issuer": ISSUER, "jwksUrl": "https://keys.example.com/jwks", "algorithms": ["RS256"]})
    of = guarded(
        config_map("idp", **{"oidc.json": document}), auth={"oidc": {"type": "configMap", "configMap": {"name": "idp"}}}
    )
    issuer = policy(of).policy.authentication.issuers[0]
    assert (issuer.issuer, issuer.jwks_url, issuer.algorithms) == (ISSUER, "https://keys.example.com/jwks", ("RS256",))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"issuer": "ftp://x.example"}', "issuer"),
        ('{"issuer": "https://x.example", "jwks_uri": "https://x.example/k"}', "jwks_uri"),
        ('{"issuer": "https://x.example", "caBundleRef": {"name": "x"}}', "caBundleRef refers to another object"),
        ('{"issuer": "http://x.example"}', "https"),
    ],
)
def test_a_document_that_describes_no_issuer_leaves_everything_as_it_is(document, said):
    of = guarded(
        config_map("idp", **{"oidc.json": document}), auth={"oidc": {"type": "configMap", "configMap": {"name": "idp"}}}
    )
    status, reason, message = applied(of)
    assert (status, reason) == ("False", Reason.POLICY_REJECTED)
    assert message.startswith("spec.auth.oidc.configMap: key oidc.json of ConfigMap idp")
    assert said in message
    assert_proxy_is_kept(of)


def test_policies_of_a_config_map_travel_in_the_runconfig():
    of = guarded(
        config_map("rules", **{"policies.cedar": PERMIT}), authz={"cedar": {"configMapRef": {"name": "rules"}}}
    )
    assert policy(of).policy.authorization.policies == (PERMIT,)
    inline_ones = guarded(authz={"cedar": {"policies": [PERMIT], "entities": "[]"}})
    assert policy(inline_ones).policy.authorization.policies == (PERMIT,)
    assert files(inline_ones)[policy(inline_ones).policy.authorization.entities_file.rpartition("/")[2]] == "[]"


def test_an_empty_list_of_policies_is_still_a_policy_that_permits_nothing():
    assert policy(guarded(authz={"cedar": {"policies": []}})).policy.authorization == Authorization()


@pytest.mark.parametrize(
    "spec",
    [
        {"authz": {"cedar": {"configMapRef": {"name": "rules"}}}},
        {"auth": {"oidc": {"type": "configMap", "configMap": {"name": "rules"}}}},
        {"auth": inline(caBundleRef={"name": "rules"})},
    ],
)
def test_a_config_map_that_is_missing_leaves_the_proxy_as_it_is_and_is_named(spec):
    for held in ((), (config_map("rules", other="x"),)):
        of = guarded(*held, **spec)
        status, reason, message = applied(of)
        assert (status, reason) == ("False", Reason.CONFIG_MAP_MISSING)
        assert "ConfigMap rules" in message
        assert message.startswith("spec.auth")
        assert_proxy_is_kept(of)


def assert_proxy_is_kept(of):
    made = {(o["kind"], o["metadata"]["name"]) for o in desired(of, SETTINGS)}
    assert ("Deployment", "hello-proxy") not in made
    assert ("ConfigMap", "hello-runconfig") not in made
    assert ("Deployment", "hello") in made
    assert {"ConfigMap/hello-runconfig", "Deployment/hello-proxy"} <= {str(ref) for ref in kept(of)}


def test_a_secret_that_is_missing_is_named_and_the_proxy_waits_for_it():
    spec = {"headers": {"set": [{"name": "X-Key", "valueFrom": KEY}]}}
    of = guarded(**spec)
    assert applied(of) == (
        "False",
        Reason.SECRET_MISSING,
        "spec.headers.set X-Key asks for key k of Secret s, and there is no such Secret in namespace team",
    )
    assert policy(of).policy.headers.set[0].value_file == "/etc/fairway/secrets/s/k"
    assert applied(guarded(secret("s", k="v"), **spec))[1] is not Reason.SECRET_MISSING


def test_tokens_of_the_cluster_are_checked_with_its_own_keys():
    of = guarded(settings=CLUSTER, auth={"oidc": {"type": "kubernetes"}})
    issuer = policy(of).policy.authentication.issuers[0]
    assert issuer.issuer == "https://kubernetes.default.svc.cluster.local"
    assert issuer.jwks_url == "https://kubernetes.default.svc/openid/v1/jwks"
    assert issuer.fetch.token_file == "/etc/fairway/secrets/cluster/token"
    assert issuer.fetch.ca_file == "/etc/fairway/secrets/cluster/ca.crt"
    assert policy(of).policy.authentication.token_review is None, "no right to review tokens is needed"


def test_a_place_without_a_cluster_says_that_it_issues_no_tokens():
    of = guarded(auth={"oidc": {"type": "kubernetes"}})
    assert applied(of)[:2] == ("False", Reason.POLICY_REJECTED)
    assert_proxy_is_kept(of)


def test_limits_timeouts_and_the_rest_reach_the_route():
    of = guarded(
        secret("s", k="v"),
        rateLimit={
            "shared": {"requests": 100},
            "perClient": {"requests": 5, "per": "1s"},
            "tools": [
                {"name": "b", "shared": {"requests": 1}},
                {"name": "a", "perClient": {"requests": 2, "per": "1m"}},
            ],
        },
        audit={"arguments": True, "redact": ["password"]},
        cors={"allowedOrigins": ["https://app.example.com"], "allowedHosts": ["mcp.example.com"], "maxAge": "1h"},
        headers={
            "set": [
                {"name": "X-Tenant", "value": "a"},
                {
                    "name": "Authorization",
                    "prefix": "Bearer ",
                    "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
                },
            ],
            "forward": ["X-Request-Id"],
        },
        timeouts={"connect": "500ms", "call": "1h30m"},
        limits={"maxBody": "1Mi"},
        upstreamHost="weather.internal",
    )
    made = policy(of)
    limit = made.policy.rate_limit
    assert (limit.shared.tokens, limit.shared.per, limit.principal.per) == (100, 60.0, 1.0)
    assert [(t.tool, t.principal and t.principal.per) for t in limit.tools] == [("a", 60.0), ("b", None)]
    assert made.policy.audit.redact == ("password",)
    assert (made.policy.cors.allowed_origins, made.policy.cors.max_age) == (("https://app.example.com",), 3600)
    assert [h.name for h in made.policy.headers.set] == ["Authorization", "X-Tenant"]
    assert made.policy.headers.forward == ("X-Request-Id",)
    assert (made.timeouts.connect, made.timeouts.call, made.timeouts.idle) == (0.5, 5400.0, 60.0)
    assert made.limits.max_body == 1 << 20
    assert made.upstream.host_header == "weather.internal"


def test_an_audit_that_is_switched_off_is_none():
    assert policy(guarded(audit={"enabled": False})).policy.audit is None


def test_policies_that_no_config_map_could_hold_are_refused_with_their_size():
    of = guarded(authz={"cedar": {"policies": ["// " + "x" * 250_000] * 4}})
    assert applied(of)[1] == Reason.POLICY_REJECTED
    assert "1000" in applied(of)[2]
    assert_proxy_is_kept(of)


def test_the_order_in_which_a_user_writes_things_changes_no_hash():
    def hashed(**spec):
        return runconfig.route_hash(route(guarded(**spec)))

    assert hashed(auth={**inline(audiences=["a", "b"]), "requiredScopes": ["x", "y"]}) == hashed(
        auth={**inline(audiences=["b", "a"]), "requiredScopes": ["y", "x"]}
    )
    tools = [{"name": "a", "shared": {"requests": 1}}, {"name": "b", "shared": {"requests": 1}}]
    assert hashed(rateLimit={"tools": tools}) == hashed(rateLimit={"tools": tools[::-1]})


def test_no_secret_is_ever_part_of_what_is_written():
    of = guarded(
        secret("s", k="hunter2"),
        headers={"set": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    )
    assert "hunter2" not in msgspec.json.encode(desired(of, SETTINGS)).decode()
    assert "hunter2" not in str(of)


PAIR = {"tls.crt": "cert", "tls.key": "key"}


def test_clients_are_served_over_tls_with_the_pair_of_a_secret():
    of = guarded(secret("pair", **PAIR), proxy={"tls": {"secretName": "pair"}}, auth=inline())
    made = policy(of)
    assert made.listen.tls == runconfig.ListenTLS(
        cert_file="/etc/fairway/secrets/pair/tls.crt", key_file="/etc/fairway/secrets/pair/tls.key"
    )
    assert made.policy.authentication.resources == ("https://hello.team.svc.cluster.local:8080/mcp",)
    assert [item["key"] for item in secrets(of)["pair"]["items"]] == ["tls.crt", "tls.key"]
    assert secrets(of)["pair"]["optional"], "a proxy whose certificate comes later starts, and does not serve without"
    assert applied(of)[1] != Reason.SECRET_MISSING


@pytest.mark.parametrize("held", [(), (secret("pair", **{"tls.crt": "cert"}),)])
def test_without_its_pair_a_proxy_is_told_to_serve_over_tls_all_the_same(held):
    of = guarded(*held, proxy={"tls": {"secretName": "pair"}})
    assert policy(of).listen.tls is not None
    status, reason, message = applied(of)
    assert (status, reason) == ("False", Reason.SECRET_MISSING)
    assert "spec.proxy.tls" in message
    assert "pair" in message


def test_a_server_is_dialled_over_tls_and_judged_by_the_given_authorities():
    of = guarded(
        config_map("company", **{"ca.crt": "PEM"}),
        upstreamTLS={"caBundleRef": {"name": "company"}, "serverName": "w.example.com"},
    )
    tls = policy(of).upstream.tls
    assert tls.server_name == "w.example.com"
    assert files(of)[tls.ca_file.removeprefix("/etc/fairway/runconfig/")] == "PEM"
    assert policy(guarded(upstreamTLS={})).upstream.tls == runconfig.UpstreamTLS()


def test_authorities_that_are_missing_are_named_and_nothing_is_dialled_on_trust():
    of = guarded(upstreamTLS={"caBundleRef": {"name": "company"}})
    status, reason, message = applied(of)
    assert (status, reason) == ("False", Reason.CONFIG_MAP_MISSING)
    assert "spec.upstreamTLS.caBundleRef" in message


def away(*held, **spec):
    return inputs(server(**spec), None, *held, settings=SETTINGS)


def test_headers_of_a_remote_server_go_with_every_request_and_are_read_from_their_secret():
    headers = [{"name": "X-Team", "value": "a"}, {"name": "Authorization", **KEY}]
    of = away(secret("s", k="dg=="), remote={"url": "https://mcp.example.com/mcp", "headers": headers})
    made = {header.name: header for header in policy(of).policy.headers.set}
    assert made["X-Team"].value == "a"
    assert made["Authorization"].value_file == "/etc/fairway/secrets/s/k"
    assert "s" in secrets(of)


def test_a_header_of_a_remote_server_whose_secret_is_missing_is_named():
    remote = {"url": "https://mcp.example.com/mcp", "headers": [{"name": "Authorization", **KEY}]}
    _, reason, message = applied(away(remote=remote))
    assert reason == Reason.SECRET_MISSING
    assert "spec.remote.headers Authorization" in message


def test_two_values_for_one_header_are_refused():
    remote = {"url": "https://mcp.example.com/mcp", "headers": [{"name": "X-team", "value": "a"}]}
    _, reason, message = applied(away(remote=remote, headers={"set": [{"name": "X-Team", "value": "b"}]}))
    assert reason == Reason.POLICY_REJECTED
    assert "X-team" in message
