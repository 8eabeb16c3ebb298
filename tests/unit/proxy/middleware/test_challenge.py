"""What a client that has no token is told."""

import json

import pytest

from fairway.api import policy
from fairway.proxy.middleware.challenge import metadata, metadata_url, resource_for, www_authenticate

WELL_KNOWN = "/.well-known/oauth-protected-resource"
CONFIG = policy.Authentication(
    resources=("https://gw.example.org/weather/mcp", "https://gw.example.org/time/mcp", "http://weather.svc:8080/mcp"),
    issuers=(policy.Issuer(issuer="https://idp.example.org"),),
    required_scopes=("mcp:tools",),
)


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("https://gw.example.org/mcp", f"https://gw.example.org{WELL_KNOWN}/mcp"),
        ("https://gw.example.org", f"https://gw.example.org{WELL_KNOWN}"),
        ("https://gw.example.org/", f"https://gw.example.org{WELL_KNOWN}"),
        ("http://[::1]:8080/a/b/", f"http://[::1]:8080{WELL_KNOWN}/a/b"),
    ],
)
def test_the_well_known_part_goes_between_host_and_path(resource, url):
    assert metadata_url(resource) == url


def test_the_document_says_what_the_standard_asks_for():
    body = metadata(CONFIG, host="gw.example.org", path=f"{WELL_KNOWN}/weather/mcp")
    assert body is not None
    assert json.loads(body) == {
        "resource": "https://gw.example.org/weather/mcp",
        "authorization_servers": ["https://idp.example.org"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["mcp:tools"],
    }


@pytest.mark.parametrize(
    ("host", "path", "resource"),
    [
        ("gw.example.org", f"{WELL_KNOWN}/time/mcp", "https://gw.example.org/time/mcp"),
        ("gw.example.org", f"{WELL_KNOWN}/time/mcp/", "https://gw.example.org/time/mcp"),
        ("weather.svc:8080", f"{WELL_KNOWN}/mcp", "http://weather.svc:8080/mcp"),
        ("weather.svc:8080", WELL_KNOWN, "http://weather.svc:8080/mcp"),
        ("gw.example.org", WELL_KNOWN, None),
        ("gw.example.org", f"{WELL_KNOWN}/mcp", None),
        ("gw.example.org", f"{WELL_KNOWN}X/time/mcp", None),
        ("gw.example.org", "/mcp", None),
        ("unknown.example", f"{WELL_KNOWN}/time/mcp", "https://gw.example.org/time/mcp"),
    ],
)
def test_each_url_of_the_server_has_its_own_document(host, path, resource):
    body = metadata(CONFIG, host=host, path=path)
    assert (None if body is None else json.loads(body)["resource"]) == resource


def test_without_resources_there_is_no_document():
    assert metadata(policy.Authentication(anonymous=True), host="x", path=WELL_KNOWN) is None
    assert resource_for(policy.Authentication(anonymous=True), "x") is None


def test_authorization_servers_can_be_named_instead_of_the_issuers():
    config = policy.Authentication(
        resources=("https://gw.example.org/mcp",),
        issuers=CONFIG.issuers,
        authorization_servers=("https://login.example.org",),
        scopes_supported=("a", "b"),
    )
    said = json.loads(metadata(config, host="", path=f"{WELL_KNOWN}/mcp") or b"")
    assert said["authorization_servers"] == ["https://login.example.org"]
    assert said["scopes_supported"] == ["a", "b"]


def test_a_challenge_cannot_be_broken_out_of():
    name, value = www_authenticate(None, error="invalid_token", description='a"b\\c\r\nX: é')
    assert name == "WWW-Authenticate"
    assert value == "Bearer error=\"invalid_token\", error_description=\"a'b'c''X: '\""
    assert www_authenticate(None) == ("WWW-Authenticate", "Bearer")
