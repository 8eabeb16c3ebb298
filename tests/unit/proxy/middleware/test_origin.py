"""Host and Origin: a page from elsewhere never reaches a server through somebody's browser."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.api.policy import Cors
from fairway.proxy.middleware.origin import OriginRules, host_name, is_loopback, may_see_origin

CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "origins.yaml").read_text())

LOCAL = OriginRules(Cors(), loopback=True)
CLUSTER = OriginRules(Cors(), loopback=False)
PUBLIC = OriginRules(
    Cors(
        allowed_origins=("https://app.example.org", "http://localhost:6274"),
        allowed_hosts=("gw.example.org", "*.tools.example.org"),
    ),
    loopback=False,
)


def status(rules: OriginRules, host: str, origin: str | None = None) -> int | None:
    said = rules.check(host, origin)
    return None if said is None else said.status


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:7001", None),
        ("127.0.0.1:7001", None),
        ("[::1]:7001", None),
        ("tools.localhost", None),
        ("LOCALHOST:7001", None),
        ("localhost:7001", "http://localhost:6274"),
        ("127.0.0.1:7001", "http://localhost:6274"),
        ("localhost.:7001", "http://127.0.0.1"),
        ("127.9.9.9", "http://[::1]:3000"),
    ],
)
def test_on_this_machine_pages_of_this_machine_are_let_in(host, origin):
    assert status(LOCAL, host, origin) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("attacker.example:7001", "http://attacker.example:7001"),
        ("attacker.example:7001", None),
        ("localhost.attacker.example", None),
        ("127.0.0.1.attacker.example", None),
        ("10.0.0.1", None),
        ("localhost:7001", "http://attacker.example"),
        ("localhost:7001", "http://localhost.attacker.example"),
        ("localhost:7001", "null"),
        ("localhost:7001", ""),
        ("localhost:7001", "file://"),
        ("localhost:7001", "chrome-extension://abc"),
        ("localhost:7001", "http://localhost@attacker.example"),
        ("localhost:7001", "http://attacker.example#localhost"),
        ("localhost:7001", "http://attacker.example\\@localhost"),
        ("localhost:7001", "javascript://localhost"),
    ],
)
def test_on_this_machine_pages_from_elsewhere_are_not(host, origin):
    assert status(LOCAL, host, origin) == 403


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("weather.default.svc:8080", None, None),
        ("weather.default.svc:8080", "http://weather.default.svc:8080", None),
        ("weather:8080", "http://weather", None),
        ("10.1.2.3:8080", "http://10.1.2.3:8080", None),
        ("gw.example.org", "https://gw.example.org", None),
        ("gw.example.org", "http://gw.example.org", 403),
        ("gw.example.org", "https://other.example.org", 403),
        ("weather.default.svc", "https://attacker.example", 403),
    ],
)
def test_agreement_of_host_and_origin_proves_something_only_for_names_that_nobody_can_have(host, origin, expected):
    assert status(CLUSTER, host, origin) == expected


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("gw.example.org", None, None),
        ("gw.example.org:443", "https://app.example.org", None),
        ("a.tools.example.org", "http://localhost:6274", None),
        ("GW.Example.org", None, None),
        ("tools.example.org", None, 403),
        ("eviltools.example.org", None, 403),
        ("gw.example.org.attacker.example", None, 403),
        ("localhost", None, 403),
        ("gw.example.org", "https://app.example.org.attacker.example", 403),
        ("gw.example.org", "http://app.example.org", 403),
        ("gw.example.org", "https://app.example.org:8443", 403),
        ("gw.example.org", "HTTPS://APP.EXAMPLE.ORG", 403),
    ],
)
def test_what_is_configured_is_what_counts(host, origin, expected):
    assert status(PUBLIC, host, origin) == expected


@pytest.mark.parametrize(
    "host",
    [
        "", " ", "a b", "a/b", "a\\b", "a@b", "a?b", "a#b", "a%2e", "a,b", "a:b", "a:99999", "[::1", "::1]", "exämple",
        "a\0", "a\n", ".", ":80",
    ],
)  # fmt: skip
def test_what_is_no_host_name_is_a_bad_request(host):
    assert host_name(host) is None
    assert status(CLUSTER, host) == 400


def test_every_page_is_let_in_only_where_that_is_said():
    rules = OriginRules(Cors(allowed_origins=("*",)), loopback=False)
    assert status(rules, "gw.example.org", "https://anything.example") is None
    assert status(rules, "gw.example.org", "null") is None


def test_the_server_sees_only_origins_that_it_would_let_in_itself():
    assert may_see_origin("http://localhost:6274")
    assert not may_see_origin("https://app.example.org")
    assert not may_see_origin("null")


def test_hosts_that_are_remembered_are_bounded():
    rules = OriginRules(Cors(), loopback=False)
    for n in range(1000):
        assert status(rules, f"h{n}.example.org") is None
    assert len(rules._good_hosts) <= 256


@given(st.text(max_size=60), st.none() | st.text(max_size=60))
def test_no_text_gets_in_but_the_names_of_this_machine(host, origin):
    if LOCAL.check(host, origin) is None:
        name = host_name(host)
        assert name is not None
        assert name == "localhost" or name.endswith(".localhost") or name.startswith("127.") or name == "::1"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_only_who_cannot_be_a_stranger_in_the_users_browser_may_pass(case):
    rules = LOCAL if case.get("loopback") else CLUSTER
    refusal = rules.check(case["host"], case.get("origin"))
    assert (refusal is None) == case["allowed"]
    if case["allowed"] and "origin" in case:
        assert may_see_origin(case["origin"]) == case.get("keep", False)


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "127.0.0.1", "127.9.8.7", "::1"])
def test_names_that_only_mean_this_machine(name):
    assert is_loopback(name)


@pytest.mark.parametrize("name", ["localhost.example.com", "0.0.0.0", "10.0.0.1", "127.1", "2130706433", "::"])
def test_names_that_can_mean_another_machine(name):
    assert not is_loopback(name)


def test_a_host_name_has_neither_port_nor_brackets():
    assert host_name("[::1]:80") == "::1"
    assert host_name("A.Example.com:80") == "a.example.com"
