"""Looking into the past: which requests can be answered from it, and how."""

import json

import pytest

from tests.faultproxy.request import classify
from tests.faultproxy.stale import OldList, is_first_look, resumed, with_query
from tests.faultproxy.watchstream import Send, WatchStream


@pytest.mark.parametrize(
    ("target", "first"),
    [
        ("/api/v1/pods", True),
        ("/api/v1/pods?limit=500", True),
        ("/api/v1/pods?limit=500&continue=abc", False),
        ("/api/v1/pods?watch=1&sendInitialEvents=true", True),
        ("/api/v1/pods?watch=1&resourceVersion=17", False),
        ("/api/v1/namespaces/a/pods/x", False),
    ],
)
def test_only_a_first_look_can_be_answered_from_the_past(target: str, first: bool) -> None:
    assert is_first_look(classify(1, "GET", target, {})) is first


def test_parameters_are_changed_added_and_removed() -> None:
    assert with_query("/x?a=1&b=2&c=", a="3", b=None, d="e f") == "/x?a=3&c=&d=e+f"


def test_a_watch_goes_on_where_the_old_list_ended() -> None:
    target = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=300"
    assert resumed(target, 17) == "/api/v1/pods?watch=1&timeoutSeconds=300&resourceVersion=17"


def test_an_old_list_reads_as_initial_events() -> None:
    items = [{"metadata": {"name": name}} for name in ("a", "b")]
    old = OldList(17, 200, {"apiVersion": "v1", "kind": "PodList", "items": items})
    sent = [
        json.loads(command.data)
        for command in WatchStream(lambda *_: None).feed(old.as_events())
        if isinstance(command, Send)
    ]
    assert [event["type"] for event in sent] == ["ADDED", "ADDED", "BOOKMARK"]
    assert {event["object"]["kind"] for event in sent} == {"Pod"}
    end = sent[-1]["object"]["metadata"]
    assert end == {"resourceVersion": "17", "annotations": {"k8s.io/initial-events-end": "true"}}


def test_an_empty_old_list_still_ends_its_initial_events() -> None:
    old = OldList(3, 200, {"apiVersion": "v1", "kind": "PodList", "items": None})
    assert json.loads(old.as_events())["type"] == "BOOKMARK"
