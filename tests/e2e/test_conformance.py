"""The official conformance suite: what it says of a server must not change when the proxy stands in front of it."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from fairway.proxy.metrics import MIDDLEWARES
from tests.conformance import inline_tools as inline_tools_module
from tests.conformance.guarded import guarded_proxy
from tests.conformance.loud import say, untested
from tests.conformance.packages import Package, UnavailableError, package
from tests.conformance.running import fairway_proxy, fixture_server, inline_tools, stripping_proxy
from tests.conformance.suite import (
    GUARDED,
    REVISIONS,
    Score,
    accepted_differences,
    baseline,
    differences,
    run_suite,
    summary,
)

pytestmark = pytest.mark.e2e

INLINE_TOOLS = Path(inline_tools_module.__file__ or "")
Scored = Callable[[str], Score]


@pytest.fixture(scope="module")
def suite(pytestconfig: pytest.Config) -> Package:
    try:
        return package("conformance")
    except UnavailableError as error:
        untested(pytestconfig, f"the MCP conformance suite, in both revisions: {error}")


@pytest.fixture(scope="module")
def fixture_url(suite: Package) -> Iterator[str]:
    with fixture_server() as url:
        yield url


@pytest.fixture(scope="module")
def direct(suite: Package, fixture_url: str) -> Scored:
    """The fixture's own score in a revision; the suite runs once for each."""
    return cache(lambda revision: run_suite(suite, fixture_url, revision))


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_fixture_scores_what_it_always_scored(direct: Scored, revision: str) -> None:
    assert summary(direct(revision)) == baseline()[revision]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_proxy_changes_no_check(suite: Package, fixture_url: str, direct: Scored, revision: str) -> None:
    with fairway_proxy(fixture_url) as url:
        through = run_suite(suite, url, revision)
    assert [str(one) for one in differences(direct(revision), through, accepted_differences())] == []


def test_the_proxy_with_everything_on_changes_no_check(
    suite: Package, fixture_url: str, direct: Scored, pytestconfig: pytest.Config
) -> None:
    with guarded_proxy(fixture_url) as front:
        through = {revision: run_suite(suite, front.url, revision) for revision in REVISIONS}
        counted = front.counters()
        written = len(front.audit.read_text().splitlines())
    accepted = accepted_differences(GUARDED)
    found = [str(one) for revision in REVISIONS for one in differences(direct(revision), through[revision], accepted)]
    assert not found, "\n".join(found)
    assert set(counted) == set(MIDDLEWARES)
    assert all(counted.values()), counted
    say(pytestconfig, f"conformance with everything on: {counted}, {written} audit lines")


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_proxy_that_drops_headers_is_noticed(suite: Package, fixture_url: str, direct: Scored, revision: str) -> None:
    with stripping_proxy(fixture_url) as url:
        through = run_suite(suite, url, revision)
    found = differences(direct(revision), through)
    assert len(found) > 20
    assert through.passed < direct(revision).passed - 20


APPLICABLE = {
    "2025-11-25": {
        "dns-rebinding-protection",
        "ping",
        "server-initialize",
        "tools-call-error",
        "tools-call-simple-text",
        "tools-list",
    },
    "2026-07-28": {
        "dns-rebinding-protection",
        "http-custom-header-server-validation",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "server-sse-multiple-streams",
        "server-stateless",
        "tools-call-error",
        "tools-call-simple-text",
        "tools-list",
    },
}
"""Scenarios that ask for nothing but tools that answer at once."""

NOT_EXERCISED = {
    # each needs a tool that asks the client back, which a plain function cannot
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
}


@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "through the proxy"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_inline_tools_pass_whatever_applies_to_them(suite: Package, revision: str, through_proxy: bool) -> None:
    with inline_tools(INLINE_TOOLS) as url:
        if through_proxy:
            with fairway_proxy(url) as front:
                score = run_suite(suite, front, revision)
        else:
            score = run_suite(suite, url, revision)
    judged = {check: outcome for check, outcome in score.outcomes.items() if check.scenario in APPLICABLE[revision]}
    assert {check.scenario for check in judged} == APPLICABLE[revision]
    failed = {check.id: outcome.message for check, outcome in judged.items() if outcome.status == "FAILURE"}
    assert {name: said for name, said in failed.items() if name not in NOT_EXERCISED} == {}
    wire = [check for check in score.outcomes if check.id == "wire-schema-valid"]
    assert wire
    assert all(score.outcomes[check].status == "SUCCESS" for check in wire)
