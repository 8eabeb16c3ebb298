"""Every method that a client can send is in the table, or is known to be none for clients."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods as reference

from fairway.mcp.actions import RULES, Access, Action, Kind, Target, Unclear, targets
from fairway.mcp.protocol import NAME_PARAM, Method


def asked(method: str, **params: Any) -> tuple[Target, ...]:
    return targets(method, {name: json.dumps(value).encode() for name, value in params.items()})


def test_every_method_that_the_specification_gives_clients_is_in_the_table():
    known = {*reference.SPEC_CLIENT_METHODS, *reference.SPEC_CLIENT_NOTIFICATION_METHODS}
    assert len(known) >= 19
    left_out = {"tasks/list", "notifications/tasks/status", "notifications/elicitation/complete"}
    assert known - set(RULES) <= left_out


def test_what_servers_send_is_not_for_clients_to_ask():
    for method in (Method.SAMPLING_CREATE, Method.ELICITATION_CREATE, Method.ROOTS_LIST, Method.MESSAGE):
        assert method not in RULES


def test_a_rule_says_all_that_its_access_needs():
    for method, rule in RULES.items():
        match rule.access:
            case Access.OPEN:
                assert (rule.action, rule.kind, rule.param) == (None, None, ""), method
            case Access.LIST:
                assert rule.action, method
                assert rule.kind, method
            case Access.AUTHORISED:
                assert rule.action, method
            case Access.OWNED:
                assert (rule.kind, rule.param) == (Kind.TASK, "taskId"), method


def test_the_name_is_where_the_header_takes_it_from():
    for method, param in NAME_PARAM.items():
        assert RULES[method].param == param


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/call", {"name": "x"}, (Target(Action.CALL_TOOL, Kind.TOOL, "x"),)),
        ("prompts/get", {"name": "x"}, (Target(Action.GET_PROMPT, Kind.PROMPT, "x"),)),
        ("resources/read", {"uri": "x"}, (Target(Action.READ_RESOURCE, Kind.RESOURCE, "x"),)),
        ("resources/subscribe", {"uri": "x"}, (Target(Action.SUBSCRIBE, Kind.RESOURCE, "x"),)),
        ("tasks/cancel", {"taskId": "x"}, (Target(None, Kind.TASK, "x"),)),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "x", "title": "y"}},
            (Target(Action.COMPLETE, Kind.PROMPT, "x"),),
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "x"}},
            (Target(Action.COMPLETE, Kind.RESOURCE, "x"),),
        ),
        (
            "subscriptions/listen",
            {"notifications": {"resourceSubscriptions": ["a", "b"], "taskIds": ["t"], "promptsListChanged": True}},
            (
                Target(Action.SUBSCRIBE, Kind.RESOURCE, "a"),
                Target(Action.SUBSCRIBE, Kind.RESOURCE, "b"),
                Target(None, Kind.TASK, "t"),
            ),
        ),
        ("subscriptions/listen", {"notifications": {}}, ()),
        ("tools/list", {}, ()),
        ("ping", {}, ()),
        ("unknown/method", {"name": "x"}, ()),
    ],
)
def test_what_a_request_acts_on_is_found(method, params, expected):
    assert asked(method, **params) == expected


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 1}),
        ("tools/call", {"name": None}),
        ("tools/call", {"name": ["x"]}),
        ("tools/call", {"Name": "x"}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": "x"}),
        ("completion/complete", {"ref": {"type": "ref/prompt"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "uri": "x"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x", "uri": "y"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "name": "x"}}),
        ("completion/complete", {"ref": {"type": "ref/tool", "name": "x"}}),
        ("completion/complete", {"ref": {"name": "x"}}),
        ("subscriptions/listen", {}),
        ("subscriptions/listen", {"notifications": {"everything": True}}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": "a"}}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [1]}}),
        ("tasks/get", {"taskId": 1}),
    ],
)
def test_a_request_that_does_not_say_what_it_acts_on_is_refused(method, params):
    with pytest.raises(Unclear):
        asked(method, **params)


@pytest.mark.parametrize(
    "reference_text",
    [
        b'{"type":"ref/prompt","name":"a","name":"b"}',
        b'{"type":"ref/prompt","name":"a","NAME":"b"}',
        b"{",
        b"\xff",
        b"[" * 9999,
    ],
)
def test_a_name_that_is_there_twice_is_refused(reference_text):
    with pytest.raises(Unclear):
        targets("completion/complete", {"ref": reference_text})


PARAMS = st.sampled_from(["name", "uri", "ref", "notifications", "taskId"])


@given(st.sampled_from(sorted(RULES)), st.dictionaries(PARAMS, st.binary(max_size=30)))
def test_no_bytes_do_anything_but_be_unclear(method, params):
    with contextlib.suppress(Unclear):
        assert all(isinstance(target, Target) for target in targets(method, params))
