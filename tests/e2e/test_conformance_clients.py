"""The client scenarios of the official suite: to servers a client is the same with the proxy in between as without."""

from collections.abc import Callable
from functools import cache

import pytest

from tests.conformance.client_suite import ANSWERING, NOT_JUDGED, client_scenarios, run_clients, worsened
from tests.conformance.loud import untested
from tests.conformance.packages import Package, UnavailableError, package
from tests.conformance.suite import REVISIONS, Score

pytestmark = pytest.mark.e2e

Scored = Callable[[str], Score]


@pytest.fixture(scope="module")
def suite(pytestconfig: pytest.Config) -> Package:
    try:
        return package("conformance")
    except UnavailableError as error:
        untested(pytestconfig, f"the client scenarios of the MCP conformance suite: {error}")


@pytest.fixture(scope="module")
def clients(suite: Package) -> Scored:
    """How the SDK's client does without a proxy."""
    return cache(lambda revision: run_clients(suite, revision, "sdk", "direct"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_client_that_comparisons_rest_on_makes_no_mistake(suite: Package, clients: Scored, revision: str) -> None:
    score = clients(revision)
    assert {check.scenario for check in score.outcomes} == set(client_scenarios(suite, revision))
    assert {outcome.status for outcome in score.outcomes.values()} <= {"SUCCESS", *NOT_JUDGED}
    assert score.passed > 20


@pytest.mark.parametrize("way", ["proxied", "guarded"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_clients_are_the_same_to_servers_behind_the_proxy(
    suite: Package, clients: Scored, revision: str, way: str
) -> None:
    through = run_clients(suite, revision, "sdk", way)
    assert [str(one) for one in worsened(clients(revision), through)] == []


def test_a_proxy_that_drops_headers_is_noticed_with_clients_too(suite: Package, clients: Scored) -> None:
    name = "http-standard-headers"
    found = worsened(clients("2026-07-28"), run_clients(suite, "2026-07-28", "sdk", "stripped", [name]))
    assert any(one.check.scenario == name and one.through == "FAILURE" for one in found)


@pytest.mark.parametrize("revision", REVISIONS)
def test_our_own_client_passes_whatever_applies_to_it(suite: Package, revision: str) -> None:
    names = [name for name in client_scenarios(suite, revision) if name not in ANSWERING]
    score = run_clients(suite, revision, "own", "direct", names)
    wrong = {check: outcome for check, outcome in score.outcomes.items() if outcome.status == "WARNING"}
    assert (score.failed, wrong) == ([], {})
    assert {check.scenario for check in score.outcomes} == set(names)
