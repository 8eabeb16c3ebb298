"""For all tests: the rig's fixtures, hypothesis without a clock, and what the tests of the documentation left out."""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["rig.pytest_plugin"]

# How long an example takes says something about the machine, which other tests are keeping busy, and nothing about us.
settings.register_profile(
    "fairway", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fairway")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Here, since of several processes that share the tests only this one has the screen.
    reports = [report for found in terminalreporter.stats.values() for report in found]
    if any("/test_docs.py" in getattr(report, "nodeid", "") for report in reports):
        from tests.blocks.pages import summary

        for line in summary():
            terminalreporter.write_line(line)
