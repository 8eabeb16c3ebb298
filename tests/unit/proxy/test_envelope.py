"""The JSON-RPC envelope: what passes, what is refused, and that no parser can see another call in it."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.proxy.envelope import Unreadable, read

CASES = yaml.safe_load((Path(__file__).parent / "data" / "envelopes.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_bodies_that_could_be_read_in_two_ways_or_in_none_are_refused(case):
    with pytest.raises(Unreadable) as refused:
        read(case["body"].encode("latin-1"))
    assert refused.value.code == case["code"]


@pytest.mark.parametrize(
    "deep", [b"[" * 100_000, b'{"params":' * 100_000, b'{"method":"x","params":{"a":' + b"[" * 50_000]
)
def test_deep_nesting_is_refused_and_not_a_crash(deep):
    with pytest.raises(Unreadable):
        read(deep)


def test_a_closed_deep_nesting_is_refused_and_not_a_crash():
    with pytest.raises(Unreadable):
        read(b'{"method":"x","params":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}")


def test_a_call_is_read():
    envelope = read(b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"name":1}}}')
    assert envelope.method == "tools/call"
    assert bytes(envelope.id) == b'"a"'
    assert envelope.name() == "echo"
    assert envelope.is_request


def test_spaces_change_nothing():
    envelope = read(b' { "jsonrpc" : "2.0" , "id" : 1 , "method" : "tools/call" , "params" : { "name" : "echo" } } ')
    assert (envelope.method, envelope.name(), bytes(envelope.id)) == ("tools/call", "echo", b"1")


def test_members_that_json_rpc_does_not_know_pass():
    assert read(b'{"jsonrpc":"2.0","id":1,"method":"ping","x-trace":{"a":1}}').method == "ping"


LARGE = b'"' + b"a" * (70 << 10) + b'"'


OBJECTS = [case for case in CASES if case["body"].startswith('{"')]


@pytest.mark.parametrize("case", OBJECTS, ids=[case["name"] for case in OBJECTS])
def test_a_large_body_is_refused_like_a_small_one(case):
    # the spaces keep the fast way from being taken, as many clients' do
    with pytest.raises(Unreadable) as refused:
        read(b'{ "x": %b, %b' % (LARGE, case["body"].encode("latin-1")[1:]))
    assert refused.value.code == case["code"]


@pytest.mark.parametrize(
    "params", ["null", "{}", '{"name":"a","arguments":{"name":"b", "x":1}}', '{"a\\"b":1}', '{"\\u0061":1}']
)
def test_a_large_body_is_read_like_a_small_one(params):
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "x": %b, "params": %b}'
    small, large = body % (b"1", params.encode()), body % (LARGE, params.encode())
    if "\\" in params:
        assert read(small).params
        with pytest.raises(Unreadable, match="escaped"):
            read(large)
    else:
        assert read(large) == read(small)


def test_a_large_body_costs_no_look_at_each_of_its_values():
    made = 0

    def count(event, *_):
        nonlocal made
        made += event in ("call", "c_call")

    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [%b]}}' % b",".join([b"{}"] * 40_000)
    sys.setprofile(count)
    try:
        read(body)
    finally:
        sys.setprofile(None)
    assert made < 200


def test_an_id_is_of_a_length_that_can_be_kept():
    assert read(b'{"jsonrpc":"2.0","id":"%b","method":"ping"}' % (b"a" * 1022)).is_request
    with pytest.raises(Unreadable, match="longer than 1024"):
        read(b'{"jsonrpc":"2.0","id":"%b","method":"ping"}' % (b"a" * 1023))


def test_an_id_that_no_float_holds_is_kept():
    big = b"1" * 1024
    assert bytes(read(b'{"jsonrpc":"2.0","id":' + big + b',"method":"ping"}').id) == big
    assert bytes(read(b'{"jsonrpc":"2.0","id": ' + big + b',"method":"ping"}').id) == big


def test_a_notification_has_no_id_and_a_response_no_method():
    assert not read(b'{"jsonrpc":"2.0","method":"notifications/initialized"}').is_request
    assert read(b'{"jsonrpc":"2.0","id":1,"result":{}}').method == ""
    assert read(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}').method == ""
    assert read(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}').method == ""
    assert read(b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}').method == ""


@pytest.mark.parametrize("params", ["{}", '{"name":1}', '{"name":null}', '{"name":{"a":1}}', '{"nom":"x"}'])
def test_a_name_that_is_no_string_is_no_name(params):
    assert read(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params.encode() + b"}").name() is None


def test_absent_and_null_params_are_none():
    assert read(b'{"jsonrpc":"2.0","id":1,"method":"ping"}').params is None
    assert read(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}').params is None


def test_a_parameter_is_replaced_and_all_else_is_kept_byte_for_byte():
    body = (
        b'{"jsonrpc":"2.0","id":-12,"method":"tools/call",'
        b'"params":{"_meta":{"a": 1.10},"name":"old","arguments":{ "b":"\\u0041" }}}'
    )
    changed = read(body).rename("new")
    assert changed == body.replace(b'"old"', b'"new"')


keys = st.sampled_from(["name", "arguments", "_meta", "cursor", "naïve", "Name", "uri"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.lists(st.tuples(keys, values), max_size=5), st.booleans(), st.booleans())
def test_what_passes_means_the_same_to_every_parser(pairs, spaced, escaped):
    comma, colon = (", ", ": ") if spaced else (",", ":")

    def dump(value):
        return json.dumps(value, separators=(comma, colon), ensure_ascii=escaped)

    params = comma.join(dump(key) + colon + dump(value) for key, value in pairs)
    outer = [f'"jsonrpc"{colon}"2.0"', f'"id"{colon}1', f'"method"{colon}"tools/call"', f'"params"{colon}{{{params}}}']
    body = f"{{{comma.join(outer)}}}".encode()
    folded = [key.casefold() for key, _ in pairs]
    if len(set(folded)) == len(folded) and "Name" not in dict(pairs):
        envelope = read(body)
        name = dict(pairs).get("name")
        assert envelope.name() == (name if isinstance(name, str) else None)
        assert {key: json.loads(bytes(raw)) for key, raw in (envelope.params or {}).items()} == dict(pairs)
    else:
        with pytest.raises(Unreadable):
            read(body)
