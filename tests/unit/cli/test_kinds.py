"""Kinds by name, and what columns show."""

from datetime import UTC, datetime, timedelta

import pytest

from fairway.api.crd import KINDS
from fairway.cli.kinds import age, cell, kind_and_name, kind_named, words_of
from fairway.cli.mistake import Mistake

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_is_found_by_all_of_its_names(kind):
    for word in words_of(kind):
        assert kind_named(word) is kind
        assert kind_named(word.upper()) is kind
    assert kind_named(f"{kind.plural}.fairway.dev") is kind


def test_a_wrong_kind_is_told_the_nearest():
    with pytest.raises(Mistake, match="did you mean mcpserver"):
        kind_named("mcpserverz")


def test_a_name_alone_is_a_server_and_a_slash_names_the_kind():
    assert kind_and_name("weather") == (KINDS[0], "weather")
    assert kind_and_name("mtc/only")[0].kind == "MCPToolConfig"
    with pytest.raises(Mistake, match="name is missing"):
        kind_and_name("mcps/")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (190, "3m10s"), (600, "10m"), (3599, "59m"),
        (3600, "1h"), (3660, "1h1m"), (36000, "10h"), (86400, "1d"), (90000, "1d1h"), (86400 * 30, "30d"),
    ],
)  # fmt: skip
def test_ages_have_at_most_two_units(seconds, shown):
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), now=NOW) == shown


def server(**status):
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": "a", "namespace": "default", "creationTimestamp": "2026-01-02T03:04:00Z"},
        "spec": {"image": "x"},
        "status": status,
    }


def columns(obj):
    kind = kind_named(obj["kind"])
    return {column.name: cell(obj, column, now=NOW) for column in kind.columns}


def test_the_columns_are_those_of_the_kind():
    ready = [{"type": "Ready", "status": "True"}]
    shown = columns(server(phase="Ready", conditions=ready, tools={"count": 0}, transport="streamable-http"))
    assert shown["Ready"] == "True"
    assert shown["Status"] == "Ready"
    assert shown["Transport"] == "streamable-http"
    assert shown["Tools"] == "0"
    assert shown["Age"] == "5s"


def test_an_object_without_status_or_with_a_broken_spec_has_empty_cells():
    assert columns(server())["Ready"] == ""
    assert columns({**server(), "spec": {"nonsense": 1}})["Transport"] == ""
