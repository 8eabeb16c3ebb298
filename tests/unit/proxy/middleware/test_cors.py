"""Cross-origin answers: pages that are configured can read, and no others are helped."""

import pytest

from fairway.api import policy
from fairway.proxy.middleware.cors import Cors

APP = "https://app.example.org"
CONFIGURED = Cors(policy.Cors(allowed_origins=(APP,), max_age=60))
EVERY = Cors(policy.Cors(allowed_origins=("*",)))
NONE = Cors(policy.Cors())


def test_a_configured_page_may_send_what_mcp_needs_and_read_what_it_answers():
    said = CONFIGURED.preflight(
        APP, "POST", "content-type, Authorization, mcp-protocol-version, Mcp-Param-Region, x-evil"
    )
    assert said is not None
    assert said.status == 204
    headers = dict(said.headers)
    assert headers["Access-Control-Allow-Origin"] == APP
    assert headers["Vary"] == "Origin"
    assert headers["Access-Control-Max-Age"] == "60"
    assert "Access-Control-Allow-Credentials" not in headers
    allowed = headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "content-type", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"} <= set(
        allowed
    )
    assert "mcp-param-region" in allowed
    assert "x-evil" not in allowed
    assert set(headers["Access-Control-Allow-Methods"].split(", ")) == {"POST", "GET", "DELETE", "OPTIONS"}
    exposed = headers["Access-Control-Expose-Headers"]
    assert "Mcp-Session-Id" in exposed
    assert "WWW-Authenticate" in exposed


@pytest.mark.parametrize(
    "origin", ["https://other.example.org", "http://app.example.org", APP + ":444", APP + "/", APP.upper(), "null", ""]
)
def test_other_pages_are_refused_and_told_nothing(origin):
    said = CONFIGURED.preflight(origin, "POST", None)
    assert said is not None
    assert said.status == 403
    assert said.headers == (("Vary", "Origin"),)
    assert CONFIGURED.headers(origin) == (("Vary", "Origin"),)
    assert NONE.preflight(origin, "POST", None) is not None


@pytest.mark.parametrize("method", ["PUT", "PATCH", "CONNECT", "post", ""])
def test_methods_that_mcp_has_not_are_refused(method):
    said = CONFIGURED.preflight(APP, method, None)
    assert said is not None
    assert said.status == 403


def test_a_header_cannot_be_smuggled_through_the_list():
    said = CONFIGURED.preflight(APP, "POST", "mcp-param-a\r\nX: 1, mcp-param-é, mcp-param-" + "a" * 200 + ", ,")
    assert said is not None
    assert "X:" not in dict(said.headers)["Access-Control-Allow-Headers"]
    assert "mcp-param" not in dict(said.headers)["Access-Control-Allow-Headers"]
    many = CONFIGURED.preflight(APP, "POST", ",".join(f"mcp-param-{n}" for n in range(100)))
    assert many is not None
    assert many.status == 403


def test_options_without_a_question_is_no_preflight():
    assert CONFIGURED.preflight(None, "POST", None) is None
    assert CONFIGURED.preflight(APP, None, None) is None


def test_every_page_means_a_star_and_never_an_echo():
    said = EVERY.preflight("https://any.example", "POST", None)
    assert said is not None
    assert said.status == 204
    assert dict(said.headers)["Access-Control-Allow-Origin"] == "*"
    assert "Vary" not in dict(said.headers)


def test_an_answer_without_origin_varies_only_where_it_can():
    assert CONFIGURED.headers(None) == (("Vary", "Origin"),)
    assert NONE.headers(None) == ()
    assert EVERY.headers(None) == ()
