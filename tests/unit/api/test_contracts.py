"""The contracts are frozen: what was written by an earlier release is still read, and no word is lost."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fairway.api import policy, proxystatus, runconfig
from fairway.api.generate import generated, words

REPOSITORY = Path(__file__).parents[3]
GOLDEN = REPOSITORY / "tests" / "golden"
PARTS = ("", "policy-", "stdio-", "transports-")


def read(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def test_the_committed_files_are_what_the_code_generates():
    for name, content in generated().items():
        assert (REPOSITORY / name).read_text() == content, f"{name} is out of date: make generate"


def test_no_word_that_others_rely_on_is_lost():
    frozen, now = json.loads(read("words-v1alpha1.json")), words()
    for key, value in frozen.items():
        if isinstance(value, list):
            assert set(value) <= set(now[key]), key
        elif key == "children":
            for kind, names in value.items():
                assert set(names) <= set(now[key][kind]), kind
        else:
            assert now[key] == value, key


@pytest.mark.parametrize("name", [f"runconfig-{part}v1.json" for part in PARTS])
def test_a_golden_runconfig_is_read_and_written_back_to_the_byte(name):
    config, hashes = runconfig.parse(read(name))
    assert runconfig.encode(config) == read(name)
    assert hashes == {route.name: runconfig.route_hash(route) for route in config.routes}


@pytest.mark.parametrize("part", PARTS)
def test_the_hash_of_a_golden_route_never_changes(part):
    _, hashes = runconfig.parse(read(f"runconfig-{part}v1.json"))
    assert hashes == json.loads(read(f"route-hashes-{part}v1.json"))


@pytest.mark.parametrize("name", [f"runconfig-{part}v1.json" for part in PARTS])
def test_a_golden_runconfig_satisfies_the_published_schema(name):
    schema = json.loads((REPOSITORY / "docs/contracts/runconfig-v1.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(read(name)))


def test_the_golden_policy_says_everything_that_a_policy_can_say():
    """So that no member of the contract can change without anybody noticing."""
    (route,) = json.loads(read("runconfig-policy-v1.json"))["routes"]
    said = set(names(route["policy"]))
    declared = {
        name
        for part in vars(policy).values()
        if isinstance(part, type) and issubclass(part, policy.Struct)
        for name in part.__struct_encode_fields__
    }
    assert declared - said == {"jwksFile"}  # one issuer has one source of keys


def names(value):
    match value:
        case dict():
            for name, member in value.items():
                yield name
                yield from names(member)
        case list():
            for item in value:
                yield from names(item)


def test_the_golden_proxy_status_is_read_and_written_back():
    status = proxystatus.parse(read("proxystatus-v1.json"))
    assert json.loads(proxystatus.encode(status)) == json.loads(read("proxystatus-v1.json"))
    schema = json.loads((REPOSITORY / "docs/contracts/proxystatus-v1.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(read("proxystatus-v1.json")))


def test_a_field_that_a_newer_proxy_reports_is_skipped():
    newer = json.loads(read("proxystatus-v1.json")) | {"uptime": 3}
    assert proxystatus.parse(json.dumps(newer).encode()).route("default/weather") is not None


def test_the_golden_transports_say_everything_that_can_be_said_of_them():
    said = set(names(json.loads(read("runconfig-transports-v1.json"))))
    for part in (runconfig.ListenTLS, runconfig.UpstreamTLS, runconfig.Remote):
        assert set(part.__struct_encode_fields__) <= said


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://a.example/v1/mcp", "a.example", 443, "/v1/mcp", "a.example"),
        ("https://A.example:8443", "a.example", 8443, "/", "A.example:8443"),
        ("http://[::1]:80/mcp", "::1", 80, "/mcp", "[::1]:80"),
    ],
)
def test_a_remote_is_read_from_its_url(url, host, port, path, authority):
    remote = runconfig.Remote(url=url)
    assert (remote.host, remote.port, remote.path, remote.authority) == (host, port, path, authority)
    assert remote.secure == url.startswith("https")
    assert runconfig.Upstream(remote=remote).endpoint_path == path


def upstream(**settings: object) -> dict[str, object]:
    listen = settings.pop("listen", {})
    return {"routes": [{"name": "a", "listen": {"port": 1, **listen}, "upstream": settings}]}


HTTPS = {"url": "https://a.example/mcp"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version"),
        ({"policies": []}, "unknown field `policies`"),
        ({"routes": [{"name": "a", "listen": {"port": 1}, "upstream": {}}]}, "exactly one of service and addresses"),
        (upstream(transport="stdio", command={"argv": []}), "length >= 1"),
        (upstream(transport="stdio", command={"argv": ["x"], "env": {"A=B": "1"}}), "regex"),
        (upstream(transport="stdio", command={"argv": ["x"]}, addresses=["a:1"]), "exactly one of"),
        (upstream(transport="stdio", addresses=["a:1"]), "command and attach go with transport stdio"),
        (upstream(transport="stdio", attach={"namespace": "a"}), "missing required field `pod`"),
        (upstream(transport="stdio", attach={"namespace": "", "pod": "b-0"}), "length >= 1"),
        (upstream(transport="stdio", attach={"namespace": "a", "pod": "b-0"}, command={"argv": ["x"]}), "exactly one"),
        (upstream(attach={"namespace": "a", "pod": "b-0"}), "command and attach go with transport stdio"),
        (upstream(command={"argv": ["x"]}), "command and attach go with transport stdio"),
        (upstream(remote=HTTPS, addresses=["a:1"]), "exactly one of"),
        (upstream(transport="stdio", remote=HTTPS), "command and attach go with transport stdio"),
        (upstream(remote={"url": "ftp://a/mcp"}), "regex"),
        (upstream(remote={"url": "https://user:word@a/mcp"}), "regex"),
        (upstream(remote={"url": "https://a/mcp?key=1"}), "regex"),
        (upstream(remote={"url": "https://a/mcp#1"}), "regex"),
        (upstream(remote={"url": "https:///mcp"}), "regex"),
        (upstream(remote={"url": "https://a/mcp\n"}), "regex"),
        (upstream(addresses=["a:1"], path="/mcp\n"), "regex"),
        (upstream(addresses=["a:1"], hostHeader="a\n"), "regex"),
        (upstream(addresses=["a:1"], listen={"path": "/mcp\n"}), "regex"),
        (upstream(transport="stdio", command={"argv": ["x"], "env": {"A\n": "1"}}), "regex"),
        (upstream(remote={"url": "https://a:70000/mcp"}), "remote.url"),
        (upstream(remote={"url": "https://a:0/mcp"}), "not 0"),
        (upstream(remote={"url": "http://a/mcp"}, tls={}), "remote whose url is https"),
        (upstream(remote=HTTPS, path="/other"), "a remote says it in its url"),
        (upstream(transport="stdio", command={"argv": ["x"]}, tls={}), "tls goes with service"),
        (upstream(addresses=["a:1"], tls={"caFile": "ca.crt"}), "regex"),
        (upstream(addresses=["a:1"], tls={"serverName": "a b"}), "regex"),
        (upstream(addresses=["a:1"], tls={"insecure": True}), "unknown field `insecure`"),
        (upstream(addresses=["a:1"], listen={"mode": "sse"}), "transport is stdio or sse"),
        (upstream(addresses=["a:1"], transport="sse"), "is served as sse"),
        (upstream(addresses=["a:1"], listen={"tls": {"certFile": "/a"}}), "missing required field `keyFile`"),
        ({"routes": [{"name": "a", "listen": {"port": 70000}, "upstream": {"addresses": ["a:1"]}}]}, "65535"),
        ({"routes": [{"name": "a", "listen": {"port": 1, "path": "mcp"}, "upstream": {"addresses": ["a:1"]}}]}, "path"),
        ({"routes": 2 * [{"name": "a", "listen": {"port": 1}, "upstream": {"addresses": ["a:1"]}}]}, "same name"),
        (
            {
                "routes": [
                    {
                        "name": "a",
                        "listen": {"port": 1},
                        "upstream": {"addresses": ["a:1"]},
                        "tools": {"override": [{"tool": "x", "name": "z"}, {"tool": "y", "name": "z"}]},
                    }
                ]
            },
            "both renamed to z",
        ),
    ],
)
def test_a_runconfig_that_cannot_be_used_is_refused_and_says_why(change, said):
    with pytest.raises(runconfig.InvalidRunConfig, match=said):
        runconfig.parse(json.dumps({"version": 1, "routes": []} | change).encode())


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_do_anything_but_refuse(data):
    with pytest.raises(runconfig.InvalidRunConfig):
        runconfig.parse(data)


def test_nesting_without_end_is_refused():
    with pytest.raises(runconfig.InvalidRunConfig):
        runconfig.parse(b'{"version":1,"routes":' + b"[" * 100_000)


def test_the_hash_is_of_the_route_as_written_and_not_as_understood():
    written = (
        b'{"version":1,"routes":[{"name":"a","listen":{"port":1,"path":"/mcp"},"upstream":{"addresses":["a:1"]}}]}'
    )
    shorter = b'{"version":1,"routes":[{"listen":{"port":1},"upstream":{"addresses":["a:1"]},"name":"a"}]}'
    (one, first), (two, second) = runconfig.parse(written), runconfig.parse(shorter)
    assert one == two
    assert first != second


def test_the_order_of_keys_and_white_space_change_no_hash():
    raw = json.loads(read("runconfig-v1.json"))
    shuffled = json.dumps({k: raw[k] for k in sorted(raw, reverse=True)}, indent=7).encode()
    assert runconfig.parse(shuffled)[1] == runconfig.parse(read("runconfig-v1.json"))[1]


def test_the_schemas_are_plain_json():
    assert msgspec.json.decode(msgspec.json.encode(runconfig.json_schema()))
