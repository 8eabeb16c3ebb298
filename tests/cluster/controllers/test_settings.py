"""Settings of a running operator: what changes in its file changes in its work, without a restart."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from rig.testcluster import RigCluster
from tests.cluster.controllers.conftest import Operator, until
from tests.cluster.controllers.test_operator import made, settled


@pytest.fixture
def settings(operator: Operator) -> Iterator[Operator]:
    """The operator at work, whose file is empty again afterwards."""
    until("the operator to be at work", lambda: said(operator, "caches are filled", since=0))
    yield operator
    mark = len(lines(operator))
    operator.config.write_text("# as it was\n")
    until("the defaults", lambda: said(operator, "read again", since=mark))


def lines(operator: Operator) -> list[dict[str, Any]]:
    return [json.loads(line) for line in operator.log.read_text().splitlines() if line.startswith("{")]


def said(operator: Operator, event: str, *, since: int) -> list[dict[str, Any]]:
    return [line for line in lines(operator)[since:] if line["event"] == event]


def test_the_log_level_changes_without_a_restart(settings: Operator, rig_api: RigCluster, rig_namespace: str) -> None:
    assert settings.process is not None
    before = settings.process.pid
    mark = len(lines(settings))
    settings.config.write_text("log-level: debug\n")
    (taken,) = until("the new level", lambda: said(settings, "read again", since=mark))
    assert taken["changed"] == ["log-level"]
    made(rig_api, rig_namespace)
    reconciled = said(settings, "reconciled", since=mark)
    assert any(
        (line["controller"], line["namespace"], line["name"]) == ("mcpserver", rig_namespace, "hello")
        and len(line["reconcile_id"]) == 8
        for line in reconciled
    )
    assert (settings.process.poll(), settings.process.pid) == (None, before)


def test_the_rate_of_requests_changes_without_a_restart(
    settings: Operator, rig_api: RigCluster, rig_namespace: str
) -> None:
    mark = len(lines(settings))
    settings.config.write_text("kube-api-qps: 10\nkube-api-burst: 1\n")
    until("the new rate", lambda: said(settings, "read again", since=mark))
    made(rig_api, rig_namespace)
    settled(settings, rig_namespace)
    times = sorted(
        datetime.fromisoformat(event["requestReceivedTimestamp"]) for event in settings.requests(rig_namespace)
    )
    took = (times[-1] - times[0]).total_seconds()
    assert len(times) >= 12
    assert took >= 0.9 * (len(times) - 1) / 10, f"{len(times)} requests in {took:.1f} s"


def test_a_file_that_cannot_be_used_changes_nothing_and_says_so(settings: Operator) -> None:
    mark = len(lines(settings))
    settings.config.write_text("log-level: debug\nworkers: none\n")
    (refused,) = until("the refusal", lambda: [line for line in lines(settings)[mark:] if line["level"] == "error"])
    assert f"{settings.config}:2: workers: 'none'" in refused["error"]
    assert said(settings, "read again", since=mark) == []
